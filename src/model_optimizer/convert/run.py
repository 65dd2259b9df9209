"""The stage: another format, and where it is asked for another precision, down to an engine.

found = prepare(order, asked, kit)              what will be done and what it takes; nothing is written
carry_out(found, out, run, progress)            do it
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from model_optimizer.core import Artifact, ModelSpec, Progress, RunWorker, Scheme, UsageError, paths
from model_optimizer.core.paths import Chain, Order, Work, chains, choose
from model_optimizer.core.protocols import Tool
from model_optimizer.facts import engine_limits
from model_optimizer.system import onnx_files, onnx_header
from model_optimizer.system.making import Bench, follow

from . import _chain
from ._engine import Choices, Configured, graph_facts, profiles_for, require_targets
from ._profiles import Asked, Profile, derive, parse, require_holds, require_sizes

__all__ = [
    "Asked", "Choices", "Conversion", "Kit", "Profile", "Wish", "carry_out", "convert", "derive",
    "graph_facts", "onnx_source", "parse", "plan", "prepare", "targets",
]  # fmt: skip

WIDEST = "fp32"
GRAPHS = ("onnx_typed", "onnx_file")
"""What says itself what it computes in."""

ENGINE_DEFAULT = "fp16"
"""What engines are built in where no scheme is named: the narrowest that needs no data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """What discovery found, by name."""

    tools: Mapping[str, Tool]
    schemes: Mapping[str, Scheme]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a user says of a conversion. `texts` and `images` calibrate; `rest` is what is not quantized."""

    build: Choices = field(default_factory=Choices)
    texts: tuple[str, ...] = ()
    images: Path | None = None
    steps: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What will be done. `tools` have the choices in them; `steps` is where links between are kept."""

    work: Work
    tools: Mapping[str, Tool]
    schemes: Mapping[str, Scheme]
    steps: Path | None = None


def plan(order: Order, tools: Mapping[str, Tool], *, scheme: str | None = None) -> Chain:
    """The tools that make one of the order's formats: in `scheme`, else in the source's, else in 32 bits.

    Raises UsageError with what can be made instead.
    """
    if scheme is None:
        kept = replace(order, scheme=order.source.scheme)
        scheme = kept.scheme if chains(kept, tools) else WIDEST
    return choose(replace(order, scheme=scheme), tools)


def convert(chain: Chain, source: Artifact, out: Path, bench: Bench, progress: Progress) -> Artifact:
    """Carry out what was planned. Raises ToolError, and HostError when the disk is full."""
    return follow(chain, source, out, bench, progress)


def targets(tools: Mapping[str, Tool]) -> dict[str, tuple[str, ...]]:
    """Names of engines that files are built for, with the formats of those files."""
    found: dict[str, tuple[str, ...]] = {}
    for tool in tools.values():
        name = getattr(tool, "TARGET", None)
        if name:
            found[name] = tuple(sorted(set(tool.WRITES.values())))
    return found


def prepare(order: Order, wish: Wish, kit: Kit, *, scheme: str | None = None) -> Conversion:
    """Settle everything before the first byte. `order.scheme` counts where `scheme` is None and fits.

    Raises UsageError for what cannot be made, with what can be made instead.
    """
    engine = _builds(order, kit.tools)
    if engine and scheme is None:
        scheme = order.source.scheme if order.source.format in GRAPHS else ENGINE_DEFAULT
    chain = _planned(order, kit.tools, scheme)
    notes: tuple[str, ...] = ()
    if engine:
        notes = _require_buildable(order, chain, wish)
    tools = {name: _configured(name, tool, wish) for name, tool in kit.tools.items()}
    work = Work(
        chain=chain,
        source=order.source,
        needs=paths.needs(chain, order.model, tools, kit.schemes),
        notes=notes,
    )
    return Conversion(work=work, tools=tools, schemes=kit.schemes, steps=wish.steps)


def carry_out(found: Conversion, out: Path, run: RunWorker, progress: Progress) -> Artifact:
    """Do what was prepared, and leave chain.json and reproduce.py in what is made. Raises ToolError,
    HostError.
    """
    bench = Bench(tools=found.tools, schemes=found.schemes, run=run)
    return _chain.follow(found.work.chain, found.work.source, out, bench, progress, steps=found.steps)


def onnx_source(path: Path) -> tuple[ModelSpec, Artifact]:
    """A bare .onnx file as a model, by what it says of itself: its weights are in what most of them are in.

    Its digest covers its weights, also where they lie beside it. Raises UsageError for what is no ONNX file,
    or not whole.
    """
    if not path.is_file():
        raise UsageError(
            f"there is no file `{path}`", hint=("name a folder with config.json, or an .onnx file",)
        )
    header = onnx_header.read(path)
    count = max(1, header.parameters)
    spec = ModelSpec(
        name=path.stem, path=str(path), architecture="onnx", model_type="onnx", task="vision",
        parameters=count, active_parameters=count, embedding_parameters=0, parameters_source="header",
        layers=0, hidden_size=0, intermediate_size=0, vocab_size=0, heads=0, kv_heads=0, head_dim=0,
        attention="none", groups=(), provenance=path.name,
    )  # fmt: skip
    made = Artifact(
        path=str(path.absolute()),
        format="onnx_file",
        scheme=header.scheme,
        task="vision",
        bytes=onnx_files.size_bytes(path, header),
        digest=onnx_files.content_digest(path, header),
    )
    return spec, made


def _planned(order: Order, tools: Mapping[str, Tool], scheme: str | None) -> Chain:
    """The formats of an order are tried in their order, so that the one an engine likes best is made."""
    for form in order.formats[:-1]:
        first = replace(order, formats=(form,))
        wanted = scheme or first.source.scheme
        for name in dict.fromkeys((wanted, scheme or WIDEST)):
            if any(chains(replace(first, scheme=name), tools)):
                return plan(first, tools, scheme=name)
    return plan(order, tools, scheme=scheme)


def _builds(order: Order, tools: Mapping[str, Tool]) -> bool:
    built = {form for forms in targets(tools).values() for form in forms}
    return bool(built & set(order.formats))


def _require_buildable(order: Order, chain: Chain, wish: Wish) -> tuple[str, ...]:
    """What contradicts the scheme or the load is refused before anything is made."""
    last, build = chain[-1], wish.build
    if last.format == "tensorrt_rtx_engine":
        require_targets(build.capabilities, last.scheme)
        if build.hardware_compatible or build.version_compatible:
            raise UsageError(
                "TensorRT for RTX has neither hardware nor version compatibility",
                hint=("name the GPUs with --compute-capability; build again for another version",),
            )
        if build.strip_weights:
            raise UsageError(
                "engines without weights are built where the GPU is",
                cause=("TensorRT for RTX needs a GPU for it while building",),
                hint=("leave --strip-weights out", "or take --weight-streaming"),
            )
    elif build.capabilities:
        raise UsageError(
            "TensorRT builds for the GPU of the machine that it runs on",
            hint=("leave --compute-capability out, or take --to tensorrt-rtx",),
        )
    _require_readable(order, last.format, build)
    longest = order.model.max_position
    if not build.profiles and build.asked.lengths is not None:
        derive(("batch", "sequence"), replace(build.asked, longest=longest))
    require_holds(build.profiles, build.asked.lengths, build.asked.at_once)
    _require_taken(build.profiles, longest)
    if order.model.task == "generate":
        return (
            "this is the prefill of a decoder, one step without a KV cache; to generate tokens on a "
            "data-centre GPU take vLLM or TensorRT-LLM's PyTorch backend: they keep the cache, add "
            "requests to a running batch, and hand out memory in pages",
        )
    return ()


def _require_readable(order: Order, form: str, build: Choices) -> None:
    """A graph that is there already says its opset and its sizes. Raises UsageError."""
    path = Path(order.source.path)
    path = path if path.is_file() else path / "model.onnx"
    if order.source.format not in (*GRAPHS, "onnx") or not path.is_file():
        return
    header = onnx_header.read(path)
    onnx_files.beside(path, header)
    newest = engine_limits.limits("tensorrt_rtx").opset_to if form == "tensorrt_rtx_engine" else None
    if newest and header.opset > newest:
        raise UsageError(
            f"the graph is of opset {header.opset}, TensorRT for RTX reads up to {newest}",
            hint=(f"export it with opset {newest} or lower; `mopt convert MODEL` takes one that fits",),
            reference="opset-too-new",
        )
    free = tuple(dict.fromkeys(d for s in header.inputs.values() for d in s if isinstance(d, str)))
    require_sizes(header.inputs, build.profiles or profiles_for(Path(order.source.path), free, build))


def _require_taken(profiles: tuple[Profile, ...], longest: int | None) -> None:
    """A profile that is longer than the model's table of positions would read beyond it."""
    for profile in profiles:
        end = profile.axes.get("sequence", (0, 0, 0))[2]
        if longest and end > longest:
            raise UsageError(
                "the profile is longer than the model",
                cause=(f"sequence ends at {end:,}, the model takes {longest:,} tokens",),
                hint=(f"end it at {longest} or less: --profile sequence=1:...:{longest},...",),
                reference="profile",
            )


def _configured(name: str, tool: Tool, wish: Wish) -> Tool:
    """The tool with what was wished for, where it takes a wish."""
    import inspect

    takes = inspect.signature(tool.make).parameters
    given: dict[str, Any] = {
        "choices": wish.build,
        "texts": wish.texts,
        "images": wish.images,
    }
    options = {key: value for key, value in given.items() if key in takes and value}
    return cast("Tool", Configured(tool=cast("Any", tool), options=options)) if options else tool
