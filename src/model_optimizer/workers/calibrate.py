"""How fast is this GPU: copies, matrix products at given shapes, and launches, in half a minute.

Request: `shapes` [[outputs, inputs], ...], `tokens` [1, 16, ...], `formats` (`bf16`, `fp8`), `seconds`,
`device` (`cuda`; `cpu` tries the script out), `keep` (a file of JSON lines, or left out: what was measured on
this device is written there at once, and read from there when the script runs again, so that a run that was
stopped goes on). Result: `device`, `torch`, `capability`, `copy_bytes_per_s`, `products` {format: [[tokens,
outputs, inputs, seconds], ...]}, `sustained` (the rate of a large product after seconds of work, as a share
of its rate at first), `graph_launch_us`, `eager_launch_us`, `round_trip_us` (a graph of one small kernel, its
number read by the host), `notes`.

It runs by itself wherever PyTorch is: `python calibrate.py request.json result.json`.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parent))
from _contract import brief, fail, main, progress

COPY_BYTES = 1 << 30
LAUNCHES = 400
ROUND_TRIPS = 200
SUSTAINED_TOKENS = 8192
LEAST_REPEATS, MOST_REPEATS = 3, 200
LEAST_SECONDS, MOST_AT_ONCE = 1e-3, 50


def calibrate(request: dict[str, Any]) -> dict[str, Any]:
    import torch

    device = request.get("device", "cuda")
    if device == "cuda" and not torch.cuda.is_available():
        fail(
            "host-not-ready",
            "PyTorch sees no GPU here",
            [f"torch {torch.__version__} of {sys.executable}"],
            ["name the interpreter of an environment with a CUDA build of PyTorch: --python"],
        )
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    bench = Bench(torch, device, float(request.get("seconds", 30)), Kept(request.get("keep"), name))
    notes: list[str] = []
    progress("copies", 0.0)
    copy = bench.kept("copy", bench.copy)
    progress("launches", 0.05)
    launches = bench.kept("launches", lambda: bench.launches(notes))
    products = bench.products(request["shapes"], request["tokens"], request["formats"], notes)
    progress("a large product for some seconds", 0.9)
    sustained = bench.kept("sustained", lambda: bench.sustained(request["shapes"], notes))
    return {
        "device": name,
        "capability": list(torch.cuda.get_device_capability()) if device == "cuda" else None,
        "torch": torch.__version__,
        "copy_bytes_per_s": copy,
        "products": products,
        "sustained": sustained,
        "graph_launch_us": launches["graph"],
        "eager_launch_us": launches["eager"],
        "round_trip_us": launches["round_trip"],
        "notes": notes,
    }


class Kept:
    """What was measured on one device, by name: in memory, and in a file of JSON lines when one is named."""

    def __init__(self, path: str | None, device: str) -> None:
        self.path, self.device = path, device
        self.found: dict[str, Any] = {}
        lines = Path(path).read_text("utf-8").splitlines() if path and Path(path).is_file() else []
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:  # the last line of a run that was stopped
                continue
            if row["device"] == device:
                self.found[row["name"]] = row["value"]

    def keep(self, name: str, value: Any) -> None:
        self.found[name] = value
        if self.path:
            with Path(self.path).open("a", encoding="utf-8") as out:
                out.write(json.dumps({"device": self.device, "name": name, "value": value}) + "\n")


class Bench:
    """Times work on a device; a fifth of the time is for all else, the rest for products."""

    def __init__(self, torch: Any, device: str, seconds: float, known: Kept) -> None:
        self.torch, self.device, self.known = torch, device, known
        self.end = time.perf_counter() + seconds * 0.9
        self.seconds = seconds

    def kept(self, name: str, measure: Callable[[], Any]) -> Any:
        """What is known of `name`, else what is measured now."""
        if name not in self.known.found:
            self.known.keep(name, measure())
        return self.known.found[name]

    def copy(self) -> float:
        """Bytes read and written a second by a copy that no cache holds."""
        torch = self.torch
        size = COPY_BYTES if self.device == "cuda" else COPY_BYTES // 16
        if self.device == "cuda":
            size = min(size, torch.cuda.mem_get_info()[0] // 4)
        source = torch.ones(size, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        return 2 * size / self.best(lambda: target.copy_(source), self.seconds * 0.03)

    def launches(self, notes: list[str]) -> dict[str, float | None]:
        """Microseconds of one small kernel: inside a graph, launched by itself, and read by the host."""
        torch = self.torch
        small = torch.zeros(256, device=self.device)

        def many() -> None:
            for _ in range(LAUNCHES):
                small.add_(1)

        eager = self.best(many, self.seconds * 0.02) / LAUNCHES * 1e6
        if self.device != "cuda":
            return {"graph": None, "eager": eager, "round_trip": None}
        try:
            graph = torch.cuda.CUDAGraph()
            many()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                many()
            in_graph = self.best(graph.replay, self.seconds * 0.02) / LAUNCHES * 1e6
            return {"graph": in_graph, "eager": eager, "round_trip": self._round_trip(small)}
        except Exception as error:  # noqa: BLE001 - a driver may refuse to capture in any way
            notes.append(f"no CUDA graph could be captured: {brief(error)}")
            return {"graph": None, "eager": eager, "round_trip": None}

    def _round_trip(self, small: Any) -> float:
        """Microseconds, by the host's clock, from the start of a graph until its number is on the host."""
        torch = self.torch
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            small.add_(1)
        taken: list[float] = []
        for _ in range(ROUND_TRIPS):
            begun = time.perf_counter()
            graph.replay()
            small.cpu()
            taken.append(time.perf_counter() - begun)
        return sorted(taken)[len(taken) // 2] * 1e6

    def sustained(self, shapes: list[list[int]], notes: list[str]) -> float | None:
        """A server never rests: the rate of a large product in the last second of several, as a share of
        that after a pause. None where it could not be measured."""
        if self.device != "cuda":
            return None
        outputs, inputs = max(shapes, key=lambda shape: shape[0] * shape[1])
        try:
            work = self._product("bf16", outputs, inputs, SUSTAINED_TOKENS)
            self._once(work)
            time.sleep(1.0)
            fresh = sorted(self._once(work) for _ in range(5))[2]
            taken: list[float] = []
            begun = time.perf_counter()
            while time.perf_counter() - begun < self.seconds * 0.08:
                taken.append(self._once(lambda: [work() for _ in range(10)]) / 10)
            last = sorted(taken[len(taken) // 2 :])
            return min(1.0, fresh / last[len(last) // 2])
        except Exception as error:  # noqa: BLE001 - memory may be short in any way
            notes.append(f"no steady rate: {brief(error)}")
            return None

    def products(
        self, shapes: list[list[int]], tokens: list[int], formats: list[str], notes: list[str]
    ) -> dict[str, list[list[float]]]:
        found: dict[str, list[list[float]]] = {}
        todo = [(f, n, k, m) for f in formats for n, k in shapes for m in tokens]
        for number, (name, outputs, inputs, count) in enumerate(todo):
            if time.perf_counter() > self.end:
                notes.append(f"the time was up after {number} of {len(todo)} products")
                break
            progress(f"{name} {count} x {inputs} x {outputs}", 0.1 + 0.8 * number / len(todo))
            left = (self.end - time.perf_counter()) / (len(todo) - number)
            place = f"{name} {count} {outputs} {inputs}"
            try:
                took = self.kept(place, partial(self._timed, name, outputs, inputs, count, left * 0.8))
            except Exception as error:  # noqa: BLE001 - a format may be missing in any way
                notes.append(f"{name} {count} x {inputs} x {outputs}: {brief(error)}")
                continue
            found.setdefault(name, []).append([count, outputs, inputs, took])
        return found

    def _timed(self, name: str, outputs: int, inputs: int, tokens: int, seconds: float) -> float:
        return self.best(self._product(name, outputs, inputs, tokens), seconds)

    def _product(self, name: str, outputs: int, inputs: int, tokens: int) -> Callable[[], Any]:
        torch = self.torch
        # Enough copies of the weights that none is still in the cache of the GPU.
        several = max(1, min(8, (256 << 20) // (outputs * inputs * 2))) if self.device == "cuda" else 1
        plain = [
            torch.randn(outputs, inputs, device=self.device, dtype=torch.bfloat16) for _ in range(several)
        ]
        given = torch.randn(tokens, inputs, device=self.device, dtype=torch.bfloat16)
        turn = iter(range(1 << 40))
        if name == "bf16":
            return lambda: torch.nn.functional.linear(given, plain[next(turn) % several])
        if name != "fp8":
            raise ValueError(f"{name} is no format of this benchmark")
        eight = [weight.to(torch.float8_e4m3fn).t() for weight in plain]
        padded = torch.nn.functional.pad(given, (0, 0, 0, -tokens % 16)).to(torch.float8_e4m3fn)
        one = torch.ones((), device=self.device)
        return lambda: torch._scaled_mm(
            padded, eight[next(turn) % several], scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        )

    def best(self, work: Callable[[], Any], seconds: float) -> float:
        """The median time of one piece of work, over repeats that fill `seconds`, after one that does not
        count. What is short is done several times between two looks at the clock."""
        # The first time loads kernels and chooses among them, which takes milliseconds.
        once = min(self._once(work) for _ in range(3))
        times = max(1, min(MOST_AT_ONCE, int(LEAST_SECONDS / max(once, 1e-9))))
        many = self._together(work, times) if times > 1 else work
        taken: list[float] = []
        begun = time.perf_counter()
        while len(taken) < LEAST_REPEATS or (
            len(taken) < MOST_REPEATS and time.perf_counter() - begun < seconds
        ):
            taken.append(self._once(many) / times)
        return sorted(taken)[len(taken) // 2]

    def _together(self, work: Callable[[], Any], times: int) -> Callable[[], Any]:
        """`times` pieces of work as one: in a CUDA graph where that goes, so that launches do not count."""

        def plain() -> None:
            for _ in range(times):
                work()

        if self.device != "cuda":
            return plain
        torch = self.torch
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                plain()
        except Exception:  # noqa: BLE001 - not every kernel can be captured
            torch.cuda.synchronize()
            return plain
        return graph.replay

    def _once(self, work: Callable[[], Any]) -> float:
        """Seconds of one piece of work, by the GPU's own clock where there is one."""
        if self.device != "cuda":
            begun = time.perf_counter()
            work()
            return time.perf_counter() - begun
        cuda = self.torch.cuda
        first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        first.record()
        work()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1e3


if __name__ == "__main__":
    main(calibrate)
