"""Numbers that nobody means: one clear line, before anything is looked at."""

import pytest
from click.testing import CliRunner

from model_optimizer.cli.app import app
from model_optimizer.core import UsageError, lengths, units
from model_optimizer.serve import Restart

MODEL = ("Qwen/Qwen3-0.6B", "--gpu", "h100")
URL = ("http://127.0.0.1:9",)
HUGE = "9" * 26
NO_COUNTS = ("inf", "nan", "1e300", "-1", "0.5", "", HUGE)
NO_RATES = ("nan", "1e300", HUGE, "-0", "0", "-1", "5e-324", "1e-300", "")
NO_SHARES = ("inf", "nan", "1e300", "-1", "")
NO_LENGTHS = (
    "inf", "nan", "1e300", "-0", "0", HUGE, "uniform:1,1e300", "normal:1e300,1", "normal:5,1e300", "normal:nan,1",
    "lognormal:1,1e300", "lognormal:1,1e9", f"choice:1,{HUGE}",
)  # fmt: skip
NO_SIZES = ("inf", "nan", "1e300", "-0", HUGE, f"{HUGE}TiB", "9" * 400)
NO_TIMES = ("inf", "nan", "1e300", "-1", "1000000000d", "9" * 400)

TABLE = [
    *(("fit", MODEL, o, NO_COUNTS) for o in ("--tp", "--pp", "--dp", "--max-model-len", "--max-num-seqs")),
    *(("fit", MODEL, o, NO_COUNTS) for o in ("--max-num-batched-tokens", "--block-size", "--max-lora-rank")),
    *(("fit", MODEL, o, NO_SIZES) for o in ("--vram", "--reserve", "--kv-cache-memory-bytes")),
    ("fit", MODEL, "--gpu-memory-utilization", NO_RATES),
    *(("estimate", MODEL, o, NO_LENGTHS) for o in ("--prompt-tokens", "--output-tokens")),
    *(("estimate", MODEL, o, NO_COUNTS) for o in ("--concurrency", "--requests", "--images", "--shared-prefix")),
    ("estimate", MODEL, "--qps", NO_RATES),
    ("estimate", MODEL, "--burstiness", NO_RATES),
    ("estimate", (*MODEL, "--qps", "1"), "--prefix-hit", NO_SHARES),
    *(("plan", MODEL, o, NO_RATES) for o in ("--qps", "--ttft-ms", "--tpot-ms", "--e2e-ms")),
    *(("plan", MODEL, o, NO_SHARES) for o in ("--percentile", "--quality", "--build-minutes", "--changes")),
    *(("plan", MODEL, o, NO_COUNTS) for o in ("--spares", "--shared-prefix", "--dp")),
    *(("bench", URL, o, NO_RATES) for o in ("--qps", "--ramp-to", "--speed", "--up-to", "--ttft-ms")),
    *(("bench", URL, o, NO_COUNTS) for o in ("--concurrency", "--requests", "--warmup", "--vocab-size", "--pid")),
    *(("bench", URL, o, NO_TIMES) for o in ("--for", "--timeout", "--ramp-time", "--think-time")),
    *(("tune", (".",), o, (*NO_RATES, "inf")) for o in ("--qps", "--concurrency", "--price-per-hour")),
    *(("tune", (".",), o, NO_COUNTS) for o in ("--trials", "--finalists", "--repeats", "--together")),
    *(("serve", (".",), o, NO_COUNTS) for o in ("--max-model-len", "--max-num-seqs", "--log-files", "--port")),
    ("serve", (".",), "--start-limit", NO_TIMES),
    ("serve", (".",), "--log-size", NO_SIZES),
    *(("soak", URL, o, NO_TIMES) for o in ("--for", "--window", "--timeout")),
    ("soak", URL, "--qps", NO_RATES),
    ("soak", URL, "--error-rate", NO_SHARES),
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "words", "option", "values"), TABLE, ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_number_that_nobody_means_is_one_clear_error(
    command: str, words: tuple[str, ...], option: str, values: tuple[str, ...]
) -> None:
    for value in values:
        found = CliRunner().invoke(app, [command, *words, option, value], standalone_mode=False)
        error = found.exception
        said = getattr(error, "message", repr(error))
        assert getattr(error, "exit_code", None) == 2, (value, said)
        assert "\n" not in said
        assert len(said) < 160
        assert found.stdout == ""


@pytest.mark.parametrize(
    "words", [("--qps", "1000000000"), ("--qps", "1e-9"), ("--dp", "999999", "--qps", "1")]
)
def test_the_largest_and_the_smallest_have_an_answer_of_few_digits(words: tuple[str, ...]) -> None:
    found = CliRunner().invoke(app, ["estimate", *MODEL, *words])
    assert found.exit_code == 0, found.output
    assert not any(len(run) > 15 for run in "".join(c if c.isdigit() else " " for c in found.stdout).split())


def test_a_length_is_named_with_its_limit() -> None:
    with pytest.raises(UsageError, match="lengths are at most 1,000,000,000 tokens"):
        lengths.parse("lognormal:1,1e300")
    assert lengths.parse("1000000000").mean == 10**9


def test_a_size_and_a_time_have_an_end() -> None:
    assert units.parse_bytes("800TiB") == 800 << 40
    assert units.parse_seconds("365d") == 31_536_000
    with pytest.raises(UsageError, match="is too much for a time"):
        units.parse_seconds("99999d")


@pytest.mark.parametrize("count", ["0", "-1", "\N{SUPERSCRIPT TWO}", "9999999", "inf", ""])
def test_tries_are_a_number(count: str) -> None:
    with pytest.raises(UsageError, match="is not known"):
        Restart.parse(f"on-failure:{count}")


def test_the_pause_after_very_many_failures_is_the_longest() -> None:
    assert Restart(most=10_000).pause_s(9_999) == Restart(most=10_000).pause_s(100)
