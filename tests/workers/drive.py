"""Runs several worker jobs in one process of the onnx environment; see conftest.py.

    python drive.py WORKERS jobs.json answers.json

A job is {worker, request, plant?}; `plant` names a fault of PLANTS that is put into the worker before it runs.
"""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.append(sys.argv[1])
import _contract


def wrong_pooling(worker: Any) -> Any:
    """The graph takes the first token where the model's files say mean."""
    return mock.patch.dict(worker.POOL, {"mean": worker.POOL["cls"]})


def last_place(worker: Any) -> Any:
    """The graph takes the last place, padding or not, where it should take the last token."""
    return mock.patch.dict(worker.POOL, {"lasttoken": lambda hidden, mask: hidden[:, -1]})


def no_mask(worker: Any) -> Any:
    """The graph averages over padding too."""
    return mock.patch.dict(worker.POOL, {"mean": lambda hidden, mask: hidden.mean(1)})


def not_normalised(worker: Any) -> Any:
    """The graph leaves vectors as long as they are."""
    right = worker.wrap
    return mock.patch.object(worker, "wrap", lambda model, pooling, normalize: right(model, pooling, False))


def other_rotation(worker: Any) -> Any:
    """The builder takes another base for rotary embeddings, as older configurations made some do."""
    from onnxruntime_genai.models import builder

    right = builder.parse_extra_options

    def wrong(*arguments: Any, **named: Any) -> Any:
        options = right(*arguments, **named)
        options["hf_details"]["hf_config"].rope_parameters["rope_theta"] = 100.0
        return options

    return mock.patch.object(builder, "parse_extra_options", wrong)


PLANTS: dict[str, Callable[[Any], Any]] = {
    plant.__name__: plant for plant in (wrong_pooling, last_place, no_mask, not_normalised, other_rotation)
}


def run(job: dict[str, Any]) -> dict[str, Any]:
    worker = importlib.import_module(job["worker"])
    Path(job["request"]["out"]).mkdir(parents=True)
    try:
        if plant := job.get("plant"):
            with PLANTS[plant](worker):
                return worker.job(job["request"])
        return worker.job(job["request"])
    except _contract.Failure as failure:
        return {
            "error": {
                "reference": failure.reference,
                "message": failure.message,
                "cause": failure.cause,
                "hint": failure.hint,
            }
        }


answers = [run(job) for job in json.loads(Path(sys.argv[2]).read_text())]
Path(sys.argv[3]).write_text(json.dumps(answers))
