"""What the facts say of drivers, releases and GPUs reaches the doctor: every row gives an answer of its own."""

import dataclasses
import inspect
from pathlib import Path

import pytest

from model_optimizer.core import Finding, Gpu, Host, codec, plugins
from model_optimizer.doctor import examine, read_target
from model_optimizer.facts import drivers, gpus, tensorrt, tensorrt_llm, vllm
from model_optimizer.facts.versions import key

CHECKS = plugins.load_all("model_optimizer.doctor.checks")
H100 = codec.load(Path(__file__).parents[1] / "hosts" / "h100-healthy.json", Host)


def with_gpu(capability: tuple[int, int], name: str = "a GPU") -> Host:
    gpu = dataclasses.replace((H100.gpus or (Gpu(name=name),))[0], compute_capability=capability, name=name)
    return dataclasses.replace(H100, gpus=(gpu,))


def said(host: Host, target: str | None = None) -> dict[str, Finding]:
    return {f.check: f for f in examine(host, CHECKS, read_target(target) if target else None)}


@pytest.mark.parametrize("version", vllm.versions())
def test_each_release_of_vllm_is_judged_by_its_own_row(version: str) -> None:
    row = vllm.release(version)
    on_h100 = said(H100, f"vllm=={version}")
    assert on_h100["target_driver"].status != "unknown"
    if row.cuda:
        runs = drivers.runs(H100.driver_version or "", row.cuda)
        assert (on_h100["target_driver"].status == "fail") is not runs
    old = said(with_gpu((6, 1)), f"vllm=={version}")["target_gpu"]
    assert old.status == "fail" or row.minimum_compute_capability <= (6, 1)


@pytest.mark.parametrize("version", tensorrt.versions())
def test_each_release_of_tensorrt_is_judged_by_its_own_row(version: str) -> None:
    row = tensorrt.release(version)
    for capability in ((7, 0), (7, 5), (9, 0), (12, 0)):
        told = said(with_gpu(capability), f"tensorrt=={version}")["target_gpu"]
        too_old = row.minimum_compute_capability is not None and capability < row.minimum_compute_capability
        assert told.status == "fail" or not too_old, (capability, told.message)


@pytest.mark.parametrize("version", tensorrt_llm.versions())
def test_each_release_of_tensorrt_llm_has_an_answer(version: str) -> None:
    told = said(H100, f"nvcr.io/nvidia/tensorrt-llm/release:{version}")
    assert told["target_known"].status == "ok" or told["target_known"].evidence
    assert told["target_driver"].status in ("ok", "warn", "fail") or not tensorrt_llm.release(version).cuda


@pytest.mark.parametrize("row", drivers.toolkits(), ids=lambda row: row.cuda)
def test_each_toolkit_is_held_against_the_driver(row: drivers.CudaToolkit) -> None:
    """A toolkit of the machine whose PTX is newer than the driver knows is told, an older one is not."""
    minor = ".".join(row.cuda.split(".")[:2])
    linker = dataclasses.replace(H100.linker, toolkits=(minor,))
    told = said(dataclasses.replace(H100, linker=linker))["ptx_fits_driver"]
    cuda = H100.driver_cuda or (0, 0)
    newer = key(minor) > key(f"{cuda[0]}.{cuda[1]}")
    assert (told.status in ("warn", "fail")) is newer, told.message


@pytest.mark.parametrize("row", drivers.branches(), ids=lambda row: row.branch)
def test_each_branch_has_its_end_of_life(row: drivers.DriverBranch) -> None:
    version = f"{row.branch.removeprefix('R')}.10.01"
    for day, status in ((f"{row.end_of_life}-01", "ok"), ("2099-01-01", "warn")):
        host = dataclasses.replace(H100, driver_version=version, taken=day)
        assert said(host)["driver_branch"].status == status


def test_each_rule_about_drivers_has_a_check() -> None:
    """Which check asks for it; a rule that is new in the facts fails here until one does."""
    asked_by = {
        "minor-version-compatibility": "runtime_fits_driver",
        "forward-compatibility": "compat_shadows_driver",
        "kernel-modules": "module_flavour",
        "container-runtime": "container_toolkit",
        "wsl2": "wsl_driver_inside",
    }
    assert {rule.id for rule in drivers.rules()} == set(asked_by)
    assert set(asked_by.values()) <= set(CHECKS)


@pytest.mark.parametrize("name", [fact.name for fact in gpus.load_all() if fact.compute_capability])
def test_each_gpu_that_is_known_gets_a_judgement(name: str) -> None:
    fact = gpus.find(name)
    assert fact.compute_capability is not None
    told = said(with_gpu(fact.compute_capability, fact.name))
    assert told["gpu_generation"].status in ("ok", "warn", "fail")
    assert told["gpu_formats"].status in ("ok", "warn", "fail", "skipped")


def test_sources_name_what_was_read() -> None:
    for name, check in CHECKS.items():
        assert all(len(source) > 5 for source in check.SOURCE), name
        assert inspect.getdoc(check), name
