"""Reads options, defaults, environment variables and metric names out of Python sources, running none.

The tools `flags_from_vllm.py` and `flags_from_sglang.py` use it. What cannot be read without running the
code is left out (`default` stays away), never guessed.
"""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

FLAGS = Path(__file__).parents[1] / "src" / "model_optimizer" / "facts" / "flags"
SECTIONS = ("options", "variables", "metrics")
_OLD = re.compile(r"\[deprecated\]|\bis deprecated|\bare deprecated|deprecated and|deprecated in favor", re.I)
Row = dict[str, object]
Table = dict[str, dict[str, Row]]
Field = tuple[ast.expr, ast.expr | None, str]
"""Annotation, default, and the text after it."""
UNKNOWN = object()


@dataclass(slots=True)
class Shape:
    """A class that is only looked at: its fields in order, with the text after each, and its bases."""

    name: str
    bases: tuple[str, ...] = ()
    fields: dict[str, Field] = field(default_factory=dict[str, Field])


class Sources:
    """Every Python file below a folder that was asked for, with its classes, constants and aliases."""

    def __init__(self, root: Path, patterns: tuple[str, ...]) -> None:
        self.trees: dict[str, ast.Module] = {}
        self.shapes: dict[str, Shape] = {}
        self.names: dict[str, ast.expr] = {}
        self.without_nargs: set[str] = set()
        for pattern in patterns:
            for path in sorted(root.glob(pattern)):
                self._read(path.relative_to(root).as_posix(), path.read_text("utf-8"))

    def _read(self, name: str, text: str) -> None:
        tree = self.trees[name] = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self.shapes[node.name] = _shape(node)
            elif isinstance(node, ast.Delete):
                self.without_nargs |= set(re.findall(r"\['(\w+)'\]\['nargs'\]", ast.unparse(node)))
        for node in tree.body:
            for bound in _within_conditions(node):
                if isinstance(bound, ast.Assign) and isinstance(bound.targets[0], ast.Name):
                    self.names[bound.targets[0].id] = bound.value
                elif isinstance(bound, ast.AnnAssign) and isinstance(bound.target, ast.Name) and bound.value:
                    self.names[bound.target.id] = bound.value

    def fields(self, name: str) -> dict[str, Field]:
        """The fields of a class and of its bases, the nearest first."""
        shape = self.shapes.get(name)
        if shape is None:
            return {}
        inherited: dict[str, Field] = {}
        for base in shape.bases:
            inherited |= self.fields(base)
        return inherited | shape.fields

    def default(self, node: ast.expr | None) -> object:
        """The value of an expression, UNKNOWN when it takes running code to find."""
        if node is None:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            values = [self.default(item) for item in node.elts]
            return UNKNOWN if UNKNOWN in values else values
        if isinstance(node, ast.Dict):
            return {} if not node.keys else UNKNOWN
        if isinstance(node, ast.Name):
            return self.default(self.names[node.id]) if node.id in self.names else UNKNOWN
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        return _arithmetic(node, self)

    def _attribute(self, node: ast.Attribute) -> object:
        owner = ast.unparse(node.value).split(".")[-1]
        found = self.fields(owner).get(node.attr)
        if found is not None and found[1] is not None:
            return self.default(found[1])
        if owner in self.shapes and node.attr.isupper():
            return node.attr
        if owner in ("envs", "env") and node.attr.isupper():
            return f"${node.attr}"
        return UNKNOWN

    def _call(self, node: ast.Call) -> object:
        called = ast.unparse(node.func).split(".")[-1]
        if called == "get_field" and len(node.args) == 2 and isinstance(node.args[1], ast.Constant):
            found = self.fields(ast.unparse(node.args[0]).split(".")[-1]).get(str(node.args[1].value))
            return self.default(found[1]) if found else UNKNOWN
        if called == "_declared_default" and isinstance(node.args[0], ast.Constant):
            found = self.fields("ServerArgs").get(str(node.args[0].value))
            return self.default(found[1]) if found else UNKNOWN
        words = {k.arg: k.value for k in node.keywords}
        if called in ("Field", "field"):
            if "default" in words or node.args:
                return self.default(words.get("default") or node.args[0])
            return self._made(words.get("default_factory"))
        return {} if called in self.shapes and not node.args and not node.keywords else UNKNOWN

    def _made(self, factory: ast.expr | None) -> object:
        if isinstance(factory, ast.Lambda):
            return self.default(factory.body)
        if isinstance(factory, ast.Name):
            empty: dict[str, object] = {"list": [], "dict": {}, "set": [], "tuple": []}
            return empty.get(factory.id, {} if factory.id in self.shapes else UNKNOWN)
        return UNKNOWN

    def choices(self, node: ast.expr | None, depth: int = 0) -> list[str]:
        """The words that an annotation allows: those of every Literal that it leads to."""
        if node is None or depth > 4:
            return []
        found: list[str] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self.choices(_parsed(node.value), depth + 1)
        if isinstance(node, ast.Subscript) and ast.unparse(node.value).split(".")[-1] == "Literal":
            items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            for item in items:
                if isinstance(item, ast.Constant):
                    found.append(str(item.value))
                else:
                    found += self.choices(item, depth + 1)
            return found
        if isinstance(node, ast.Name):
            return self.choices(self.names.get(node.id), depth + 1)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                found += self.choices(child, depth + 1)
        return list(dict.fromkeys(found))

    def says_deprecated(self, text: ast.expr) -> bool:
        """Whether a help text, or the constant that holds it, calls the option deprecated."""
        if isinstance(text, ast.Name) and text.id in self.names:
            text = self.names[text.id]
        return bool(_OLD.search(ast.unparse(text)))

    def takes(self, annotation: ast.expr) -> str:
        """`switch`, `list` or `value`."""
        members = [ast.unparse(member) for member in _members(annotation)]
        kinds = {re.split(r"\W", member)[0] for member in members} - {"None"}
        if kinds == {"bool"}:
            return "switch"
        return "list" if kinds & {"list", "tuple", "set", "List", "Sequence"} else "value"


def _members(annotation: ast.expr) -> Iterator[ast.expr]:
    """The parts of a union, and what is inside Optional, Annotated and SkipValidation."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        inner = _parsed(annotation.value)
        yield from _members(inner) if inner is not None else ()
    elif isinstance(annotation, ast.BinOp):
        yield from _members(annotation.left)
        yield from _members(annotation.right)
    elif isinstance(annotation, ast.Subscript):
        outer = ast.unparse(annotation.value).split(".")[-1]
        parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        if outer == "Union":
            for part in parts:
                yield from _members(part)
        elif outer in ("Optional", "Annotated", "SkipValidation"):
            yield from _members(parts[0])
        else:
            yield annotation
    else:
        yield annotation


def _shape(node: ast.ClassDef) -> Shape:
    shape = Shape(node.name, tuple(ast.unparse(base).split(".")[-1] for base in node.bases))
    body = node.body
    for at, item in enumerate(body):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            after = body[at + 1] if at + 1 < len(body) else None
            text = ast.unparse(item.annotation) if isinstance(item.annotation, ast.Subscript) else ""
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                text += str(after.value.value)
            shape.fields[item.target.id] = (item.annotation, item.value, text)
    return shape


def _within_conditions(node: ast.stmt) -> Iterator[ast.stmt]:
    """A statement, or those of both arms of an `if` or `try` at the top of a file."""
    if isinstance(node, ast.If | ast.Try):
        for inner in [*node.body, *node.orelse]:
            yield from _within_conditions(inner)
    else:
        yield node


def _parsed(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None


def _arithmetic(node: ast.expr, sources: Sources) -> object:
    """`4 * 1024`, `1 << 30`, `-1`."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = sources.default(node.operand)
        return -value if isinstance(value, int | float) else UNKNOWN
    if isinstance(node, ast.BinOp):
        left, right = sources.default(node.left), sources.default(node.right)
        if isinstance(left, int) and isinstance(right, int):
            if isinstance(node.op, ast.Mult):
                return left * right
            if isinstance(node.op, ast.LShift) and right < 64:
                return left << right
    return UNKNOWN


def shown(value: object) -> str | None:
    """A default as a user would write it; `none` for not set; None when it could not be read."""
    if value is UNKNOWN:
        return None
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | dict):
        return json.dumps(value)
    return str(value)


def add_arguments(tree: ast.AST) -> Iterator[tuple[ast.Call, dict[str, str]]]:
    """Each `x.add_argument(...)`, with the loop variables that stand for text around it."""
    yield from _walk(tree, {})


def _walk(node: ast.AST, bound: dict[str, str]) -> Iterator[tuple[ast.Call, dict[str, str]]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.For) and isinstance(child.target, ast.Name):
            items = child.iter.elts if isinstance(child.iter, ast.List | ast.Tuple) else []
            for item in items:
                if isinstance(item, ast.Constant):
                    yield from _walk(child, bound | {child.target.id: str(item.value)})
            if items:
                continue
        if (
            isinstance(child, ast.Call)
            and isinstance(child.func, ast.Attribute)
            and child.func.attr == "add_argument"
        ):
            yield child, bound
        yield from _walk(child, bound)


def flags_of(call: ast.Call, bound: dict[str, str]) -> list[str]:
    """The spellings of an option: `--quantization`, `-q`."""
    found: list[str] = []
    for word in call.args:
        if isinstance(word, ast.Constant) and isinstance(word.value, str):
            found.append(word.value)
        elif isinstance(word, ast.JoinedStr):
            parts = [
                str(p.value) if isinstance(p, ast.Constant) else bound.get(ast.unparse(p.value), "\0")
                for p in word.values
                if isinstance(p, ast.Constant | ast.FormattedValue)
            ]
            if "\0" not in "".join(parts):
                found.append("".join(parts))
    return [flag for flag in found if flag.startswith("-")]


def explicit(call: ast.Call, sources: Sources) -> Row:
    """What the keywords of the call itself say."""
    words = {k.arg: k.value for k in call.keywords if k.arg}
    row: Row = {}
    action = ast.unparse(words["action"]) if "action" in words else ""
    if any(s in action for s in ("store_true", "store_false", "BooleanOptional", "StoreBoolean")):
        row["takes"] = "switch"
        row["default"] = "true" if "store_false" in action else "false"
    elif "nargs" in words and ast.unparse(words["nargs"]) != "'?'":
        row["takes"] = "list"
    elif "type" in words or "action" in words or "choices" in words:
        row["takes"] = "value"
    if "choices" in words:
        listed = sources.default(words["choices"])
        if isinstance(listed, list):
            row["choices"] = [str(item) for item in cast("list[object]", listed)]
    if "default" in words:
        text = shown(sources.default(words["default"]))
        row |= {"default": text} if text is not None else {}
    if ("deprecated" in words and ast.unparse(words["deprecated"]) == "True") or (
        "help" in words and sources.says_deprecated(words["help"])
    ):
        row["deprecated"] = True
    return row


def of_field(sources: Sources, shape: str, name: str) -> Row:
    """The row that a field of a configuration class stands for."""
    found = sources.fields(shape).get(name)
    if found is None:
        return {}
    annotation, value, text = found
    row: Row = {"takes": sources.takes(annotation)}
    if choices := sources.choices(annotation):
        row["choices"] = choices
    default = shown(sources.default(value))
    if default is not None:
        row["default"] = default
    if _OLD.search(text):
        row["deprecated"] = True
    return row


def write(engine: str, version: str, source: list[str], table: Table) -> Path:
    """Write the release as the difference to the one before it, and the next one's difference anew."""
    folder = FLAGS / engine
    folder.mkdir(parents=True, exist_ok=True)
    whole = snapshots(folder)
    whole[version] = (source, table)
    ordered = sorted(whole, key=order)
    at = ordered.index(version)
    for place in range(at, min(at + 2, len(ordered))):
        empty: Table = {name: {} for name in SECTIONS}
        before = whole[ordered[place - 1]][1] if place else empty
        _write_one(folder, engine, ordered[place], ordered[place - 1] if place else None, before, whole)
    return folder / f"{version}.json"


def snapshots(folder: Path) -> dict[str, tuple[list[str], Table]]:
    """Every release in full, put together from the differences."""
    found: dict[str, tuple[list[str], Table]] = {}
    current: Table = {name: {} for name in SECTIONS}
    for path in sorted(folder.glob("*.json"), key=lambda p: order(p.stem)):
        raw = json.loads(path.read_text())
        for name in SECTIONS:
            kept = {k: row for k, row in current[name].items() if k not in raw["gone"][name]}
            current[name] = dict(sorted((kept | raw[name]).items()))
        found[path.stem] = (raw["source"], dict(current))
    return found


def _write_one(
    folder: Path,
    engine: str,
    version: str,
    after: str | None,
    before: Table,
    whole: dict[str, tuple[list[str], Table]],
) -> None:
    source, now = whole[version]
    document: dict[str, object] = {"engine": engine, "version": version, "after": after, "source": source}
    for name in SECTIONS:
        changed = {k: row for k, row in sorted(now[name].items()) if before[name].get(k) != row}
        document[name] = changed
    document["gone"] = {name: sorted(set(before[name]) - set(now[name])) for name in SECTIONS}
    path = folder / f"{version}.json"
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(_lines(document))
    unfinished.replace(path)


def _lines(document: dict[str, object]) -> str:
    """One row a line, so that a release reads as a difference."""
    parts: list[str] = []
    for key, value in document.items():
        if key in SECTIONS and value:
            lines = cast("dict[str, object]", value).items()
            rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in lines)
            parts.append(f" {json.dumps(key)}: {{\n{rows}\n }}")
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def order(version: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", version))
