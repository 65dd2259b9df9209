"""An engine of TensorRT or TensorRT for RTX that answers request after request, asked as ONNX Runtime is.

Each optimization profile gets an execution context of its own; buffers on the GPU only grow. An input runs in
the narrowest profile that takes it; more rows than a profile takes are computed one part after the other,
fewer than it takes are filled up.
"""

import json
import math
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _contract import fail
from _engine_device import Driver, numbers_of, plain

FLAVOURS = {"tensorrt": "tensorrt", "tensorrt_rtx": "rtx"}
"""The backends of a request, and what the builder calls them."""
Shape = tuple[int, ...]
Profile = Mapping[str, tuple[Shape, Shape, Shape]]
"""For each input its least, usual and largest shape."""


class EngineSession:
    """`driver` is the memory of the GPU, handed over where a test has another one.

    `trusted` says that whoever starts this engine lets the code run that a version-compatible one holds.
    """

    def __init__(self, folder: Path, flavour: str, driver: Any = None, *, trusted: bool = False) -> None:
        import tensorrt_build

        self._trt = tensorrt_build.load_library(flavour)
        self._title = tensorrt_build.TITLES[flavour]
        self._log = new_log(self._trt)
        self._driver = driver or Driver()
        self._runtime = self._trt.Runtime(self._log)
        self._engine = self._opened(folder, trusted=trusted)
        names = [self._engine.get_tensor_name(number) for number in range(self._engine.num_io_tensors)]
        given = {n for n in names if self._engine.get_tensor_mode(n) == self._trt.TensorIOMode.INPUT}
        self.inputs = tuple(name for name in names if name in given)
        self.outputs = tuple(name for name in names if name not in given)
        self.version = f"{self._title} {self._trt.__version__}"
        self._numbers = {name: numbers_of(self._engine, name) for name in names}
        self.profiles = [self._profile(number) for number in range(self._engine.num_optimization_profiles)]
        self._contexts: dict[int, Any] = {}
        self._buffers: dict[str, tuple[int, int]] = {}
        for profile in self.profiles:  # kernels are loaded, and for RTX compiled, before anybody waits
            self.run(self.outputs, {n: np.zeros(usual, "float32") for n, (_, usual, _) in profile.items()})

    def run(self, names: Sequence[str], feed: Mapping[str, Any]) -> list[np.ndarray]:
        """The named outputs for any number of rows. Raises Failure where no profile takes the input."""
        number = choose(self.profiles, feed)
        profile = self.profiles[number]
        rows = len(feed[self.inputs[0]])
        least, most = (
            bound(low[0] for low in _column(profile, place)) for place, bound in ((0, max), (2, min))
        )
        parts = [
            self._part(number, names, {n: feed[n][begin : begin + most] for n in self.inputs}, least)
            for begin in range(0, rows, most)
        ]
        return [np.concatenate(found) for found in zip(*parts, strict=True)]

    def longer(self, name: str, length: int) -> int:
        """The second dimension that an input of this length is filled up to, so that a profile takes it."""
        able = [max(length, p[name][0][1]) for p in self.profiles if length <= p[name][2][1]]
        return min(able, default=length)

    def close(self) -> None:
        """Give the buffers back."""
        for address, _size in self._buffers.values():
            self._driver.free(address)
        self._buffers.clear()

    def _opened(self, folder: Path, *, trusted: bool) -> Any:
        facts = json.loads((folder / "mopt.json").read_text(encoding="utf-8"))["engine"]
        if facts.get("version_compatible"):
            # It holds the code that runs it: whoever made the file would run programs here.
            if not trusted:
                fail(
                    "engine-brings-code",
                    f"the engine in `{folder.name}` runs with later versions by code that it holds",
                    ["that code runs on this machine with all rights of the server"],
                    [
                        "where you built it yourself or trust its maker: --set allow_engine_code=1",
                        "or build it here",
                    ],
                )
            self._runtime.engine_host_code_allowed = True
        engine = self._runtime.deserialize_cuda_engine((folder / facts["file"]).read_bytes())
        if engine is not None:
            return engine
        said, have = list(self._log.worst), self._trt.__version__
        again = "build it again here with `mopt convert`"
        if facts["version"] != have:
            fail(
                "engine-of-another-version",
                f"the engine is of {self._title} {facts['version']}, {have} is installed",
                ["an engine runs with the version that built it", *said],
                [again],
            )
        built = ", ".join(facts.get("compute_capabilities") or ()) or "the GPU that it was built on"
        return fail(
            "engine-refused", f"this GPU does not take the engine, which is for {built}", said, [again]
        )

    def _profile(self, number: int) -> Profile:
        shapes = {n: self._engine.get_tensor_profile_shape(n, number) for n in self.inputs}
        return {n: tuple(tuple(int(d) for d in shape) for shape in found) for n, found in shapes.items()}  # type: ignore[misc]

    def _context(self, number: int) -> Any:
        if number not in self._contexts:
            context = self._engine.create_execution_context()
            if context is None or not context.set_optimization_profile_async(number, self._driver.stream):
                fail("engine-failed", "the engine cannot be made ready to run", list(self._log.worst))
            self._contexts[number] = context
        return self._contexts[number]

    def _part(
        self, number: int, names: Sequence[str], feed: Mapping[str, Any], least: int
    ) -> list[np.ndarray]:
        """At most as many rows as the profile takes."""
        context, rows = self._context(number), len(feed[self.inputs[0]])
        for name in self.inputs:
            array = np.ascontiguousarray(_filled(feed[name], least), dtype=self._numbers[name])
            context.set_input_shape(name, tuple(array.shape))
            self._driver.put(self._buffer(name, array.nbytes), array)
        if missing := context.infer_shapes():
            fail("shapes-unknown", "the engine does not know its sizes", [", ".join(missing)])
        found = {n: np.empty(tuple(context.get_tensor_shape(n)), self._numbers[n]) for n in self.outputs}
        for name, array in found.items():
            self._buffer(name, array.nbytes)
        for name in (*self.inputs, *self.outputs):
            context.set_tensor_address(name, self._buffers[name][0])
        if not context.execute_async_v3(self._driver.stream):
            fail("engine-failed", "the engine could not be run on this input", list(self._log.worst))
        self._driver.wait()
        for name in names:
            self._driver.get(self._buffers[name][0], found[name])
        return [plain(found[name])[:rows] for name in names]

    def _buffer(self, name: str, size: int) -> int:
        """The address of a place that is large enough."""
        address, had = self._buffers.get(name, (0, -1))
        if had < size:
            if had >= 0:
                self._driver.free(address)
            self._buffers[name] = (self._driver.take(size), size)
        return self._buffers[name][0]


def choose(profiles: Sequence[Profile], feed: Mapping[str, Any]) -> int:
    """The number of the narrowest profile that takes the input, whatever its number of rows."""
    able = [n for n, profile in enumerate(profiles) if takes(profile, {k: a.shape for k, a in feed.items()})]
    if not able:
        given = ", ".join(f"{name} {' x '.join(map(str, array.shape))}" for name, array in feed.items())
        fail("outside-profiles", "the engine was built for other sizes", [given], [ranges(profiles)])
    return min(able, key=lambda n: sum(math.prod(most[1:]) for most in _column(profiles[n], 2)))


def takes(profile: Mapping[str, Sequence[Sequence[int]]], shapes: Mapping[str, Sequence[int]]) -> bool:
    """Whether every dimension but the first, which can be cut and filled, is within the profile's."""
    return all(
        len(shapes[name]) == len(least)
        and all(a <= n <= b for a, n, b in zip(least[1:], shapes[name][1:], most[1:], strict=True))
        for name, (least, _usual, most) in profile.items()
    )


def ranges(profiles: Sequence[Mapping[str, Sequence[Sequence[int]]]]) -> str:
    """`pixel_values 1x3x320x320 to 8x3x640x640`, for each profile."""
    return "; or ".join(
        ", ".join(
            f"{name} {'x'.join(map(str, least))} to {'x'.join(map(str, most))}"
            for name, (least, _usual, most) in profile.items()
        )
        for profile in profiles
    )


def new_log(trt: Any) -> Any:
    """The last errors that TensorRT said; all else is let go, as a server runs for long."""

    class Worst(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.worst: deque[str] = deque(maxlen=4)

        def log(self, severity: Any, msg: str) -> None:
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                self.worst.append(" ".join(msg.split())[:300])

    return Worst()


def _column(profile: Profile, place: int) -> list[Shape]:
    """All least (0), usual (1) or largest (2) shapes of a profile."""
    return [shapes[place] for shapes in profile.values()]


def _filled(array: np.ndarray, least: int) -> np.ndarray:
    """With its last row again, until there are as many as the engine wants at least."""
    short = least - len(array)
    return array if short <= 0 else np.concatenate([array, np.repeat(array[-1:], short, axis=0)])
