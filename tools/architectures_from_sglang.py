"""Reads which architectures an SGLang release serves, from the model files in its wheel.

    python tools/architectures_from_sglang.py 0.5.8 [--wheel FILE]

SGLang is not imported. A model file directly in sglang/srt/models registers the classes that it names in
`EntryClass`; which of them embed or take more than text stands in sglang/srt/configs/model_config.py.
"""

import argparse
import ast
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from architectures_from_vllm import ORDER, write

OUT = Path(__file__).parents[1] / "src/model_optimizer/facts/architectures/sglang"
MODELS = "sglang/srt/models/"
CONFIG = "sglang/srt/configs/model_config.py"
DRAFT = re.compile(r"NextN$|MTP$|Eagle|EAGLE|Draft|DFlash|DSpark")
# Encoders, which early releases did not list as such: they were started with --is-embedding.
ENCODERS = {"BertModel", "Contriever", "XLMRobertaModel"}


def entry_classes(source: str) -> list[str]:
    """The class names in `EntryClass = X` or `EntryClass = [X, Y]`; [] when the file registers none."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and any(_is(target, "EntryClass") for target in node.targets):
            values = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
            return [value.id for value in values if isinstance(value, ast.Name)]
    return []


def not_generating(config: str) -> set[str]:
    """The names that `is_generation_model` compares with: those that embed, classify or score."""
    for node in ast.parse(config).body:
        if isinstance(node, ast.FunctionDef) and node.name == "is_generation_model":
            test = next(n for n in node.body if isinstance(n, ast.If)).test
            return _strings(test)
    raise SystemExit("error: model_config.py has no is_generation_model: SGLang has changed")


def multimodal(config: str) -> set[str]:
    """The names in the list `multimodal_model_archs`."""
    for node in ast.parse(config).body:
        if isinstance(node, ast.Assign) and any(_is(t, "multimodal_model_archs") for t in node.targets):
            return _strings(node.value)
    raise SystemExit("error: model_config.py has no multimodal_model_archs: SGLang has changed")


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _strings(node: ast.expr) -> set[str]:
    return {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def task(name: str, scoring: set[str], vision: set[str]) -> str:
    """The kind of task, in the words of ORDER."""
    if name in scoring | ENCODERS or name.endswith(("Classification", "ForRewardModel")):
        kinds = (("Classification", "rerank"), ("Reward", "pooling"))
        return next((kind for part, kind in kinds if part in name), "embed")
    if DRAFT.search(name):
        return "draft"
    return "multimodal" if name in vision else "generate"


def extract(models: Iterable[str], config: str) -> dict[str, object]:
    """`tasks` and `general`, from the source texts of all model files and of model_config.py."""
    names = {name for source in models for name in entry_classes(source)}
    scoring, vision = not_generating(config), multimodal(config)
    tasks = {kind: sorted(n for n in names if task(n, scoring, vision) == kind) for kind in ORDER}
    return {
        "tasks": {kind: found for kind, found in tasks.items() if found},
        "general": sorted(n for n in names if n.startswith("Transformers")),
    }


def read_wheel(wheel: Path) -> tuple[Mapping[str, object], str]:
    """What the wheel serves, and the day on which it was packed."""
    with zipfile.ZipFile(wheel) as archive:
        models = [n for n in archive.namelist() if n.startswith(MODELS) and n.endswith(".py")]
        direct = [archive.read(n).decode("utf-8-sig") for n in models if "/" not in n.removeprefix(MODELS)]
        packed = archive.getinfo(CONFIG).date_time
        return extract(direct, archive.read(CONFIG).decode()), date(*packed[:3]).isoformat()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", help="the release of SGLang, for example 0.5.8")
    parser.add_argument("--wheel", type=Path, help="a wheel that is here already")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if not options.wheel:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
            subprocess.run([*command, "--dest", folder, f"sglang=={options.version}"], check=True)
        found, packed = read_wheel(options.wheel or next(Path(folder).glob("*.whl")))
    document = {
        "engine": "sglang",
        "version": options.version,
        "package": "sglang",
        "package_version": options.version,
        "date": packed,
        "source": [f"sglang {options.version}, EntryClass in {MODELS}*.py, and {CONFIG}"],
        **found,
    }
    path = options.out / f"{options.version}.json"
    write(path, document)
    print(path.name)


if __name__ == "__main__":
    main()
