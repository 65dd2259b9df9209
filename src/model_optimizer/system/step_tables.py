"""Reads kernel times from aiconfigurator-core, an optional package, and keeps what it read.

The package needs one to six seconds for a model on a GPU; what is kept is a small grid in the user's data
folder, one file a (model, GPU, parallelism, number format, version), so that the second answer needs neither
the package nor the time.
"""

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_optimizer.core import HostError, Progress, ToolError

from . import files

if TYPE_CHECKING:
    from model_optimizer.core.grid import GridRequest, StepGrid

PACKAGE = "aiconfigurator-core"
SUPPORTED = "0.12"
TOKENS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096, 8192, 16384)
SEQUENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
CONTEXTS = (16, 64, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
PROMPTS = (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
# Its own names of engines.
ENGINES = {"vllm": "vllm", "sglang": "sglang", "tensorrt_llm": "trtllm"}


def installed() -> str | None:
    """The version of the package here; None when it is not installed or not one that is understood."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version(PACKAGE)
    except PackageNotFoundError:
        return None
    return found if found.startswith(f"{SUPPORTED}.") else None


def folder() -> Path:
    """Where grids are kept."""
    return files.data_home() / "step-tables"


def load(request: "GridRequest", *, progress: Progress) -> "StepGrid":
    """The grid of a request: from the data folder, else sampled and kept.

    HostError when the package is needed and missing, ToolError when it has no data for the request.
    """
    from model_optimizer.core import codec
    from model_optimizer.core.grid import StepGrid

    path = folder() / f"{_key(request)}.json"
    if path.is_file():
        return codec.load(path, StepGrid)
    if installed() is None:
        raise HostError(
            "the tables of kernel times are not installed",
            cause=(f"{PACKAGE} {SUPPORTED} was not found in {sys.prefix}",),
            hint=('`pip install "model-optimizer[tables]"`, about 500 MB', "or take --step-model roofline"),
            reference="tables-missing",
        )
    grid = sample(request, progress=progress)
    files.write_atomic(path, codec.dumps(grid))
    return grid


def sample(request: "GridRequest", *, progress: Progress) -> "StepGrid":
    """Ask the package for every size of the grid. ToolError when it has no data."""
    where = f"kernel times of {request.model} on {request.system}"
    progress(f"{where}: reading the tables", None)
    try:
        engine = _compile(request)
        progress(f"{where}: sampling", 0.5)
        return _grid(engine, request)
    except Exception as error:
        raise ToolError(
            f"{PACKAGE} has no times of {request.model} on {request.system}",
            cause=(str(error).splitlines()[0][:300] if str(error) else type(error).__name__,),
            hint=("take --step-model roofline",),
            reference="tables-no-data",
        ) from error


def _grid(engine: Any, request: "GridRequest") -> "StepGrid":
    from model_optimizer.core.grid import StepGrid

    steps = {count: _decode(engine, count, CONTEXTS[0]) for count in TOKENS}
    prompts = [_prefill_attention(engine, length) for length in PROMPTS]
    return StepGrid(
        tokens=TOKENS,
        rest_ms=tuple(steps[count].rest for count in TOKENS),
        head_ms=tuple(steps[count].head for count in TOKENS),
        sequences=SEQUENCES,
        contexts=CONTEXTS,
        decode_ms=tuple(tuple(_decode(engine, b, c).attention for c in CONTEXTS) for b in SEQUENCES),
        prompts=PROMPTS,
        prefill_ms=tuple(once for once, _ in prompts),
        prompt_ms=tuple(each for _, each in prompts),
        source=f"{PACKAGE} {installed()}, {request.engine} {request.version} on {request.system}",
        measured=steps[64].measured,
    )


def _key(request: "GridRequest") -> str:
    """A name that tells two requests apart; the version of the package is part of it."""
    import hashlib
    import json

    text = json.dumps(
        [request.system, request.engine, request.version, request.tensor_parallel, request.gemm_mode,
         request.moe_mode, request.kv_mode, SUPPORTED, dict(request.config)],
        sort_keys=True, default=str,
    )  # fmt: skip
    short = "".join(c if c.isalnum() else "-" for c in request.model.rpartition("/")[2].lower())[:40]
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{short}-{request.system}-tp{request.tensor_parallel}-{digest}"


def _compile(request: "GridRequest") -> Any:
    import json
    from tempfile import TemporaryDirectory

    # It warns of files that have nothing to do with the model that is asked for.
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
    from aiconfigurator_core import AicEngine  # pyright: ignore[reportMissingImports]
    from aiconfigurator_core.sdk import compile_engine  # pyright: ignore[reportMissingImports]

    moe = bool({"num_experts", "n_routed_experts", "num_local_experts"} & set(request.config))
    with TemporaryDirectory(prefix="mopt-tables-") as place:
        Path(place, "config.json").write_text(json.dumps(dict(request.config), default=str))
        spec = compile_engine(
            place,
            request.system,
            ENGINES[request.engine],
            request.version,
            tp_size=request.tensor_parallel,
            moe_tp_size=request.tensor_parallel if moe else None,
            moe_ep_size=1 if moe else None,
            gemm_quant_mode=request.gemm_mode,
            moe_quant_mode=request.moe_mode,
            kvcache_quant_mode=request.kv_mode,
        )
        return AicEngine.from_spec(bytes(spec))


@dataclass(frozen=True, slots=True)
class _Step:
    """Milliseconds of a decode step: the output head, attention, and everything else; the measured share."""

    rest: float
    head: float
    attention: float
    measured: float


def _decode(engine: Any, sequences: int, context: int) -> _Step:
    ops = engine.decode_step_per_op(sequences, context, 2)
    attention = sum(op[1] for op in ops if "attention" in op[0])
    head = sum(op[1] for op in ops if "logits" in op[0])
    whole = sum(op[1] for op in ops)
    measured = sum(op[1] for op in ops if op[3] == "silicon")
    return _Step(whole - attention - head, head, attention, measured / whole if whole else 0.0)


def _prefill_attention(engine: Any, length: int) -> tuple[float, float]:
    """(once a step, for each prompt) of this length, from one prompt and from several."""
    several = max(2, min(8, 32768 // length))
    one, many = (_context_attention(engine, count, length) for count in (1, several))
    each = max((many - one) / (several - 1), 0.0)
    return max(one - each, 0.0), each


def _context_attention(engine: Any, count: int, length: int) -> float:
    ops, _ = engine.run_static_per_op(count, 1, length, 2, 0, 1.0, 1.0, "static", 32)
    return sum(op[1] for op in ops if "attention" in op[0])
