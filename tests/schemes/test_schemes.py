"""Every scheme keeps the contract, and the facts that choices hang on stay what their sources say."""

import pytest

from model_optimizer.core import Scheme, plugins
from model_optimizer.testing.contracts import scheme_contract

FOLDER = "model_optimizer.schemes"
MODULES = plugins.load_all(FOLDER)
SCHEMES: dict[str, Scheme] = {name: module.SCHEME for name, module in MODULES.items()}


def test_the_useful_ones_are_there() -> None:
    assert set(SCHEMES) >= {
        "fp32", "fp16", "bf16", "int8", "int8_weight", "int4_rtn", "awq_int4", "gptq_int4",
        "fp8", "fp8_static", "fp8_block", "fp8_kv", "nvfp4", "mxfp4", "mixed",
    }  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_contract(name: str) -> None:
    scheme_contract(name, MODULES[name])


@pytest.mark.parametrize(
    ("family", "recovery"),
    [("fp8", 0.99), ("int8", 0.98), ("int4_rtn", 0.94), ("awq_int4", 0.94), ("fp32", 0.999)],
)
def test_gates_of_recovery(family: str, recovery: float) -> None:
    assert SCHEMES[family].gate.recovery == recovery


def test_fewer_bits_are_never_held_to_more() -> None:
    by_bits = sorted(SCHEMES.values(), key=lambda s: (s.weight_bits, s.activation_bits))
    floats = [s for s in by_bits if s.weight_bits in (4, 32)]
    for metric in ("recovery", "top1", "cosine", "rank"):
        limits = [getattr(s.gate, metric) for s in floats]
        assert limits == sorted(limits)


def test_fp8_is_computed_from_8_9_on_and_loads_below() -> None:
    for name in ("fp8", "fp8_static", "fp8_block"):
        assert SCHEMES[name].min_compute_capability == (7, 5)
        assert SCHEMES[name].native_compute_capability == (8, 9)


def test_int8_ends_before_blackwell() -> None:
    highest = SCHEMES["int8"].max_compute_capability
    assert highest is not None
    assert (9, 0) <= highest < (10, 0)


def test_a_limit_without_a_source_says_so() -> None:
    """What no reference gives is called assumed, so that it is shown as such."""
    for scheme in SCHEMES.values():
        assert "assumed" in scheme.gate.source, scheme.name


def test_only_what_looks_at_data_needs_calibration() -> None:
    assert {name for name, s in SCHEMES.items() if s.needs_calibration} == {
        "awq_int4", "gptq_int4", "fp8_static", "fp8_kv", "nvfp4", "mixed",
    }  # fmt: skip
