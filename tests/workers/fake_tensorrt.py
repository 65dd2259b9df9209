"""TensorRT's documented classes as far as this product calls them, computing with ONNX Runtime.

It stands in for the package, which does not install without NVIDIA's index, and for the GPU, which is not
there. What is tested with it is that calls have the documented names, order and arguments; not that TensorRT
does what it says. `install(version)` puts it into sys.modules: version 10 has precision flags and FP16 without
strong typing, 11 has neither. `FAULT` is planted into every engine that is run: see `Engine`.
"""

import enum
import json
import math
import sys
import types
from typing import Any

import numpy
import onnx
from google.protobuf.message import DecodeError

MEMORY: dict[int, bytearray] = {}
FAULT: dict[str, Any] = {}
CALLS: list[str] = []
TYPES = {1: "FLOAT", 10: "HALF", 16: "BF16", 7: "INT64", 6: "INT32", 9: "BOOL", 3: "INT8"}
WORDS = {"FLOAT": "FP32", "HALF": "FP16", "BF16": "BF16", "INT8": "Int8", "INT64": "Int64"}


class Severity(enum.IntEnum):
    INTERNAL_ERROR, ERROR, WARNING, INFO, VERBOSE = range(5)


class ILogger:
    Severity = Severity

    def __init__(self) -> None: ...


class IProgressMonitor:
    def __init__(self) -> None: ...


class ProfilingVerbosity(enum.Enum):
    LAYER_NAMES_ONLY, NONE, DETAILED = range(3)


class MemoryPoolType(enum.Enum):
    WORKSPACE = 0


class HardwareCompatibilityLevel(enum.Enum):
    NONE, AMPERE_PLUS, SAME_COMPUTE_CAPABILITY = range(3)


class LayerInformationFormat(enum.Enum):
    ONELINE, JSON = range(2)


class TensorIOMode(enum.Enum):
    NONE, INPUT, OUTPUT = range(3)


class LayerType(enum.Enum):
    CONSTANT, MATRIX_MULTIPLY, CONVOLUTION, ELEMENTWISE = range(4)


class DataType(enum.Enum):
    FLOAT, HALF, BF16, INT64, INT32, BOOL, INT8 = range(7)


class Flags10(enum.IntEnum):
    EXPLICIT_BATCH, STRONGLY_TYPED = range(2)


class Flags11(enum.IntEnum):
    STRONGLY_TYPED = 1


class BuilderFlag10(enum.IntEnum):
    FP16, INT8, WEIGHT_STREAMING, STRIP_PLAN, VERSION_COMPATIBLE = range(5)


class BuilderFlag11(enum.IntEnum):
    WEIGHT_STREAMING, STRIP_PLAN, VERSION_COMPATIBLE = range(3)


class Tensor:
    def __init__(self, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        self.name, self.dtype, self.shape = name, DataType[dtype], shape


class Layer:
    def __init__(self, kind: str, name: str, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        self.type, self.name, self._in, self._out = LayerType[kind], name, inputs, outputs
        self.num_inputs, self.num_outputs = len(inputs), len(outputs)

    def get_input(self, place: int) -> Tensor:
        return self._in[place]

    def get_output(self, place: int) -> Tensor:
        return self._out[place]


class IConvolutionLayer(Layer):
    """What the builder's own class gives beside a layer; here the weights are a layer before it."""

    kernel = None


class Network:
    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.model: Any = None

    num_layers = property(lambda self: len(self.layers))
    num_inputs = property(lambda self: len(self.inputs))
    num_outputs = property(lambda self: len(self.outputs))

    def get_layer(self, number: int) -> Layer:
        return self.layers[number]

    def get_input(self, number: int) -> Tensor:
        return self.inputs[number]

    def get_output(self, number: int) -> Tensor:
        return self.outputs[number]

    def mark_output(self, tensor: Tensor) -> None:
        CALLS.append("mark_output")
        self.outputs.append(tensor)

    def unmark_output(self, tensor: Tensor) -> None:
        self.outputs.remove(tensor)


class OnnxParser:
    def __init__(self, network: Network, logger: ILogger) -> None:
        self._network, self.num_errors = network, 0

    def parse(self, model: bytes) -> bool:
        return self._read(onnx.load_from_string(model))

    def parse_from_file(self, path: str) -> bool:
        return self._read(onnx.load(path))

    def _read(self, model: Any) -> bool:
        network = self._network
        network.model = model
        inferred = onnx.shape_inference.infer_shapes(model).graph
        kinds = {
            v.name: TYPES.get(v.type.tensor_type.elem_type, "FLOAT")
            for v in (*inferred.input, *inferred.value_info, *inferred.output)
        }
        kinds |= {t.name: TYPES.get(t.data_type, "FLOAT") for t in model.graph.initializer}
        constants = {t.name for t in model.graph.initializer}
        tensors = {name: Tensor(name, kind, ()) for name, kind in kinds.items()}
        for weight in model.graph.initializer:
            tensors[weight.name].shape = tuple(weight.dims)
            network.layers.append(Layer("CONSTANT", weight.name, [], [tensors[weight.name]]))
        for node in model.graph.node:
            kind = {"MatMul": "MATRIX_MULTIPLY", "Conv": "CONVOLUTION"}.get(node.op_type, "ELEMENTWISE")
            made = [tensors.setdefault(o, Tensor(o, "FLOAT", ())) for o in node.output if o]
            read = [tensors.setdefault(i, Tensor(i, "FLOAT", ())) for i in node.input if i]
            network.layers.append(Layer(kind, node.name, read, made))
        network.inputs = [tensors[v.name] for v in model.graph.input if v.name not in constants]
        for value in model.graph.input:
            dims = value.type.tensor_type.shape.dim
            tensors[value.name].shape = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in dims)
        network.outputs = [tensors[v.name] for v in model.graph.output]
        return True


class Profile:
    def __init__(self) -> None:
        self.shapes: dict[str, tuple[Any, ...]] = {}

    def set_shape(self, name: str, low: Any, best: Any, high: Any) -> None:
        self.shapes[name] = (low, best, high)


class Cache:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def serialize(self) -> bytes:
        return self.content + b"+measured"


class Config:
    def __init__(self) -> None:
        self.flags: list[Any] = []
        self.profiles: list[Profile] = []
        self.limits: dict[Any, int] = {}
        self.cache: Cache | None = None
        self.progress_monitor: Any = None
        self.profiling_verbosity: Any = None
        self.hardware_compatibility_level = HardwareCompatibilityLevel.NONE
        self.builder_optimization_level = 3

    def set_flag(self, flag: Any) -> None:
        CALLS.append(f"set_flag {flag.name}")
        self.flags.append(flag)

    def set_memory_pool_limit(self, pool: MemoryPoolType, size: int) -> None:
        self.limits[pool] = size

    def add_optimization_profile(self, profile: Profile) -> int:
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def create_timing_cache(self, content: bytes) -> Cache:
        CALLS.append(f"create_timing_cache {len(content)}")
        return Cache(content)

    def set_timing_cache(self, cache: Cache, ignore_mismatch: bool) -> bool:
        self.cache = cache
        return True

    def get_timing_cache(self) -> Cache | None:
        return self.cache


class Builder:
    def __init__(self, logger: ILogger) -> None:
        self._logger = logger

    def create_network(self, flags: int = 0) -> Network:
        CALLS.append(f"create_network {flags}")
        return Network()

    def create_builder_config(self) -> Config:
        return Config()

    def create_optimization_profile(self) -> Profile:
        return Profile()

    def build_serialized_network(self, network: Network, config: Config) -> Any:
        CALLS.append(f"build {config.hardware_compatibility_level.name} {config.limits}")
        if any(-1 in tensor.shape for tensor in network.inputs) and not config.profiles:
            self._logger.log(
                Severity.ERROR, "Network has dynamic or shape inputs, but no optimization profile"
            )
            return None
        if config.progress_monitor:
            config.progress_monitor.phase_start("Building Engine", None, 1)
            config.progress_monitor.step_complete("Building Engine", 0)
            config.progress_monitor.phase_finish("Building Engine")
        model = onnx.ModelProto()
        model.CopyFrom(network.model)
        own = {v.name for v in model.graph.output}
        marked = [t.name for t in network.outputs]
        del model.graph.output[:]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in marked)
        model.doc_string = "marked" if set(marked) - own else "plain"
        onnx.helper.set_model_props(
            model,
            {
                "version": sys.modules["tensorrt"].__version__,  # pyright: ignore[reportAttributeAccessIssue]
                "profiles": json.dumps([profile.shapes for profile in config.profiles]),
                "carries_code": str(any(flag.name == "VERSION_COMPATIBLE" for flag in config.flags)),
            },
        )
        return numpy.frombuffer(model.SerializeToString(), dtype="uint8")


class Runtime:
    """An engine that carries the code which runs it is opened only where that is allowed."""

    def __init__(self, logger: Any) -> None:
        self._logger = logger
        self.engine_host_code_allowed = False

    def deserialize_cuda_engine(self, plan: Any) -> "Engine | None":
        try:
            model = onnx.load_from_string(bytes(plan))
        except DecodeError:
            self._logger.log(Severity.ERROR, "Magic tag does not match")
            return None
        props = {entry.key: entry.value for entry in model.metadata_props}
        if props["carries_code"] == "True" and not self.engine_host_code_allowed:
            self._logger.log(Severity.ERROR, "The engine holds host code, which is not allowed")
            return None
        built = props["version"]
        if built != sys.modules["tensorrt"].__version__:  # pyright: ignore[reportAttributeAccessIssue]
            self._logger.log(Severity.ERROR, f"The engine plan file is of {built}")
            return None
        return Engine(model)


class Engine:
    """FAULT {"node": name}: this node's weight is half as large; {"fusion": name}: the same, but only in an
    engine in which nothing is marked."""

    def __init__(self, model: Any) -> None:
        import onnxruntime

        props = {entry.key: entry.value for entry in model.metadata_props}
        self.profiles: list[dict[str, Any]] = json.loads(props["profiles"])
        self._kinds = {v.name: TYPES[v.type.tensor_type.elem_type] for v in model.graph.input}
        self._layers = [n for n in model.graph.node if n.op_type == "MatMul"]
        name = FAULT.get("node") or (FAULT.get("fusion") if model.doc_string == "plain" else None)
        for node in model.graph.node:
            if node.name == name:
                weight = next(t for t in model.graph.initializer if t.name == node.input[1])
                half = onnx.numpy_helper.to_array(weight) / 2
                model.graph.initializer.append(onnx.numpy_helper.from_array(half, "planted"))
                node.input[1] = "planted"
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._in = [v.name for v in self.session.get_inputs()]
        self._out = [v.name for v in self.session.get_outputs()]
        types_of = {"tensor(float)": "FLOAT", "tensor(float16)": "HALF", "tensor(int64)": "INT64"}
        self._kinds |= {v.name: types_of.get(v.type, "FLOAT") for v in self.session.get_outputs()}

    num_io_tensors = property(lambda self: len(self._in) + len(self._out))

    def get_tensor_name(self, number: int) -> str:
        return [*self._in, *self._out][number]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name in self._in else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        return DataType[self._kinds[name]]

    @property
    def num_optimization_profiles(self) -> int:
        return len(self.profiles)

    def get_tensor_profile_shape(self, name: str, profile: int) -> list[tuple[int, ...]]:
        return [tuple(shape) for shape in self.profiles[profile][name]]

    def create_execution_context(self) -> "Context":
        return Context(self)

    def create_engine_inspector(self) -> Any:
        layers = [
            {"Name": n.name, "LayerType": "gemm",
             "Inputs": [{"Name": n.input[0], "Format/Datatype": f"Row major linear {FAULT.get('words', 'FP16')}"}],
             "Outputs": [], "Constants": []}
            for n in self._layers
        ]  # fmt: skip
        said = json.dumps({"Layers": layers})
        return types.SimpleNamespace(get_engine_information=lambda _format: said)


class Context:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._places: dict[str, int] = {}
        self._profile = 0

    def set_optimization_profile_async(self, number: int, stream: int) -> bool:
        assert stream == Driver.stream
        self._profile = number
        return number < len(self._engine.profiles)

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        low, _best, high = self._engine.profiles[self._profile][name]
        CALLS.append(f"profile {self._profile}: {name} {shape}")
        if not all(a <= n <= b for a, n, b in zip(low, shape, high, strict=True)):
            return False
        self._shapes[name] = shape
        return True

    def infer_shapes(self) -> list[str]:
        """What is not given yet; else every output has a shape from here on."""
        session = self._engine.session
        missing = [v.name for v in session.get_inputs() if v.name not in self._shapes]
        if not missing:
            feed = {
                v.name: numpy.ones(self._shapes[v.name], {"tensor(int64)": "int64"}.get(v.type, "float32"))
                for v in session.get_inputs()
            }
            outs = [v.name for v in session.get_outputs()]
            self._shapes |= {n: a.shape for n, a in zip(outs, session.run(outs, feed), strict=True)}
        return missing

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self._shapes[name]

    def set_tensor_address(self, name: str, address: int) -> bool:
        self._places[name] = address
        return True

    def execute_async_v3(self, stream: int) -> bool:
        assert stream == Driver.stream
        session = self._engine.session
        kinds = {"tensor(int64)": "int64", "tensor(float16)": "float16"}
        feed = {
            v.name: _array(self._places[v.name], kinds.get(v.type, "float32"), self._shapes[v.name])
            for v in session.get_inputs()
        }
        outs = [v.name for v in session.get_outputs()]
        for name, array in zip(outs, session.run(outs, feed), strict=True):
            MEMORY[self._places[name]][: array.nbytes] = array.tobytes()
        return True


def _array(address: int, kind: Any, shape: tuple[int, ...]) -> Any:
    """The begin of a place in memory."""
    return numpy.frombuffer(bytes(MEMORY[address]), kind, count=math.prod(shape)).reshape(shape)


class Driver:
    """The memory of a GPU, in this process; what is not given back is seen in MEMORY."""

    stream = 7

    def take(self, size: int) -> int:
        address = max(MEMORY, default=0) + 1
        MEMORY[address] = bytearray(size)
        return address

    def free(self, address: int) -> None:
        del MEMORY[address]

    def put(self, address: int, array: Any) -> None:
        assert array.nbytes <= len(MEMORY[address])
        MEMORY[address][: array.nbytes] = array.tobytes()

    def get(self, address: int, array: Any) -> None:
        array[...] = _array(address, array.dtype, array.shape)

    def wait(self) -> None:
        CALLS.append("wait")


def install(version: str) -> Any:
    """The module `tensorrt` of a major version."""
    made = types.ModuleType("tensorrt")
    own = globals()
    for name in (
        "ILogger", "IProgressMonitor", "ProfilingVerbosity", "MemoryPoolType", "HardwareCompatibilityLevel",
        "IConvolutionLayer", "LayerInformationFormat", "TensorIOMode", "OnnxParser", "Builder", "Runtime", "DataType",
    ):  # fmt: skip
        setattr(made, name, own[name])
    eleven = version.startswith("11")
    made.NetworkDefinitionCreationFlag = Flags11 if eleven else Flags10  # pyright: ignore[reportAttributeAccessIssue]
    made.BuilderFlag = BuilderFlag11 if eleven else BuilderFlag10  # pyright: ignore[reportAttributeAccessIssue]
    made.__version__ = version  # pyright: ignore[reportAttributeAccessIssue]
    sys.modules["tensorrt"] = made
    return made
