"""llama.cpp: slots that share a context are a number, on every road to its command line."""

import pytest

from model_optimizer.core import Plan, Setting, Slo, UsageError, Workload
from model_optimizer.engines import llama_cpp


def planned(**settings: str) -> Plan:
    return Plan(
        model="tiny", checkpoint="tiny.gguf", workload=Workload(), slo=Slo(), engine="llama_cpp",
        environment="llama_cpp", scheme="fp16", format="gguf",
        settings=tuple(
            Setting(name=name.replace("_", "-"), value=value, because="a test", source="user")
            for name, value in settings.items()
        ),
    )  # fmt: skip


@pytest.mark.parametrize("slots", ["-1", "auto", "0", "٣", "1.5"])
def test_slots_that_are_no_number_reach_no_command(slots: str) -> None:
    """llama-server takes -1 and chooses; then nobody knows how many tokens of the context a request gets."""
    plan = planned(parallel=slots, ctx_size="4096")
    for road in (
        lambda: llama_cpp.launch(plan, 8000),
        lambda: llama_cpp.command(plan),
        lambda: llama_cpp.container(plan),
        lambda: llama_cpp.modelfile(plan),
    ):
        with pytest.raises(UsageError, match="`parallel` is a number from 1 on") as found:
            road()
        assert found.value.hint


def test_slots_that_nobody_named_are_one() -> None:
    assert "PARAMETER num_ctx 4096\n" in llama_cpp.modelfile(planned(ctx_size="4096"))
    assert "PARAMETER num_ctx 1024\n" in llama_cpp.modelfile(planned(ctx_size="4096", parallel="4"))


def test_a_context_that_is_no_number_predicts_nothing() -> None:
    """0 is the model's own for llama-server."""
    assert llama_cpp.expected(planned(ctx_size="4096"), None) == {"kv_cache_tokens": 4096.0}
    for value in ("0", "many"):
        assert llama_cpp.expected(planned(ctx_size=value), None) == {}
