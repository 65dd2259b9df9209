"""Write facts/flags/sglang/<version>.json: what `python -m sglang.launch_server` of a release takes.

python tools/flags_from_sglang.py 0.5.8 --source FOLDER     FOLDER holds the package `sglang`
python tools/flags_from_sglang.py 0.5.8                     fetches the wheel with pip first

Options come from the fields of ServerArgs and its `add_argument` calls, variables from environ.py, metrics
from every name that starts `sglang:`. Nothing of SGLang is run.
"""

import argparse
import ast
import re
import tempfile
import zipfile
from pathlib import Path

from architectures_from_vllm import download
from flag_source import Row, Sources, Table, add_arguments, explicit, flags_of, of_field, shown, write

PATTERNS = (
    "sglang/srt/server_args.py",
    "sglang/srt/arg_groups/fields/*.py",
    "sglang/srt/environ.py",
)
METRIC = re.compile(r"sglang:[a-z][a-z0-9_]+")


def options(sources: Sources) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for name, shape in sources.shapes.items():
        for field, (annotation, _, _) in shape.fields.items():
            text = ast.unparse(annotation)
            if text.startswith("A[") and "no_cli=True" not in text:
                row = of_field(sources, name, field)
                row["takes"] = "list" if "nargs='+'" in text else sources.takes(_inner(annotation))
                if also := _also(annotation):
                    row["also"] = also
                found[_spelling(annotation, field)] = row
    for tree in sources.trees.values():
        for call, bound in add_arguments(tree):
            flags = flags_of(call, bound)
            long = next((flag for flag in flags if flag.startswith("--")), None)
            if long is None:
                continue
            own = of_field(sources, "ServerArgs", long.removeprefix("--").replace("-", "_"))
            row = own | explicit(call, sources)
            if len(flags) > 1:
                row["also"] = sorted(flag for flag in flags if flag != long)
            row.setdefault("takes", "value")
            found[long] = found.get(long, {}) | row
    return found


def _inner(annotation: ast.expr) -> ast.expr:
    """`int` of `A[int, "help"]`."""
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        return annotation.slice.elts[0]
    return annotation


def _spelling(annotation: ast.expr, field: str) -> str:
    found = re.search(r"cli_name='(--[\w-]+)'", ast.unparse(annotation))
    return found[1] if found else f"--{field.replace('_', '-')}"


def _also(annotation: ast.expr) -> list[str]:
    found = re.search(r"aliases=\[([^]]*)\]", ast.unparse(annotation))
    return sorted(re.findall(r"'(--?[\w-]+)'", found[1])) if found else []


def variables(sources: Sources) -> dict[str, Row]:
    """The fields of the class Envs, each `NAME = EnvBool(False)`."""
    rows: dict[str, Row] = {}
    for tree in sources.trees.values():
        for node in ast.walk(tree):
            if not isinstance(node, ast.ClassDef) or node.name != "Envs":
                continue
            for item in node.body:
                if isinstance(item, ast.Assign) and isinstance(item.value, ast.Call) and item.value.args:
                    name = ast.unparse(item.targets[0])
                    default = shown(sources.default(item.value.args[0]))
                    rows[name] = {"default": default} if default is not None else {}
    return rows


def metrics(root: Path) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for path in sorted((root / "sglang" / "srt").rglob("*.py")):
        text = path.read_text("utf-8")
        if "sglang:" not in text or "disaggregation" in path.parts:
            continue
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.Call):
                continue
            name = next((k.value for k in node.keywords if k.arg == "name"), None)
            kind = re.search(r"gauge|counter|histogram", ast.unparse(node.func).lower())
            if isinstance(name, ast.Constant) and METRIC.fullmatch(str(name.value)) and kind:
                found[str(name.value)] = {"metric": kind[0]}
    return found


def table(root: Path) -> Table:
    sources = Sources(root, PATTERNS)
    return {"options": options(sources), "variables": variables(sources), "metrics": metrics(root)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", help="the release of SGLang, for example 0.5.8")
    parser.add_argument("--source", type=Path, help="a folder that holds the package `sglang`")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = given.source
        if root is None:
            root = Path(folder)
            with zipfile.ZipFile(download("sglang", given.version, root)) as archive:
                archive.extractall(root, [n for n in archive.namelist() if n.endswith(".py")])
        found = table(root)
    source = [f"sglang {given.version}, srt/server_args.py, srt/environ.py, names of metrics below srt"]
    path = write("sglang", given.version, source, found)
    print(f"{path.name}: " + ", ".join(f"{len(rows)} {name}" for name, rows in found.items()))


if __name__ == "__main__":
    main()
