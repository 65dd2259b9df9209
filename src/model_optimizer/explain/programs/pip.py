"""`pip install` (uv too) of engines: pins that contradict each other, packages that do not exist."""

import re

from model_optimizer.core import UsageError
from model_optimizer.core.explanation import Explanation, Point
from model_optimizer.explain import text
from model_optimizer.explain.question import Question
from model_optimizer.facts import vllm
from model_optimizer.facts.versions import key

TITLE = "installation"
SOURCE = "metadata of the packages in the Python package index"
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[([\w,.-]+)\])?(?:==(\S+))?$")


def matches(words: list[str]) -> bool:
    head = [w.split("/")[-1] for w in words[:5]]
    return "install" in head and any(w in ("pip", "pip3", "uv") for w in head)


def explain(words: list[str], question: Question) -> Explanation:
    del question
    wanted = [found for w in words[words.index("install") + 1 :] if (found := _REQUIREMENT.match(w))]
    pins = {found[1].lower().replace("_", "-"): found for found in wanted}
    points: list[Point] = []
    fixed = list(words)
    for name, found in pins.items():
        if name == "vllm":
            points += _vllm(found, pins, fixed)
        elif name in GONE:
            points.append(Point(about=found[0], level="wrong", says=GONE[name], source=SOURCE))
        elif name == "tensorrt":
            says = (
                "brings the libraries and the Python bindings (built for CUDA 13 since 10.13.2), not trtexec"
            )
            points.append(Point(about=found[0], level="note", says=says, source=SOURCE))
    changed = fixed != words
    return Explanation(
        asked=text.masked(text.line(words)),
        kind="command",
        title="an installation with pip",
        means=(
            "The pins cannot be met together."
            if any(p.level == "wrong" for p in points)
            else "Nothing speaks against it.",
        ),
        points=tuple(points),
        today=(text.masked(text.line(fixed)),) if changed else (),
        today_for="the package index" if changed else None,
        do=("mopt env create makes an environment from a lock that was tested",),
        source=(SOURCE,),
    )


GONE = {
    "awq": (
        "there is no package of this name; AutoAWQ ended with 0.2.9, and llm-compressor makes AWQ checkpoints"
    ),
    "autoawq": (
        "AutoAWQ is no longer developed (0.2.9 of 2025-05 is the last); llm-compressor makes AWQ checkpoints"
    ),
    "auto-gptq": "AutoGPTQ is no longer developed; GPTQModel or llm-compressor make GPTQ checkpoints",
    "nvidia-docker2": "not a Python package; the NVIDIA Container Toolkit replaces it",
}


def _vllm(found: re.Match[str], pins: dict[str, re.Match[str]], fixed: list[str]) -> list[Point]:
    points: list[Point] = []
    version = found[3]
    if found[2]:
        says = f"vLLM has no extra `{found[2]}`; quantized checkpoints load without one"
        if found[2] in ("awq", "gptq", "fp8"):
            points.append(Point(about=found[0], level="wrong", says=says, source="vLLM setup.py"))
            fixed[fixed.index(found[0])] = found[0].replace(f"[{found[2]}]", "")
    if version is None:
        return points
    try:
        release = vllm.release(version)
    except UsageError:
        return points
    note = next((n for n in vllm.notes() if n.subject == version), None)
    if note:
        points.append(Point(about=found[0], level="wrong", says=note.note, source=note.source[0]))
    torch = pins.get("torch")
    if torch and torch[3] and key(torch[3]) != key(release.torch):
        says = f"vLLM {version} pins torch=={release.torch}: leave torch out, it comes along"
        points.append(
            Point(
                about=torch[0], level="wrong", says=says, source=f"facts/compatibility/vllm/{release.version}"
            )
        )
        fixed.remove(torch[0])
    says = (
        f"built for CUDA {release.cuda}: driver {release.minimum_driver_linux} or newer, Python "
        f"{release.python}"
    )
    points.append(
        Point(about=found[0], level="note", says=says, source=f"facts/compatibility/vllm/{release.version}")
    )
    return points
