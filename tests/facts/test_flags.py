"""The flag tables say what the releases' sources say: rows read by hand, and the older facts agree."""

import pytest

from model_optimizer.core import UsageError
from model_optimizer.facts import flags, formats, glossary, vllm
from model_optimizer.facts.versions import key

# Read by hand from engine/arg_utils.py, config/*.py and the server's cli_args.py of each release.
BY_HAND = [
    ("vllm", "0.10.0", "--num-scheduler-steps", "value", "1"),
    ("vllm", "0.10.2", "--gpu-memory-utilization", "value", "0.9"),
    ("vllm", "0.10.2", "--swap-space", "value", "4"),
    ("vllm", "0.10.2", "--enforce-eager", "switch", "false"),
    ("vllm", "0.10.2", "--api-server-count", "value", "1"),
    ("vllm", "0.20.2", "--gpu-memory-utilization", "value", "0.92"),
    ("vllm", "0.20.2", "--max-num-batched-tokens", "value", "none"),
    ("vllm", "0.20.2", "--port", "value", "8000"),
    ("vllm", "0.25.1", "--allowed-origins", "value", '["*"]'),
    ("vllm", "0.25.1", "--disable-cascade-attn", "switch", "true"),
    ("vllm", "0.25.1", "--kv-cache-dtype", "value", "auto"),
    ("vllm", "0.27.1", "--fingerprint-mode", "value", "full"),
    ("vllm", "0.27.1", "--max-model-len", "value", None),
    ("vllm", "0.27.1", "--watermark", "value", "0.0"),
    ("vllm", "0.33.0", "--allowed-origins", "value", "[]"),
    ("vllm", "0.33.0", "--served-model-name", "list", "none"),
    ("vllm", "0.33.0", "--enable-prefix-caching", "switch", "none"),
    ("vllm", "0.33.0", "--optimization-level", "value", "O2"),
    ("sglang", "0.5.8", "--tensor-parallel-size", "value", "1"),
    ("sglang", "0.5.23", "--tp-size", "value", "1"),
    ("trtexec", "8.6", "--workspace", "value", None),
    ("trtexec", "10.0", "--memPoolSize", "value", None),
    ("trtllm_build", "0.11.0", "--tp_size", "value", "1"),
    ("trtllm_serve", "1.1.0", "--kv_cache_free_gpu_memory_fraction", "value", "0.9"),
    ("trtllm_serve", "1.2.0", "--free_gpu_memory_fraction", "value", "0.9"),
]
NOT_THERE = [
    ("vllm", "0.10.2", "--num-scheduler-steps"),
    ("vllm", "0.10.2", "--attention-backend"),
    ("vllm", "0.20.2", "--swap-space"),
    ("vllm", "0.33.0", "--disable-log-requests"),
    ("vllm", "0.33.0", "--calculate-kv-scales"),
    ("trtexec", "10.0", "--workspace"),
    ("trtexec", "11.0", "--fp16"),
    ("trtexec", "11.0", "--calib"),
    ("trtllm_build", "0.12.0", "--tp_size"),
    ("trtllm_build", "1.3.0rc22", "--checkpoint_dir"),
]


@pytest.mark.parametrize(("engine", "version", "name", "takes", "default"), BY_HAND)
def test_a_row_says_what_the_source_says(
    engine: str, version: str, name: str, takes: str, default: str | None
) -> None:
    row = flags.table(engine, version).options[name]
    assert row.takes == takes
    if default is not None:
        assert row.default == default


@pytest.mark.parametrize(("engine", "version", "name"), NOT_THERE)
def test_what_a_release_does_not_take_is_not_in_its_table(engine: str, version: str, name: str) -> None:
    assert name not in flags.table(engine, version).options


@pytest.mark.parametrize("version", ["0.10.2", "0.20.2", "0.25.1", "0.27.1", "0.33.0"])
def test_the_releases_that_must_be_there_are(version: str) -> None:
    table = flags.table("vllm", version)
    assert table.version == version
    assert len(table.options) > 150
    assert len(table.variables) > 150
    assert len(table.metrics) > 30


def test_variables_and_metrics() -> None:
    assert flags.table("vllm", "0.10.2").variables["VLLM_USE_V1"].default == "true"
    assert "VLLM_USE_V1" not in flags.table("vllm", "0.33.0").variables
    assert flags.table("vllm", "0.33.0").metrics["vllm:kv_cache_usage_perc"].metric == "gauge"
    assert "vllm:gpu_cache_usage_perc" not in flags.table("vllm", "0.33.0").metrics
    assert flags.find("vllm:time_to_first_token_seconds_bucket", "metrics", "vllm") == (
        "vllm:time_to_first_token_seconds"
    )


def test_the_facts_that_the_planner_relies_on_agree_with_the_tables() -> None:
    """They were read from one release a minor version: a difference of a patch release is none."""
    known = flags.versions("vllm")
    for fact in vllm.flags():
        found = flags.spans("vllm", "options", fact.flag)
        if not found:
            assert fact.until is not None, fact.flag
            assert fact.until.startswith("before"), fact.flag
            continue
        last = found[-1].until
        if fact.until is None:
            assert last == known[-1], f"{fact.flag} ended with {last}"
        else:
            assert key(fact.until)[0][:2] == key(last)[0][:2], f"{fact.flag}: {fact.until} or {last}"


@pytest.mark.parametrize("release", vllm.versions())
def test_the_share_of_memory_is_that_of_the_release(release: str) -> None:
    row = flags.table("vllm", release).options["--gpu-memory-utilization"]
    assert float(row.default or 0) == vllm.release(release).defaults.gpu_memory_utilization


def test_a_release_in_between_takes_the_nearest_table() -> None:
    assert flags.table("vllm", "0.25").version == "0.25.1"
    assert flags.table("trtexec", "10.13").version == "10.0"
    with pytest.raises(UsageError, match=r"there is no vLLM|there is no vllm"):
        flags.table("vllm", "0.1.0")


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("-tp", "--tensor-parallel-size"),
        ("--max_model_len", "--max-model-len"),
        ("max-num-seqs", "--max-num-seqs"),
        ("--no-enable-prefix-caching", "--enable-prefix-caching"),
        ("--compilation-config.mode", "--compilation-config"),
        ("--no-such-thing", None),
    ],
)
def test_an_option_has_many_spellings(word: str, name: str | None) -> None:
    assert flags.find(word, "options", "vllm") == name


@pytest.mark.parametrize("engine", flags.engines())
def test_what_has_a_meaning_has_a_row(engine: str) -> None:
    older = {"--worker-use-ray", "--engine-use-ray", "--speculative-model", "--num-speculative-tokens"}
    for name in set(flags.meanings(engine)) - older:
        section: flags.Section = (
            "options" if name.startswith("-") else "metrics" if ":" in name else "variables"
        )
        assert flags.spans(engine, section, name), f"{engine}: no release has {name}"


@pytest.mark.parametrize("engine", ["vllm", "trtexec"])
def test_words_that_take_the_place_of_an_option_are_valid_today(engine: str) -> None:
    newest = flags.table(engine)
    for meaning in flags.meanings(engine).values():
        for words in (meaning.to or (), *meaning.by_value.values()):
            for word in words:
                if word.startswith("--"):
                    assert word.partition("=")[0] in newest.options, f"{meaning.name} -> {word}"


def test_terms_have_one_meaning_each() -> None:
    names = [n for term in glossary.terms() for n in {glossary.plain(x) for x in (term.name, *term.also)}]
    assert len(names) == len(set(names))


def test_formats_that_vllm_takes_by_name_are_known() -> None:
    from model_optimizer.explain import machine

    assert set(machine.FORMATS.values()) <= set(formats.names())
