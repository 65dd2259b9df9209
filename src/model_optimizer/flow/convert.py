"""Conversion as a user asks for it: discovery, what to calibrate with, and the stage."""

from dataclasses import replace
from pathlib import Path

from model_optimizer.convert import run as converting
from model_optimizer.convert.run import Conversion, Kit, Wish
from model_optimizer.core import Artifact, HostError, ModelSpec, Progress, ToolError, UsageError, plugins
from model_optimizer.core.paths import Order
from model_optimizer.system import environments, files, making, models, probe
from model_optimizer.verify import operators, texts

CALIBRATED = {"int8", "fp8"}
TEXTS = 64
OF_INPUT = frozenset(
    {
        "already-converted", "broken-artifact", "capability-unsupported", "external-data-missing",
        "no-profile", "not-finite", "nothing-quantized", "opset-too-new", "opset-too-old", "option-unknown",
        "pickle", "profile-refused", "type-unknown", "unsupported-operator",
    }
)  # fmt: skip
"""What workers find wrong in what they were given: wrong usage, and no tool that failed."""
OF_GRAPH = OF_INPUT | {"onnx-not-parsed", "graph-failed"}
"""The same where the graph is the user's own, and was not exported here."""
TYPED = "onnx_typed"
ROOMS = ("model_optimizer.convert", "model_optimizer.quantize")


def prepare(
    model: str, wish: Wish, *, to: str, scheme: str | None, texts_file: Path | None = None
) -> Conversion:
    """What it takes to convert a model, an ONNX folder or an .onnx file. Nothing is written. Raises
    UsageError.
    """
    kit = _kit()
    name = plugins.load("model_optimizer.schemes", scheme).SCHEME.name if scheme else None
    spec, source = _source(model)
    formats = _formats(to, name, kit)
    if spec.task in ("embed", "rerank", "generate"):
        wish = replace(wish, texts=_texts(spec, texts_file))
    order = Order(model=spec, source=source, scheme=name or "fp32", formats=formats)
    return converting.prepare(order, wish, kit, scheme=name)


def convert(found: Conversion, out: Path, *, progress: Progress) -> Artifact:
    """Do what `prepare` settled. `out` appears when it is whole. Raises UsageError, HostError, ToolError."""
    source = found.work.source
    making.require_new(out, source)
    if found.steps is not None:
        making.require_new(found.steps, source)
        _require_apart(out, found.steps)
    _require_builder(found)
    making.require_room(found.work.needs, out, probe.available_memory_bytes())
    # What the last step needs is missed before the first one begins.
    for name in dict.fromkeys(found.tools[hop.tool].ENVIRONMENT for hop in reversed(found.work.chain)):
        environments.ensure(name, progress=progress)
    try:
        return converting.carry_out(found, out, environments.run_worker, progress)
    except ToolError as error:
        if error.reference not in (OF_GRAPH if source.format == "onnx_file" else OF_INPUT):
            raise
        raise UsageError(
            error.message, cause=error.cause, hint=error.hint, reference=error.reference
        ) from error


def _require_apart(out: Path, steps: Path) -> None:
    """What is made appears as a whole; what lies between is written while it is made."""
    one, other = out.absolute().resolve(), steps.absolute().resolve()
    if one.is_relative_to(other) or other.is_relative_to(one):
        raise UsageError(
            f"`{steps}` (--steps) and `{out}` (--out) lie in each other",
            hint=("name two folders beside each other",),
        )


def _require_builder(found: Conversion) -> None:
    """TensorRT times its kernels on the GPU that will run them. Raises HostError where none is here."""
    if found.work.chain[-1].format != "tensorrt_engine" or probe.probe().gpus != ():
        return
    raise HostError(
        "TensorRT builds an engine on the GPU that will run it, and there is none here",
        hint=(
            "convert where the GPU is; the graph can be made here: --to onnx",
            "or build for GeForce and RTX cards without a GPU: --to tensorrt-rtx",
        ),
        reference="no-gpu",
    )


def _kit() -> Kit:
    tools = {
        name: module for room in ROOMS for name, module in plugins.load_all(room).items() if name != "run"
    }
    schemes = {name: module.SCHEME for name, module in plugins.load_all("model_optimizer.schemes").items()}
    return Kit(tools=tools, schemes=schemes)


def _source(model: str) -> tuple[ModelSpec, Artifact]:
    path = files.expanded(model)
    if path.suffix.lower() == ".onnx":
        return converting.onnx_source(path)
    if path.suffix.lower() in (".pt", ".pth", ".bin", ".pkl", ".ckpt"):
        raise UsageError(
            f"`{path.name}` is a pickle, which can run any code when it is opened",
            hint=(
                "save the weights as safetensors, with a config.json beside them",
                "or name the .onnx file that the model's own exporter writes: `mopt convert net.onnx`",
            ),
            reference="pickle",
        )
    if operators.engines.file_of(path) is not None and not (path / "model.onnx").is_file():
        raise UsageError(
            f"`{path.name}` is a built engine: nothing is converted from one",
            cause=("an engine is for one library version and its GPUs, and holds no graph to read",),
            hint=("convert the model or the graph again; `mopt convert ... --steps DIR` keeps the graph",),
            reference="engine-as-source",
        )
    if path.is_dir() and (path / "model.onnx").is_file() and (path / "mopt.json").is_file():
        return _made(path)
    _require_checkpoint(path)
    spec = models.read(model)
    return spec, models.checkpoint_artifact(spec)


def _require_checkpoint(path: Path) -> None:
    """A folder with graphs alone, as other exporters write it, is named by its graph. Raises UsageError."""
    if not path.is_dir() or next(path.glob("*.safetensors"), None):
        return
    graphs = sorted(
        file.relative_to(path).as_posix() for where in (".", "onnx") for file in path.glob(f"{where}/*.onnx")
    )
    if graphs:
        raise UsageError(
            f"`{path}` holds ONNX graphs, and no checkpoint",
            cause=(f"{', '.join(graphs[:6])}{' ...' if len(graphs) > 6 else ''}; no .safetensors",),
            hint=(f"name the graph: mopt convert {path / graphs[0]}",),
            reference="model-is-a-graph",
        )


def _made(path: Path) -> tuple[ModelSpec, Artifact]:
    """A folder that `mopt convert --to onnx` made, as the source of further steps."""
    import msgspec

    from model_optimizer.core import digest

    facts = msgspec.json.decode((path / "mopt.json").read_bytes())
    scheme = str(facts.get("scheme", "fp32"))
    spec = models.read(str(path)) if (path / "config.json").is_file() else None
    if spec is None:
        spec, _artifact = converting.onnx_source(path / "model.onnx")
    spec = replace(spec, task=facts.get("task", spec.task))
    made = Artifact(
        path=str(path.absolute()),
        format="onnx" if scheme == "fp32" else "onnx_typed",
        scheme=scheme,
        task=spec.task,
        bytes=sum(p.stat().st_size for p in path.rglob("*") if p.is_file()),
        digest=digest.of_path(path),
    )
    return spec, made


def _formats(to: str, scheme: str | None, kit: Kit) -> tuple[str, ...]:
    """What files an engine takes, or a format by its name, the best first. Raises UsageError.

    An engine that reads graphs takes those with types of their own too, in the schemes that it computes.
    """
    name = plugins.canonical(to)
    built = converting.targets(kit.tools)
    if name in built:
        return built[name]
    if name in plugins.names("model_optimizer.engines"):
        reads = plugins.load("model_optimizer.engines", name).READS
        typed = (TYPED,) if scheme in reads.get("onnx", ()) and scheme != "fp32" else ()
        return (*reads, *typed)
    known = sorted({form for tool in kit.tools.values() for form in tool.WRITES.values()})
    if name in known:
        return (name,)
    raise UsageError(
        f"`{to}` is neither a format nor an engine",
        hint=(f"formats: {', '.join(known)}", f"engines: {', '.join(sorted(built))}, onnxruntime"),
    )


def _texts(spec: ModelSpec, file: Path | None) -> tuple[str, ...]:
    found = texts.read(file) if file else texts.builtin()
    groups = found.groups(spec.task)
    return tuple(group[0].text for group in groups[:TEXTS])
