"""A graph in TensorRT or TensorRT for RTX with any of its values marked as outputs: build, run, read.

Each call builds an engine of its own for the sizes of one input. A value that is marked is kept, so that
kernels which would have fused it away cannot be chosen: what such an engine computes is near what is served,
and not always the same. Memory of the GPU is taken through its driver; nothing else is needed.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _contract import fail
from _engine_device import numbers_of, plain
from _operators_graph import Feed, Graph


class Built:
    """Builds and runs; `library` is the module of TensorRT, `driver` the memory that engines read."""

    def __init__(self, library: Any, driver: Any, *, capability: str | None = None) -> None:
        import tensorrt_build

        self._trt, self._driver, self._build = library, driver, tensorrt_build
        self._capability = capability
        self.engines = 0

    def values_of(self, model: bytes) -> set[str]:
        """The values that the parser keeps under their names, and that can therefore be marked."""
        network, *_held = self._parsed(model)
        return set(self._tensors(network))

    def plan(self, model: bytes, names: Sequence[str], feed: Feed) -> Any:
        """An engine, serialized, that gives `names`; for the sizes of `feed` alone."""
        trt = self._trt
        network, builder, log, _parser = self._parsed(model)
        self._mark(network, names)
        config = builder.create_builder_config()
        if hasattr(trt, "ComputeCapability"):
            config.num_compute_capabilities = 1
            kind = f"SM{self._capability.replace('.', '')}" if self._capability else "CURRENT"
            if not config.set_compute_capability(getattr(trt.ComputeCapability, kind), 0):
                fail("capability-unsupported", f"{trt.__name__} builds nothing for {kind}")
        profile = builder.create_optimization_profile()
        for number in range(network.num_inputs):
            name = network.get_input(number).name
            profile.set_shape(name, *[tuple(feed[name].shape)] * 3)
        config.add_optimization_profile(profile)
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            fail("build-failed", f"{trt.__name__} built no engine of this graph", log.errors[-4:])
        self.engines += 1
        return plan

    def run(self, model: bytes, names: Sequence[str], feed: Feed) -> dict[str, Any]:
        """The named values at one input."""
        engine = self._trt.Runtime(self._build.Log(self._trt)).deserialize_cuda_engine(
            self.plan(model, names, feed)
        )
        if engine is None:
            fail("engine-refused", f"this GPU does not take what {self._trt.__name__} built for it")
        context = engine.create_execution_context()
        held: dict[str, int] = {}
        try:
            return self._execute(engine, context, names, feed, held)
        finally:
            for address in held.values():
                self._driver.free(address)

    def _execute(
        self, engine: Any, context: Any, names: Sequence[str], feed: Feed, held: dict[str, int]
    ) -> dict[str, Any]:
        import numpy

        every = [engine.get_tensor_name(number) for number in range(engine.num_io_tensors)]
        gives = [n for n in every if engine.get_tensor_mode(n) == self._trt.TensorIOMode.OUTPUT]
        for name in every:
            if name not in gives:
                array = numpy.ascontiguousarray(feed[name], dtype=numbers_of(engine, name))
                context.set_input_shape(name, tuple(array.shape))
                held[name] = self._driver.take(array.nbytes)
                self._driver.put(held[name], array)
        if missing := context.infer_shapes():
            fail("shapes-unknown", "the engine does not know its sizes", [", ".join(missing)])
        found = {
            name: numpy.empty(tuple(context.get_tensor_shape(name)), numbers_of(engine, name))
            for name in gives
        }
        for name, array in found.items():
            held[name] = self._driver.take(array.nbytes)
        for name, address in held.items():
            context.set_tensor_address(name, address)
        if not context.execute_async_v3(self._driver.stream):
            fail("engine-failed", "the engine could not be run on this input")
        self._driver.wait()
        for name, array in found.items():
            self._driver.get(held[name], array)
        return {name: plain(found[name]) for name in names}

    def _parsed(self, model: bytes) -> tuple[Any, Any, Any, Any]:
        log = self._build.Log(self._trt)
        builder, network = self._build.new_network(self._trt, log)
        parser = self._trt.OnnxParser(network, log)
        if not parser.parse(model):
            said = [str(parser.get_error(n).desc())[:300] for n in range(parser.num_errors)]
            fail("onnx-not-parsed", f"{self._trt.__name__} cannot read this graph", said[:4])
        return network, builder, log, parser

    @staticmethod
    def _tensors(network: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for number in range(network.num_layers):
            layer = network.get_layer(number)
            for place in range(layer.num_outputs):
                tensor = layer.get_output(place)
                if tensor is not None:
                    found.setdefault(tensor.name, tensor)
        return found

    def _mark(self, network: Any, names: Sequence[str]) -> None:
        """These values, and nothing else, come out."""
        there = {network.get_output(n).name: network.get_output(n) for n in range(network.num_outputs)}
        tensors = self._tensors(network)
        for name in names:
            if name in there:
                continue
            if name not in tensors:
                fail("value-unknown", f"the parsed network has no value `{name}`")
            network.mark_output(tensors[name])
        for name, tensor in there.items():
            if name not in names:
                network.unmark_output(tensor)


class EngineGraph(Graph):
    """A graph whose values are those that an engine of it computes."""

    def __init__(self, path: Path, built: Built) -> None:
        super().__init__(path)
        self._built = built

    def values(self, feed: Feed, names: Sequence[str]) -> dict[str, Any]:
        return self._built.run(self._whole(), names, self._taken(feed))

    def alone(
        self, nodes: Sequence[int], inputs: Mapping[str, Any], outputs: Sequence[str]
    ) -> dict[str, Any]:
        model = self.cut(nodes, inputs, outputs)
        return self._built.run(model.SerializeToString(), outputs, inputs)

    def markable(self) -> set[str]:
        return self._built.values_of(self._whole())

    def _whole(self) -> bytes:
        """With its weights inside, as a parser wants it that reads from memory; up to 2 GB."""
        import onnx

        if not hasattr(self, "_bytes"):
            try:
                self._bytes = onnx.load(str(self.path)).SerializeToString()
            except ValueError as error:
                fail("graph-too-large", "graphs beyond 2 GB are not looked into yet", [str(error)[:200]])
        return self._bytes

    def _taken(self, feed: Feed) -> dict[str, Any]:
        return {name: feed[name] for name in self.inputs}
