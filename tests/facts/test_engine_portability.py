"""Which versions and GPUs run a built engine."""

import pytest

from model_optimizer.facts.engine_portability import BuiltFor, device_conflict, version_conflict


@pytest.mark.parametrize(
    ("library", "built", "compatible", "have", "runs"),
    [
        ("tensorrt", "11.4.0", False, "11.4.0.106", True),
        ("tensorrt", "11.4.0.106", False, "11.4.1.2", False),
        ("tensorrt", "11.0.0", True, "11.4.0", True),
        ("tensorrt", "11.4.0", True, "11.0.0", False),
        ("tensorrt", "10.13.0", True, "11.4.0", True),
        ("tensorrt", "8.6.1", True, "10.13.0", True),
        ("tensorrt", "8.6.1", True, "11.4.0", False),
        ("tensorrt_rtx", "1.7.1.116", False, "1.7.1.116", True),
        ("tensorrt_rtx", "1.7.1", True, "1.8.0", False),
    ],
)
def test_versions(library: str, built: str, compatible: bool, have: str, runs: bool) -> None:
    engine = BuiltFor(library=library, version=built, version_compatible=compatible)
    assert (version_conflict(engine, have) is None) == runs


@pytest.mark.parametrize(
    ("bound", "compatible", "have", "runs"),
    [
        (("8.9",), False, [(8, 9)], True),
        (("8.9",), False, [(8, 6)], False),
        (("8.9",), False, [(8, 6), (8, 9)], True),
        (("8.9",), False, [], True),
        ((), False, [(7, 5)], True),
        ((), True, [(12, 0)], True),
        ((), True, [(7, 5)], False),
        (("12.0",), False, [(12, 0)], True),
    ],
)
def test_devices(bound: tuple[str, ...], compatible: bool, have: list[tuple[int, int]], runs: bool) -> None:
    engine = BuiltFor(
        library="tensorrt", version="11.4.0", compute_capabilities=bound, hardware_compatible=compatible
    )
    assert (device_conflict(engine, have) is None) == runs
