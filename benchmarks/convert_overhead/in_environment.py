"""Runs inside a stage environment: our steps and the bare library calls in turn, in one process.

    python in_environment.py export|verify|build WORKERS MODEL_OR_GRAPH ROUNDS

Prints one JSON object: seconds of wall and processor time of each round, ours and the library's.
"""

import gc
import json
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

warnings.filterwarnings("ignore")


def rounds(
    ours: Callable[[Path], Any], bare: Callable[[Path], Any], count: int
) -> dict[str, list[list[float]]]:
    """Alternating, ours first in every other round; the first round of each warms up and is left out."""
    found: dict[str, list[list[float]]] = {"ours": [], "bare": []}
    for number in range(count + 1):
        order = (("ours", ours), ("bare", bare)) if number % 2 else (("bare", bare), ("ours", ours))
        for name, work in order:
            with tempfile.TemporaryDirectory() as place:
                gc.collect()
                wall, used = time.perf_counter(), time.process_time()
                work(Path(place))
                taken = [time.perf_counter() - wall, time.process_time() - used]
            if number:
                found[name].append(taken)
    return found


def export(source: Path, count: int) -> dict[str, Any]:
    import onnx_export as worker
    import torch

    model, settings = worker.load(source, "embed")
    inputs = worker.input_names(model, settings)
    module = worker.wrap(model, "mean", True)

    def ours(place: Path) -> None:
        worker.export(module, inputs, place / "model.onnx", 256, 20, "sentence_embedding")

    def bare(place: Path) -> None:
        example = {name: torch.ones(2, 16, dtype=torch.long) for name in inputs}
        free = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence", max=256)}
        with torch.no_grad():
            program = torch.onnx.export(
                module,
                kwargs=example,
                dynamo=True,
                opset_version=20,
                dynamic_shapes=dict.fromkeys(inputs, free),
                input_names=list(inputs),
                output_names=["sentence_embedding"],
                verbose=False,
            )
        program.save(str(place / "model.onnx"), external_data=True)

    return rounds(ours, bare, count)


def verify(source: Path, count: int) -> dict[str, Any]:
    import _onnx_feeds as feeds_of
    import onnxruntime

    facts = feeds_of.read_facts(source)
    feeds = feeds_of.samples(source, facts) * 4
    path = source / "model.onnx"
    random.seed(0)

    def ours(_place: Path) -> None:
        feeds_of.distance(path, path, feeds)

    def bare(_place: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 2
        sessions = [
            onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
            for _ in range(2)
        ]
        for feed in feeds:
            for session in sessions:
                session.run(None, feed)

    return rounds(ours, bare, count)


def build(source: Path, count: int) -> dict[str, Any]:
    import tensorrt_build as worker

    shapes = {"batch": [1, 8, 32], "sequence": [1, 64, 256]}
    request = {
        "source": str(source),
        "scheme": "fp32",
        "flavour": "rtx",
        "capabilities": ["8.9"],
        "profiles": [shapes],
    }

    def ours(place: Path) -> None:
        worker.job({**request, "out": str(place)})

    def bare(place: Path) -> None:
        trt = worker.load_library("rtx")
        log = trt.Logger(trt.Logger.WARNING)
        builder = trt.Builder(log)
        network = builder.create_network(0)
        parser = trt.OnnxParser(network, log)
        assert parser.parse_from_file(str(source / "model.onnx"))
        config = builder.create_builder_config()
        config.num_compute_capabilities = 1
        assert config.set_compute_capability(trt.ComputeCapability.SM89, 0)
        profile = builder.create_optimization_profile()
        for number in range(network.num_inputs):
            profile.set_shape(network.get_input(number).name, (1, 1), (8, 64), (32, 256))
        config.add_optimization_profile(profile)
        plan = builder.build_serialized_network(network, config)
        (place / "model.engine").write_bytes(memoryview(plan))

    return rounds(ours, bare, count)


if __name__ == "__main__":
    sys.path.append(sys.argv[2])
    steps = {"export": export, "verify": verify, "build": build}
    found = steps[sys.argv[1]](Path(sys.argv[3]), int(sys.argv[4]))
    print(json.dumps(found))
