"""Build an engine from ONNX with TensorRT for RTX or TensorRT, and prove what it computes in.

Request: `source` (folder with model.onnx and mopt.json, or an .onnx file), `out` (an empty folder), `scheme`,
`flavour` (rtx or tensorrt), `capabilities` (as "8.9"; rtx only, a TensorRT engine is for the GPU it is built
on), `profiles` (a list of {dimension: [min, opt, max]}), `opset_limit`, `workspace_bytes`,
`weight_streaming`, `strip_weights`, `version_compatible`, `hardware_compatible`, `optimization_level`,
`cache` (folder of timing caches), `allow_wrong_precision` (keep an engine that is not what was asked; for
tests of the proof).

`out` gets model.engine, mopt.json (what a server must know), content.json (the proof) and build.log. Result:
{versions, notes, content}. A build that is stopped (SIGTERM) ends at the builder's next step.
"""

import gzip
import importlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parent))
from _checkpoint import TOKENIZER_FILES, copy_files
from _contract import blame, fail, main, progress
from _engine_content import EngineLayer, Network, judge, layers_of_inspector, layers_of_log
from _onnx_file import check_onnx, refuse_operators

MODULES = {
    "rtx": ("tensorrt_rtx", "tensorrt_rtx_bindings"),
    "tensorrt": ("tensorrt", "tensorrt_bindings"),
}
TITLES = {"rtx": "TensorRT for RTX", "tensorrt": "TensorRT"}
WEIGHTED = ("CONVOLUTION", "DECONVOLUTION")
PRODUCTS = ("MATRIX_MULTIPLY", "CONVOLUTION", "DECONVOLUTION", "ATTENTION_INPUT", "ATTENTION")
OF_ENUM = {
    "FLOAT": "Float", "HALF": "Half", "BF16": "BFloat16", "INT8": "Int8", "FP8": "FP8", "FP4": "FP4",
    "INT4": "Int4", "INT32": "Int32", "INT64": "Int64", "BOOL": "Bool", "UINT8": "UInt8", "E8M0": "E8M0",
}  # fmt: skip
CAPABILITY = (75, 76)
"""The driver's numbers of the attributes that are the two parts of a compute capability."""
OF_LINK = (
    "library", "version", "compute_capabilities", "device", "built_on", "hardware_compatible",
    "version_compatible", "profiles",
)  # fmt: skip
"""What the chain of links says of an engine."""
STOP_GRACE_S = 20.0
ENGINE = "model.engine"


class Device(NamedTuple):
    """A GPU: its name, and its compute capability as `8.9`."""

    name: str
    capability: str


class Stop:
    """Whether the build was asked to end. The builder asks at each of its steps."""

    def __init__(self) -> None:
        self.asked = False
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._ask)
            signal.signal(signal.SIGINT, self._ask)

    def _ask(self, _signal: int, _frame: object) -> None:
        self.asked = True
        # A step that never ends is not waited for: nothing has been written yet.
        threading.Timer(STOP_GRACE_S, os._exit, (143,)).start()


def job(request: dict[str, Any]) -> dict[str, Any]:
    stop = Stop()
    trt = load_library(request["flavour"])
    source, out = Path(request["source"]), Path(request["out"])
    path = source if source.is_file() else source / "model.onnx"
    progress("reading the graph", 0.0)
    graph = check_onnx(path, opset_limit=request.get("opset_limit"), what=TITLES[request["flavour"]])
    log = Log(trt)
    builder, network = new_network(trt, log)
    parser = parse(trt, network, log, path)
    config = configure(trt, builder, network, request)
    add_profiles(trt, builder, network, config, request["profiles"], graph)
    device = None if request["flavour"] == "rtx" else current_device()
    cache = timing_cache(trt, config, request, device)
    before = census(trt, network)
    began = time.monotonic()
    config.progress_monitor = monitor = new_monitor(trt, stop)
    plan = builder.build_serialized_network(network, config)
    if stop.asked:
        fail("stopped", "the build was stopped", ["nothing was written"])
    if plan is None:
        explain(trt, log, request)
    seconds = time.monotonic() - began
    progress("proving what the engine holds", 0.95)
    found = prove(trt, log, before, plan, request)
    built = built_for(trt, request, device)
    write(out, source, plan, log, found, request, network, built)
    save_cache(config, cache)
    del monitor, parser, network
    return {
        "versions": {TITLES[request["flavour"]]: trt.__version__},
        "engine": {name: built[name] for name in OF_LINK},
        "content": found,
        "seconds": round(seconds, 2),
        "notes": notes(found, request, built, seconds),
    }


def load_library(flavour: str) -> Any:
    errors: list[str] = []
    found = None
    for name in MODULES[flavour]:
        try:
            found = found or importlib.import_module(name)
        except (ImportError, OSError) as error:
            errors.append(f"{name}: {error}")
    if found is not None:
        return found
    return fail("import-failed", f"{TITLES[flavour]} cannot be imported", errors)


def Log(trt: Any) -> Any:
    class Kept(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.said: list[tuple[Any, str]] = []

        # Called thousands of times while building: whatever can wait is done afterwards.
        def log(self, severity: Any, msg: str) -> None:
            self.said.append((severity, msg))

        @property
        def lines(self) -> list[str]:
            return [text for _severity, text in self.said]

        @property
        def errors(self) -> list[str]:
            worst = (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR)
            return [text for severity, text in self.said if severity in worst]

    return Kept()


def new_network(trt: Any, log: Any) -> tuple[Any, Any]:
    """Strongly typed: the graph decides the precision. TensorRT 11 and RTX know nothing else."""
    builder = trt.Builder(log)
    flags = 0
    strong = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    if strong is not None:
        flags = 1 << int(strong)
    return builder, builder.create_network(flags)


def parse(trt: Any, network: Any, log: Any, path: Path) -> Any:
    """Read the graph; every operator that is not supported is named with the modules it came from."""
    parser = trt.OnnxParser(network, log)
    if parser.parse_from_file(str(path)):
        return parser
    refused: dict[str, list[str]] = {}
    other: list[str] = []
    for number in range(parser.num_errors):
        error = parser.get_error(number)
        operator = getattr(error, "node_operator", lambda: "")()
        named = getattr(error, "node_name", lambda: "")()
        # An operator that the parser does not know is looked for among plug-ins.
        unknown = "UNSUPPORTED" in str(error.code()) or "Plugin not found" in str(error.desc())
        if operator and unknown:
            refused.setdefault(operator, []).append(named)
        else:
            other.append(" ".join(str(error.desc()).split())[:300])
    if refused:
        refuse_operators(path, refused, other)
    return fail(
        "onnx-not-parsed",
        f"`{path.name}` cannot be read by {trt.__name__.partition('_bindings')[0]} {trt.__version__}",
        other[:6] or ["the parser said nothing more"],
        ["`mopt convert MODEL --to onnx` makes graphs that can be read"],
    )


def configure(trt: Any, builder: Any, network: Any, request: Mapping[str, Any]) -> Any:
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if limit := request.get("workspace_bytes"):
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, int(limit))
    if (level := request.get("optimization_level")) is not None:
        config.builder_optimization_level = int(level)
    flags = {
        "weight_streaming": "WEIGHT_STREAMING",
        "strip_weights": "STRIP_PLAN",
        "version_compatible": "VERSION_COMPATIBLE",
    }
    for name, flag in flags.items():
        if request.get(name):
            if not hasattr(trt.BuilderFlag, flag):
                fail("option-unknown", f"{trt.__name__} {trt.__version__} does not know {flag}")
            config.set_flag(getattr(trt.BuilderFlag, flag))
    if request.get("hardware_compatible"):
        if not hasattr(trt, "HardwareCompatibilityLevel"):
            fail(
                "option-unknown",
                f"{trt.__name__} has no hardware compatibility",
                hint=["name the GPUs instead"],
            )
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
    if request["flavour"] == "rtx":
        set_capabilities(trt, config, request["capabilities"])
    return config


def set_capabilities(trt: Any, config: Any, capabilities: Sequence[str]) -> None:
    config.num_compute_capabilities = len(capabilities)
    for place, text in enumerate(capabilities):
        target = getattr(trt.ComputeCapability, f"SM{text.replace('.', '')}", None)
        # It answers False for what it does not know, and raises nothing.
        if target is None or not config.set_compute_capability(target, place):
            known = sorted(name[2:] for name in dir(trt.ComputeCapability) if name.startswith("SM"))
            fail(
                "capability-unsupported",
                f"TensorRT for RTX {trt.__version__} builds nothing for compute capability {text}",
                [f"it knows {', '.join(f'{name[:-1]}.{name[-1]}' for name in known)}"],
                ["data-centre GPUs (9.0, 10.0) take TensorRT: --to tensorrt"],
            )


def add_profiles(
    trt: Any, builder: Any, network: Any, config: Any, profiles: Sequence[Mapping[str, Any]], graph: Any
) -> None:
    """One set of min, opt and max shapes a profile. A free dimension that none names is an error."""
    free = {d for shape in graph.inputs.values() for d in shape if isinstance(d, str)}
    for axes in profiles or ([{}] if free else []):
        missing = sorted(free - set(axes))
        if missing:
            fail(
                "no-profile",
                f"no sizes are given for the free dimensions {', '.join(missing)}",
                [f"{name}: {' x '.join(map(str, shape))}" for name, shape in graph.inputs.items()],
                [f"--profile {','.join(f'{name}=MIN:OPT:MAX' for name in missing)}"],
            )
        profile = builder.create_optimization_profile()
        for number in range(network.num_inputs):
            name = network.get_input(number).name
            shape = graph.inputs[name]
            if any(isinstance(d, str) for d in shape):
                profile.set_shape(
                    name, *(tuple(axes[d][k] if isinstance(d, str) else d for d in shape) for k in range(3))
                )
        if config.add_optimization_profile(profile) < 0:
            fail("profile-refused", "the sizes are no valid profile", [json.dumps(axes)])


def new_monitor(trt: Any, stop: Stop) -> Any:
    """The share of all steps of the outermost phase; inner ones say what is being done."""

    class Monitor(trt.IProgressMonitor):
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)
            self.steps: dict[str, int] = {}
            self.top: str | None = None
            self.done = 0.0

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            self.steps[phase_name] = max(1, num_steps)
            self.top = self.top or phase_name
            progress(f"building: {phase_name.lower()}", 0.1 + 0.85 * self.done)

        def step_complete(self, phase_name: str, step: int) -> bool:
            if phase_name == self.top:
                self.done = min(1.0, (step + 1) / self.steps[phase_name])
                progress(f"building: {phase_name.lower()}", 0.1 + 0.85 * self.done)
            return not stop.asked

        def phase_finish(self, phase_name: str) -> None:
            self.steps.pop(phase_name, None)

    return Monitor()


def census(trt: Any, network: Any) -> Network:
    """Layers, products and weights of the parsed network by number format."""
    heavy: Counter[str] = Counter()
    names: dict[str, list[str]] = {}
    weights: Counter[str] = Counter()
    quantized = 0
    for number in range(network.num_layers):
        layer = network.get_layer(number)
        kind = str(layer.type).rpartition(".")[2]
        if kind == "DEQUANTIZE":
            quantized += 1
        if kind in PRODUCTS:
            read = _format(layer.get_input(0).dtype)
            heavy[read] += 1
            names.setdefault(read, []).append(layer.name)
        if kind == "CONSTANT":
            out = layer.get_output(0)
            weights[_format(out.dtype)] += max(0, _volume(out.shape))
        elif kind in WEIGHTED:
            count, form = _kernel(trt, layer, kind)
            weights[form] += count
    return Network(
        layers=network.num_layers, heavy=heavy, heavy_names=names, weights=weights, quantized=quantized
    )


def _kernel(trt: Any, layer: Any, kind: str) -> tuple[int, str]:
    """Weights inside a convolution; none where they come from a layer before it."""
    layer.__class__ = trt.IConvolutionLayer if kind == "CONVOLUTION" else trt.IDeconvolutionLayer
    found = layer.kernel
    size = int(getattr(found, "size", 0))
    return size, _format(layer.get_output(0).dtype)


def _format(dtype: Any) -> str:
    word = str(dtype).rpartition(".")[2]
    return OF_ENUM.get(word, word)


def _volume(shape: Any) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def prove(trt: Any, log: Any, network: Network, plan: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    """Look into the engine where it can be opened, else into what the builder said; fail when it is wrong."""
    layers, evidence = inspect(trt, log, plan)
    if not layers:
        layers, evidence = layers_of_log(log.lines), "indirect"
    targets = len(request.get("capabilities") or ()) or 1
    found = judge(request["scheme"], network, layers, plan.nbytes, targets)
    target = "tensorrt-rtx" if request["flavour"] == "rtx" else "tensorrt"
    instead = (
        f"name the checkpoint: `mopt convert MODEL --to {target} --scheme {request['scheme']}` does both"
    )
    if found.wrong and not request.get("allow_wrong_precision"):
        fail(
            "wrong-precision",
            f"the engine is not in {request['scheme']}: it was thrown away",
            found.wrong,
            [
                "since TensorRT 11 the graph decides the precision, there is no flag for it: cast it first",
                instead,
            ],
        )
    how = {
        "inspector": "the engine was opened and its inspector read",
        "indirect": "no GPU that runs it is here: parsed network, verbose log of the builder, size",
    }[evidence]
    return {
        "schema": "engine_content/1",
        "evidence": evidence,
        "how": how,
        "holds_what_was_asked": not found.wrong,
        "wrong": list(found.wrong),
        "left_wider": list(found.left),
        **found.facts,
    }


def inspect(trt: Any, log: Any, plan: Any) -> tuple[list[EngineLayer], str]:
    """Through the inspector, which needs a GPU that takes the engine; nothing is tried without one."""
    if gpu_count() == 0:
        return [], "indirect"
    try:
        engine = trt.Runtime(log).deserialize_cuda_engine(plan)
        if engine is None:
            return [], "indirect"
        said = engine.create_engine_inspector().get_engine_information(trt.LayerInformationFormat.JSON)
        return layers_of_inspector(said), "inspector"
    except (RuntimeError, AttributeError, TypeError) as error:
        progress(f"the engine cannot be opened here ({error})")
        return [], "indirect"


def gpu_count() -> int:
    import ctypes

    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    return count.value if driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 else 0


def explain(trt: Any, log: Any, request: Mapping[str, Any]) -> None:
    """Why nothing was built: the builder's own words, and what is known to be behind them."""
    said = [" ".join(text.split())[:300] for text in log.errors]
    text = "\n".join(said)
    hints = {
        "FP32 GEMM is not supported": "compute capability 7.5 has no FP32 matrix product: take --scheme fp16",
        "not supported by a dedicated kernel": "attention in FP32 is built from opset 22 or lower",
        "kernel_gen": "stripped and refittable engines are built where the GPU is",
        "libnvinfer_lean": "version compatibility needs the lean runtime, which this package lacks",
        "memory": "give the builder more room: --workspace",
    }
    fail(
        "build-failed",
        f"{TITLES[request['flavour']]} {trt.__version__} built no engine",
        said[-6:] or ["the builder said nothing more"],
        [hint for words, hint in hints.items() if words in text]
        or ["`mopt diagnose` on these words may know more"],
    )


def timing_cache(
    trt: Any, config: Any, request: Mapping[str, Any], device: Device | None
) -> tuple[Path, Any] | None:
    """TensorRT's measured tactics, kept by version and device. RTX times nothing while building."""
    folder = request.get("cache")
    if request["flavour"] == "rtx" or not folder:
        return None
    plain = "".join(c if c.isalnum() else "-" for c in device.name) if device else "no-gpu"
    path = Path(folder) / f"tensorrt-{trt.__version__}-{plain}.timing"
    path.parent.mkdir(parents=True, exist_ok=True)
    cache = config.create_timing_cache(path.read_bytes() if path.is_file() else b"")
    config.set_timing_cache(cache, False)
    return path, cache


def save_cache(config: Any, cache: tuple[Path, Any] | None) -> None:
    if cache is None:
        return
    path, _held = cache
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    beside.write_bytes(bytes(config.get_timing_cache().serialize()))
    beside.replace(path)


def current_device() -> Device | None:
    """The first GPU as its driver calls it, which is the one that TensorRT builds on."""
    import ctypes

    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, name = ctypes.c_int(0), ctypes.create_string_buffer(100)
    if driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0):
        return None
    pair: list[int] = []
    for attribute in CAPABILITY:
        found = ctypes.c_int(0)
        if driver.cuDeviceGetAttribute(ctypes.byref(found), attribute, device):
            return None
        pair.append(found.value)
    driver.cuDeviceGetName(name, 100, device)
    return Device(name.value.decode(errors="replace"), f"{pair[0]}.{pair[1]}")


def built_for(trt: Any, request: Mapping[str, Any], device: Device | None) -> dict[str, Any]:
    """Where the engine runs and how it was built: what servers compare with the machine they are on.

    `compute_capabilities` are those that it is bound to: none where it is hardware-compatible.
    """
    bound = list(request.get("capabilities") or ())
    compatible = bool(request.get("hardware_compatible"))
    if device is not None and not compatible:
        bound = [device.capability]
    return {
        "file": ENGINE,
        "library": trt.__name__.partition("_bindings")[0],
        "version": trt.__version__,
        "compute_capabilities": bound,
        "device": None if device is None else device.name,
        "built_on": None if device is None else device.capability,
        "hardware_compatible": compatible,
        "version_compatible": bool(request.get("version_compatible")),
        "profiles": list(request["profiles"]),
        "weight_streaming": bool(request.get("weight_streaming")),
        "weights": "stripped" if request.get("strip_weights") else "inside",
    }


def write(
    out: Path,
    source: Path,
    plan: Any,
    log: Any,
    content: Mapping[str, Any],
    request: Mapping[str, Any],
    network: Any,
    built: Mapping[str, Any],
) -> None:
    names = {severity: severity.name for severity in {severity for severity, _text in log.said}}
    try:
        with (out / ENGINE).open("wb") as stream:
            stream.write(memoryview(plan))
        with gzip.open(out / "build.log.gz", "wt", compresslevel=3, encoding="utf-8") as stream:
            stream.write("".join(f"[{names[severity]}] {text}\n" for severity, text in log.said))
    except OSError as error:
        blame(error, "not-writable", "the engine cannot be written")
    (out / "content.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    facts: dict[str, Any] = {}
    if source.is_dir():
        copy_files(source, out, ("config.json", "preprocessor_config.json", *TOKENIZER_FILES))
        if (source / "mopt.json").is_file():
            facts = json.loads((source / "mopt.json").read_text(encoding="utf-8"))
        if (source / "chain.json").is_file():
            shutil.copyfile(source / "chain.json", out / "chain.json")
    facts.setdefault("task", "vision")  # a bare graph says none, and is served by its tensors
    facts |= {
        "schema": "engine_folder/1",
        "scheme": request["scheme"],
        "engine": dict(built),
        "inputs": [tensor(network.get_input(n)) for n in range(network.num_inputs)],
        "outputs": [tensor(network.get_output(n)) for n in range(network.num_outputs)],
    }
    (out / "mopt.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def tensor(found: Any) -> dict[str, Any]:
    return {"name": found.name, "type": _format(found.dtype), "shape": list(found.shape)}


def notes(
    content: Mapping[str, Any], request: Mapping[str, Any], built: Mapping[str, Any], seconds: float
) -> list[str]:
    products = ", ".join(f"{n} in {kind}" for kind, n in sorted(content["engine_products"].items()))
    said = [
        f"content ({content['evidence']}): {content['engine_layers']} layers, of which multiply "
        f"{products or 'none'}; {content['engine_bytes'] / 1e6:.1f} MB, {content['size_ratio']:.2f} times "
        "what its weights and kernels take",
        *(f"wider than {request['scheme']}: {text}" for text in content["left_wider"]),
    ]
    said.append(f"{runs_where(built)}, built in {seconds:.1f} s")
    if content["evidence"] == "indirect":
        said.append("the engine was not run: no GPU that takes it is here")
    if request["scheme"] in ("int8", "fp8"):
        said.append(
            f"whether {request['scheme']} is faster than fp16 here is measured where the GPU is; if "
            "it is not, fp16 is the better engine"
        )
    return said


def runs_where(built: Mapping[str, Any]) -> str:
    """`for compute capability 8.9, version 11.4.0, built on NVIDIA L4`."""
    where = ", ".join(built["compute_capabilities"]) or "of a GPU that is not known"
    if built["hardware_compatible"]:
        where = "8.0 or later"
    later = " or later" if built["version_compatible"] else ""
    on = f", built on {built['device']}" if built["device"] else ""
    return f"for compute capability {where}, version {built['version']}{later}{on}"


if __name__ == "__main__":
    main(job)
