"""TensorRT-LLM: converters and trtllm-build, which ended with 1.2, and trtllm-serve after them."""

from model_optimizer.core.explanation import Explanation, Point
from model_optimizer.explain import options, text
from model_optimizer.explain.question import Question
from model_optimizer.facts import flags, tensorrt_llm

TITLE = "TensorRT-LLM"
BUILD = "trtllm-build"
MOVED_FROM = "0.12.0"
SOURCE = "TensorRT-LLM docs/source/legacy/tensorrt-backend-removal.md and release notes 0.12.0"
LAST = "1.2.1"
"""The last stable release with trtllm-build."""
PARALLEL = {"--tp_size": "--tensor_parallel_size", "--pp_size": "--pipeline_parallel_size"}


def matches(words: list[str]) -> bool:
    name = words[0].split("/")[-1] if words else ""
    converter = any(w.endswith(("convert_checkpoint.py", "convert_checkpoint")) for w in words[:4])
    return name in (BUILD, "trtllm-serve") or converter


def explain(words: list[str], question: Question) -> Explanation:
    name = words[0].split("/")[-1]
    if name == "trtllm-serve":
        return _serve(words, question)
    return _build(words, question) if name == BUILD else _convert(words)


def _build(words: list[str], question: Question) -> Explanation:
    """The build as the last release had it, and the server that takes its place."""
    version = question.version_of("tensorrt_llm")
    table = flags.table("trtllm_build", version or LAST)
    given, _ = options.read(words[1:], "trtllm_build", table)
    if not table.options:
        table = flags.table("trtllm_build", LAST)
    result = options.translate(given, "trtllm_build", table, question)
    known = result.given
    points = [
        Point(
            about=BUILD,
            level="wrong" if version and not flags.table("trtllm_build", version).options else "changed",
            says=f"engines are gone from 1.3.0rc22 on; {LAST} is the last stable release with the command, "
            "and since 1.0 the PyTorch backend is the default and needs no engine",
            source=SOURCE,
        ),
        *result.points,
    ]
    return Explanation(
        asked=text.masked(text.line(words)),
        kind="command",
        title="a TensorRT-LLM engine build",
        means=("Serve the Hugging Face checkpoint itself: no conversion, no engine.",),
        points=tuple(points),
        today=(text.line(["trtllm-serve", "HF_MODEL", *_serving(known)]),),
        today_for=f"TensorRT-LLM {flags.versions('trtllm_serve')[-1]} and later",
        do=(
            f"to keep engines: stay on {LAST}, give the parallelism to convert_checkpoint.py, and build with "
            + text.line([BUILD, *_kept(result)]),
        ),
        source=(f"facts/flags/trtllm_build/{table.version}", SOURCE),
    )


def _serving(known: dict[str, options.Given]) -> list[str]:
    """Options of the server that mean what those of the build meant."""
    found: list[str] = []
    for old, new in PARALLEL.items():
        if old in known and known[old].value:
            found += [new, known[old].value or ""]
    for same in ("--max_batch_size", "--max_num_tokens", "--max_beam_width"):
        if same in known and known[same].value:
            found += [same, known[same].value or ""]
    if length := _length(known):
        found += ["--max_seq_len", length]
    return found


def _length(known: dict[str, options.Given]) -> str | None:
    """Prompt and output together, which is what is limited today."""
    if "--max_seq_len" in known:
        return known["--max_seq_len"].value
    parts = [known[n].value for n in ("--max_input_len", "--max_output_len") if n in known]
    if len(parts) == 2 and all(p and p.isdigit() for p in parts):
        return str(sum(int(p) for p in parts if p))
    return None


def _kept(result: options.Translation) -> list[str]:
    words = list(result.words)
    length = _length(result.given)
    if "--max_output_len" in result.given and length and "--max_seq_len" not in words:
        words += ["--max_seq_len", length]
    return words


def _serve(words: list[str], question: Question) -> Explanation:
    table = flags.table("trtllm_serve", question.version_of("tensorrt_llm"))
    sub = ["serve"] if words[1:2] == ["serve"] else []
    given, free = options.read(words[1 + len(sub) :], "trtllm_serve", table)
    result = options.translate(given, "trtllm_serve", table, question)
    points = list(result.points)
    backend = result.given.get("--backend")
    if backend and backend.value in ("tensorrt", "trt"):
        says = "the engine backend is gone from 1.3.0rc22 on; leave the option out"
        points.append(Point(about="--backend tensorrt", level="changed", says=says, source=SOURCE))
    host = result.given.get("--host")
    if host and host.value == "0.0.0.0":
        says = "listens on every interface, and the server knows no key; its default is localhost"
        points.append(Point(about="--host", level="warn", says=says))
    return Explanation(
        asked=text.masked(text.line(words)),
        kind="command",
        title="a TensorRT-LLM server",
        means=("It serves a Hugging Face checkpoint with the PyTorch backend.",),
        points=tuple(points),
        today=(text.masked(text.line(["trtllm-serve", *(free or ["MODEL"]), *result.words])),),
        today_for=f"TensorRT-LLM {table.version}",
        source=(f"facts/flags/trtllm_serve/{table.version}",),
    )


def _convert(words: list[str]) -> Explanation:
    module = "tensorrt_llm.tools.convert_checkpoint" in words
    says = (
        "this module never existed: the converters were example scripts, one a model family"
        if module
        else "the converters were example scripts, one a model family, and were deleted in the middle of 2026"
    )
    rule = next(r for r in tensorrt_llm.rules() if r.id == "engines-end")
    return Explanation(
        asked=text.masked(text.line(words)),
        kind="command",
        title="a conversion to a TensorRT-LLM checkpoint",
        means=(
            (
                "It was the first of two steps to an engine. Today the Hugging Face checkpoint is served "
                "as it is."
            ),
        ),
        points=(
            Point(about="convert_checkpoint", level="wrong", says=says, source=SOURCE),
            Point(about="engines", level="note", says=rule.rule, source=rule.source[0]),
        ),
        today=("trtllm-serve HF_MODEL",),
        today_for=f"TensorRT-LLM {flags.versions('trtllm_serve')[-1]} and later",
        source=(SOURCE,),
    )
