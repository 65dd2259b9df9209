"""The direction of imports. Read this file to learn how the code is laid out.

import-linter holds the same rule on the command line (`make lint`); this test also holds what it cannot
say: what workers may import, and that nothing heavy is imported when a file is.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import model_optimizer

ROOT = Path(model_optimizer.__file__).parent
STAGES = {
    "doctor", "planner", "quantize", "convert", "verify", "serve", "bench", "diagnose", "explain", "tune", "deploy",
}  # fmt: skip
BASE = {"core", "facts", "system"}
SHARED = BASE | {"schemes", "engines"}

# A room may import the rooms beside its name, itself, and nothing else of ours.
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "facts": {"core"},
    "system": {"core", "facts"},
    "schemes": {"core"},
    "engines": BASE | {"schemes"},
    **dict.fromkeys(STAGES, SHARED),
    "report": {"core"},
    "flow": SHARED | STAGES | {"report"},
    "testing": SHARED | STAGES,
    "workers": set(),
    "vllm_plugins": set(),
    "cli": SHARED | STAGES | {"api", "flow", "report"},
}
LATE = {"tune/sampler.py"}
"""Files that are a class of somebody else's package, and are imported inside the function that needs them."""

HEAVY = {
    "torch", "transformers", "vllm", "tensorrt", "onnx", "onnxruntime", "onnxruntime_genai", "litserve",
    "numpy", "pynvml", "psutil", "docker", "huggingface_hub", "optuna", "ray",
}  # fmt: skip


def files(*, below: Path = ROOT) -> list[Path]:
    return sorted(path for path in below.rglob("*.py") if "__pycache__" not in path.parts)


def imports(path: Path, *, top_level_only: bool) -> set[str]:
    """Absolute names of all modules that a file imports; names of ours in full."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module)
            if node.module == "model_optimizer":
                names |= {
                    f"model_optimizer.{alias.name}" for alias in node.names if not alias.name.startswith("_")
                }
    return names


def room_of(path: Path) -> str | None:
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else None


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_rooms_import_only_what_they_may(path: Path) -> None:
    room = room_of(path)
    if room is None:
        return
    assert room in MAY_IMPORT, f"{room} is not on the map in docs/structure.md"
    ours = {n.split(".")[1] for n in imports(path, top_level_only=False) if n.startswith("model_optimizer.")}
    forbidden = ours - MAY_IMPORT[room] - {room}
    assert not forbidden, f"{path.relative_to(ROOT)} must not import {sorted(forbidden)}"


def test_workers_know_nothing_of_ours() -> None:
    for path in files(below=ROOT / "workers"):
        assert not any(n.startswith("model_optimizer") for n in imports(path, top_level_only=False)), path


def test_nothing_heavy_is_imported_when_a_file_is() -> None:
    for path in files():
        if room_of(path) != "workers" and str(path.relative_to(ROOT)) not in LATE:
            heavy = {n.split(".")[0] for n in imports(path, top_level_only=True)} & HEAVY
            assert not heavy, f"{path.relative_to(ROOT)}: import {sorted(heavy)} inside the function"


def test_help_loads_no_stage() -> None:
    code = (
        "import sys; sys.argv = ['mopt', '--help']\n"
        "from model_optimizer.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m.startswith('model_optimizer.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[1] for name in ast.literal_eval(done.stderr.splitlines()[-1])}
    assert loaded <= {"cli", "core"}


def test_only_the_codec_and_the_boundary_speak_of_untyped_dictionaries() -> None:
    """`dict[str, Any]` is allowed where JSON enters or leaves, nowhere else."""
    boundary = {"system", "workers", "cli", "facts", "testing"}
    for path in files():
        if room_of(path) in boundary or path.name in {"codec.py", "protocols.py", "plugins.py"}:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                annotations = [a.annotation for a in node.args.args + node.args.kwonlyargs] + [node.returns]
                words = {ast.unparse(a) for a in annotations if a is not None}
                assert "dict[str, Any]" not in words, f"{path.relative_to(ROOT)}: {node.name}"
