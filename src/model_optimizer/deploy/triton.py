"""A model repository of Triton: the graph or engine, and a config.pbtxt that matches it."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from model_optimizer.core import UsageError
from model_optimizer.core.profiles import require_held
from model_optimizer.facts.engine_portability import BuiltFor, device_conflict, version_conflict
from model_optimizer.system import files

TITLE = "Triton Inference Server"
TYPES = {
    "tensor(int64)": "TYPE_INT64", "tensor(int32)": "TYPE_INT32", "tensor(float)": "TYPE_FP32",
    "tensor(float16)": "TYPE_FP16", "tensor(bool)": "TYPE_BOOL",
    "Int64": "TYPE_INT64", "Int32": "TYPE_INT32", "Float": "TYPE_FP32", "Half": "TYPE_FP16",
    "BFloat16": "TYPE_BF16", "Bool": "TYPE_BOOL", "Int8": "TYPE_INT8", "UInt8": "TYPE_UINT8",
}  # fmt: skip
DEFAULT_BATCH = 32
QUEUE_MICROSECONDS = 2000
"""How long a request may wait for others. ASSUMED: a fifth of a usual limit of 10 ms for a vector."""
LARGEST_FACTS = 8 << 20
GRAPH = "or deploy the ONNX graph that it was made from"


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """An input or output: its name, its type in the words of its library, its shape with names or -1."""

    name: str
    type: str
    shape: tuple[int | str | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """The part of mopt.json that an engine folder has."""

    file: str
    library: str
    version: str
    compute_capabilities: tuple[str, ...] = ()
    device: str | None = None
    version_compatible: bool = False
    hardware_compatible: bool = False
    profiles: tuple[dict[str, tuple[int, int, int]], ...] = ()

    @property
    def runs(self) -> BuiltFor:
        """Where it runs."""
        return BuiltFor(
            library=self.library,
            version=self.version,
            compute_capabilities=self.compute_capabilities,
            device=self.device,
            version_compatible=self.version_compatible,
            hardware_compatible=self.hardware_compatible,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the repository will run, as far as it is known: a GPU, and the version of TensorRT."""

    gpu: str | None = None
    compute_capability: tuple[int, int] | None = None
    tensorrt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is read of mopt.json."""

    task: str
    scheme: str
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    max_tokens: int | None = None
    engine: EngineFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """`name` is what requests call the model, `device` cpu or gpu, `instances` how many run at once.

    `longest` is the most tokens that a request will have, None where nobody said.
    """

    name: str | None = None
    device: str = "gpu"
    instances: int = 1
    max_batch: int | None = None
    longest: int | None = None
    place: Place = field(default_factory=Place)
    queue_microseconds: int = field(default=QUEUE_MICROSECONDS)


def write(artifact: Path, out: Path, wish: Wish) -> Path:
    """Make the repository `out` whole or not at all. Returns the model's folder. Raises UsageError."""
    facts = read_facts(artifact)
    name = wish.name or artifact.resolve().name
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise UsageError(f"`{name}` is no name for a model", hint=("use letters, digits, `-`, `_` and `.`",))
    source, target = _files(artifact, facts)
    if facts.engine is not None:
        _require_runs(artifact, facts.engine, wish)
    with files.building(out) as folder:
        place = folder / name / "1"
        place.mkdir(parents=True)
        for path, called in zip(source, target, strict=True):
            _link(path, place / called)
        (folder / name / "config.pbtxt").write_text(config(facts, name, wish), encoding="utf-8")
        (folder / "README.md").write_text(_readme(facts, name, wish), encoding="utf-8")
    return out / name


def read_facts(artifact: Path) -> Facts:
    """The mopt.json of an artefact folder. Raises UsageError when it holds none."""
    path = artifact / "mopt.json"
    try:
        content = path.read_bytes()[:LARGEST_FACTS]
        return msgspec.json.decode(content, type=Facts)
    except OSError as error:
        raise UsageError(
            f"`{artifact}` is no artefact of `mopt convert`",
            cause=(f"{path.name}: {error.strerror}",),
            hint=("make one with `mopt convert MODEL --to onnx`, or --to tensorrt",),
        ) from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"`{path}` cannot be read", cause=(str(error),)) from error


def config(facts: Facts, name: str, wish: Wish) -> str:
    """The text of config.pbtxt. Shapes leave the batch out, as Triton wants them where it batches."""
    batch = _largest_batch(facts, wish)
    backend = 'platform: "tensorrt_plan"' if facts.engine else 'platform: "onnxruntime_onnx"'
    lines = [f'name: "{name}"', backend, f"max_batch_size: {batch}"]
    lines += [_values("input", facts.inputs), _values("output", facts.outputs)]
    preferred = sorted({best for best in _best_batches(facts) if 1 < best <= batch})
    prefer = f"  preferred_batch_size: [ {', '.join(map(str, preferred))} ]\n" if preferred else ""
    lines.append(
        f"dynamic_batching {{\n{prefer}  max_queue_delay_microseconds: {wish.queue_microseconds}\n}}"
    )
    kind = "KIND_CPU" if wish.device == "cpu" else "KIND_GPU"
    profiles = ", ".join(f'"{n}"' for n in range(len(facts.engine.profiles))) if facts.engine else ""
    profile = f"\n    profile: [ {profiles} ]" if profiles else ""
    lines.append(f"instance_group [\n  {{\n    count: {wish.instances}\n    kind: {kind}{profile}\n  }}\n]")
    return "\n".join(lines) + "\n"


def _values(word: str, values: Sequence[Value]) -> str:
    entries: list[str] = []
    for value in values:
        if value.type not in TYPES:
            raise UsageError(f"Triton has no type for `{value.name}` ({value.type})")
        dims = ", ".join(str(d) if isinstance(d, int) and d >= 0 else "-1" for d in value.shape[1:])
        entries.append(
            f'  {{\n    name: "{value.name}"\n    data_type: {TYPES[value.type]}\n    dims: [ {dims} ]\n  }}'
        )
    return f"{word} [\n" + ",\n".join(entries) + "\n]"


def _require_runs(artifact: Path, engine: EngineFacts, wish: Wish) -> None:
    """Refuse an engine that its target cannot run, or whose profiles do not hold what will be asked."""
    place = wish.place
    if wish.device == "cpu":
        raise UsageError(
            f"`{artifact.name}` is an engine, which runs on a GPU",
            hint=("leave --device out, or deploy the ONNX graph",),
            reference="engine-of-another-device",
        )
    have = (place.compute_capability,) if place.compute_capability else ()
    if because := device_conflict(engine.runs, have):
        number = ".".join(map(str, place.compute_capability or ()))
        raise UsageError(
            f"the engine in `{artifact.name}` does not run on {place.gpu}",
            cause=(because, f"{place.gpu} has {number}"),
            hint=("build it on a machine with that GPU", "or with --hardware-compatible", GRAPH),
            reference="engine-of-another-device",
        )
    if place.tensorrt and (because := version_conflict(engine.runs, place.tensorrt)):
        raise UsageError(
            f"the engine is of TensorRT {engine.version}, {place.tensorrt} will run it",
            cause=(because,),
            hint=(
                f"take an image of Triton with TensorRT {engine.version}",
                f"or build it again with TensorRT {place.tensorrt}, or with --version-compatible",
                GRAPH,
            ),
            reference="engine-of-another-version",
        )
    require_held(
        engine.profiles,
        {"sequence": wish.longest},
        ("ask for less, or build it again with a larger --prompt-tokens or --profile",),
    )


def _largest_batch(facts: Facts, wish: Wish) -> int:
    """What every profile of an engine holds; a graph holds any."""
    held = [p["batch"][2] for p in facts.engine.profiles if "batch" in p] if facts.engine else []
    most = min(held, default=None)
    asked = wish.max_batch or most or DEFAULT_BATCH
    if most is not None and asked > most:
        raise UsageError(
            f"the engine holds batches up to {most}, {asked} were asked for",
            hint=("build it with a larger --concurrency",),
            reference="profile",
        )
    return asked


def _best_batches(facts: Facts) -> list[int]:
    if facts.engine is None:
        return []
    return [p["batch"][1] for p in facts.engine.profiles if "batch" in p]


def _files(artifact: Path, facts: Facts) -> tuple[list[Path], list[str]]:
    """What the repository holds, and as what."""
    if facts.engine is not None:
        if facts.engine.library != "tensorrt":
            raise UsageError(
                "Triton's TensorRT backend cannot load engines of TensorRT for RTX",
                cause=(f"`{facts.engine.file}` was built by {facts.engine.library} {facts.engine.version}",),
                hint=("deploy the ONNX graph instead, or build with --to tensorrt on the GPU's machine",),
                reference="engine-of-another-library",
            )
        found, names = [artifact / facts.engine.file], ["model.plan"]
    else:
        found = [path for path in (artifact / "model.onnx", artifact / "model.onnx.data") if path.is_file()]
        names = [path.name for path in found]
    if not found or not found[0].is_file():
        raise UsageError(f"`{artifact}` holds no model", hint=("make it again with `mopt convert`",))
    return found, names


def _link(path: Path, target: Path) -> None:
    """The same bytes: linked where both are on one disk, else copied."""
    try:
        os.link(path.resolve(), target)
    except OSError:
        shutil.copyfile(path, target)


def _readme(facts: Facts, name: str, wish: Wish) -> str:
    gpu = "" if wish.device == "cpu" else "--gpus all "
    tokens = any("sequence" in value.shape or value.name == "input_ids" for value in facts.inputs)
    said = [
        f"# {name}",
        "",
        f"A {facts.task} model in {facts.scheme}, made by `mopt deploy --to triton`. Start it with an "
        "image of Triton that holds its backend (RELEASE is the one that you use):",
        "",
        "```text",
        f"docker run --rm {gpu}-p 127.0.0.1:8000:8000 -v $PWD:/models:ro \\",
        "  nvcr.io/nvidia/tritonserver:RELEASE-py3 tritonserver --model-repository=/models",
        "```",
    ]
    if tokens:
        said += [
            "",
            "Triton batches requests of one shape: pad token ids to a few lengths (32, 64, 128 ...) so that "
            "requests meet. The tokenizer is not part of the repository.",
        ]
    if facts.engine:
        said += ["", f"The engine {_runs_where(facts.engine)}."]
    return "\n".join(said) + "\n"


def _runs_where(engine: EngineFacts) -> str:
    """`runs with TensorRT 11.4.0, on GPUs of compute capability 8.9 (built on NVIDIA L4)`."""
    later = " or a later version that runs its kind" if engine.version_compatible else " and no other version"
    bound = ", ".join(engine.compute_capabilities)
    where = f"GPUs of compute capability {bound}" if bound else "the GPU it was built on, nowhere else"
    if engine.hardware_compatible:
        where = "GPUs of compute capability 8.0 or later"
    built = f" (built on {engine.device})" if engine.device else ""
    return f"runs with TensorRT {engine.version}{later}, on {where}{built}"
