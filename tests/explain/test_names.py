"""Options, metrics, variables, schemes and terms."""

import pytest
from inline_snapshot import snapshot

from model_optimizer.cli.render_explain import explanation_text
from model_optimizer.core import MoptError, UsageError
from model_optimizer.explain import Question, changes, explain
from model_optimizer.facts import flags, glossary, gpus

from .asking import ask, said


def test_the_screen_of_an_option() -> None:
    assert explanation_text(ask("--gpu-memory-utilization", gpu="4060 laptop")) == snapshot("""\
--gpu-memory-utilization (vLLM)
  The share of the GPU's memory that the engine may use, weights, KV cache and work space together.
  Without it: 0.9 to 0.19, 0.92 from 0.20.

  0.8.5 to 0.19.1        default 0.9
  0.20.2 to now          default 0.92

note     --gpu-memory-utilization: It is of the whole memory, not of what is free, and counts for
         this process alone.
note     speed: More is more KV cache, so more requests at once; it changes nothing for one request.
note     --gpu-memory-utilization: 0.92 of GeForce RTX 4060 Laptop GPU is 7.21 GiB, taken at the
         start as a whole

from facts/flags/vllm, 0.8.5 to 0.33.0; vllm source packages 0.8.5 to 0.33.0; vllm source packages
0.8.5 to 0.33.0, engine/arg_utils.py and the cli_args.py files
""")


def test_the_screen_of_an_option_that_is_gone() -> None:
    assert explanation_text(ask("--swap-space")) == snapshot("""\
--swap-space (vLLM)
  Gigabytes of host memory to which the V0 engine moved requests.

  0.8.5 to 0.17.1        default 4

wrong    --swap-space: gone: the last release read that has it is 0.17.1; it went with the V0
         engine: V1 computes a request again instead

from facts/flags/vllm, 0.8.5 to 0.33.0; vllm source packages 0.8.5 to 0.33.0; vllm source packages
0.8.5 to 0.33.0, engine/arg_utils.py and the cli_args.py files
""")


def test_the_screen_of_a_metric() -> None:
    assert explanation_text(ask("vllm:gpu_cache_usage_perc")) == snapshot("""\
vllm:gpu_cache_usage_perc (vLLM)
  How much of the KV cache is in use, from 0 to 1.
  It is a gauge.

  0.8.5 to 0.9.1
  0.9.2 to 0.11.2        deprecated

wrong    vllm:gpu_cache_usage_perc: gone: the last release read that has it is 0.11.2; the name
         today is vllm:kv_cache_usage_perc

from facts/flags/vllm, 0.8.5 to 0.33.0; vllm source packages 0.8.5 to 0.33.0
""")


@pytest.mark.parametrize(
    ("thing", "kind", "title"),
    [
        ("--max-num-seqs", "option", "--max-num-seqs (vLLM)"),
        ("max_num_seqs", "option", "--max-num-seqs (vLLM)"),
        ("-tp", "option", "--tensor-parallel-size (vLLM)"),
        ("--memPoolSize", "option", "--memPoolSize (trtexec)"),
        ("--mem-fraction-static", "option", "--mem-fraction-static (SGLang)"),
        ("--checkpoint_dir", "option", "--checkpoint_dir (trtllm-build)"),
        ("--worker-use-ray", "option", "--worker-use-ray (vLLM)"),
        ("vllm:num_preemptions_total", "metric", "vllm:num_preemptions (vLLM)"),
        ("VLLM_ATTENTION_BACKEND", "variable", "VLLM_ATTENTION_BACKEND (vLLM)"),
        ("CUDA_VISIBLE_DEVICES", "variable", "CUDA_VISIBLE_DEVICES (visible devices)"),
        ("awq_int4", "scheme", "awq_int4: W4A16 by AWQ"),
        ("nvfp4", "scheme", "nvfp4: NVFP4: 4-bit floating point with FP8 scales"),
        ("TTFT", "metric", "TTFT (time to first token, first token latency)"),
        ("what is goodput?", "metric", "goodput (slo goodput)"),
        ("DCGM_FI_PROF_SM_ACTIVE", "metric", "DCGM_FI_PROF_SM_ACTIVE (sm activity, sm active)"),
    ],
)
def test_what_a_name_is(thing: str, kind: str, title: str) -> None:
    found = ask(thing)
    assert (found.kind, found.title.split(",")[0]) == (kind, title.split(",")[0])


@pytest.mark.parametrize(
    "thing", ["DxCache", "NVIDIA App", "power mode", ".wslconfig", "PRIME", "hybrid graphics", "--gpus all"]
)
def test_windows_and_containers_are_answered(thing: str) -> None:
    found = ask(thing)
    assert found.means
    assert found.points
    assert found.do


def test_every_name_of_the_newest_release_is_explained() -> None:
    table = flags.table("vllm")
    for section in flags.SECTIONS:
        for name in table.section(section):
            if glossary.plain(name) in glossary.by_name():
                continue  # a variable of CUDA or of a library, which vLLM reads too
            found = ask(name, engine="vllm")
            assert found.history, name
            assert found.history[-1].until is None, name


def test_the_history_tells_defaults() -> None:
    found = ask("--gpu-memory-utilization")
    assert [(h.since, h.until, h.default) for h in found.history] == [
        ("0.8.5", "0.19.1", "0.9"),
        ("0.20.2", None, "0.92"),
    ]


def test_an_option_with_a_value() -> None:
    assert "--kv-cache-dtype fp16" in said(ask("--kv-cache-dtype fp16"), "wrong")
    assert "--kv-cache-dtype fp8" in said(ask("--kv-cache-dtype=fp8", gpu="t4"), "wrong")
    assert "--quantization awq" in said(ask("--quantization awq", gpu="4060 laptop"), "warn")


@pytest.mark.parametrize(
    ("scheme", "gpu", "level"),
    [
        ("fp8", "h100", "fine"),
        ("fp8", "4060 laptop", "fine"),
        ("fp8", "a100 80gb sxm", "warn"),
        ("nvfp4", "b200", "fine"),
        ("nvfp4", "h100", "warn"),
        ("bf16", "t4", "wrong"),
        ("awq_int4", "gtx 1070", "wrong"),
    ],
)
def test_a_scheme_on_a_gpu(scheme: str, gpu: str, level: str) -> None:
    assert scheme in said(ask(scheme, gpu=gpu), level)


@pytest.mark.parametrize(
    ("scheme", "share"), [("nvfp4", "0.28"), ("awq_int4", "0.26"), ("fp8", "0.50"), ("bf16", "1.00")]
)
def test_how_small_a_scheme_is(scheme: str, share: str) -> None:
    """4 bits and an 8-bit scale for 16 weights are 4.5 bits of 16."""
    assert f"about {share} of the bytes" in ask(scheme).means[0]


@pytest.mark.parametrize(
    ("thing", "near"),
    [
        ("--max-num-sqs", "--max-num-seqs"),
        ("VLLM_USE_V11", "VLLM_USE_V1"),
        ("vllm:kv_cache_usage", "vllm:kv_cache_usage_perc"),
    ],
)
def test_an_unknown_name_gets_the_nearest(thing: str, near: str) -> None:
    with pytest.raises(MoptError) as error:
        ask(thing)
    assert error.value.exit_code == 1
    assert near in " ".join(error.value.hint)


def test_what_was_learned_is_used() -> None:
    row = flags.Row(takes="value", default="7", help="how many turtles")
    learned = flags.Table(
        engine="vllm", version="0.99.0", source=("installed",), options={"--turtles": row}, learned=True
    )
    found = explain(Question(thing="--turtles", learned=(learned,)))
    assert found.title == "--turtles (vLLM)"
    assert "how many turtles" in " ".join(found.means)
    assert any("learned" in source for source in found.source)
    with pytest.raises(MoptError):
        ask("--turtles")


def test_a_newer_release_that_was_learned_is_what_commands_are_for() -> None:
    options = dict(flags.table("vllm").options) | {"--turtles": flags.Row(takes="value", also=("-T",))}
    options.pop("--block-size")
    new = flags.Table(engine="vllm", version="0.99.0", source=("installed",), options=options, learned=True)
    found = explain(Question(thing="vllm serve X -T 3 --block-size 16", learned=(new,)))
    assert (found.today, found.today_for) == (("vllm serve X --turtles 3",), "vLLM 0.99.0")
    old = explain(
        Question(thing="vllm serve X --block-size 16", learned=(new,), engine="vllm", version="0.33.0")
    )
    assert old.today_for == "vLLM 0.33.0"
    gone = explain(Question(thing="--block-size", learned=(new,)))
    assert any("gone" in point.says for point in gone.points)


def test_what_an_upgrade_changes() -> None:
    found = changes("vllm", "0.10", "0.25")
    assert (found.before, found.after) == ("0.10.2", "0.25.1")
    by_name = {c.name: c for c in found.defaults}
    assert (by_name["--gpu-memory-utilization"].before, by_name["--gpu-memory-utilization"].after) == (
        "0.9",
        "0.92",
    )
    assert by_name["--gpu-memory-utilization"].speed
    assert (by_name["async scheduling"].before, by_name["async scheduling"].after) == ("off", "on")
    removed = {c.name: c for c in found.removed}
    assert removed["--disable-log-requests"].use_instead
    assert "vllm:gpu_cache_usage_perc" in removed
    assert "--attention-backend" in {c.name for c in found.added}
    assert found.news


def test_what_an_upgrade_changes_on_a_gpu() -> None:
    found = changes("vllm", "0.25", "0.33", gpu=gpus.find("b200"))
    batch = next(c for c in found.defaults if c.name.startswith("batch limits"))
    assert (batch.before, batch.after) == (
        "8192 tokens and 1024 sequences",
        "16384 tokens and 1024 sequences",
    )
    small = changes("vllm", "0.25", "0.33", gpu=gpus.find("4060 laptop"))
    assert not any(c.name.startswith("batch limits") for c in small.defaults)


def test_two_spellings_of_a_default_are_no_change() -> None:
    names = {c.name for c in changes("vllm", "0.10", "0.25").defaults}
    assert "VLLM_CONFIGURE_LOGGING" not in names, "1 and true"
    assert "--logprobs-mode" not in names, "the name of a constant, then its value"


def test_an_upgrade_to_a_learned_release() -> None:
    options = dict(flags.table("vllm").options) | {"--turtles": flags.Row(takes="value", default="7")}
    new = flags.Table(engine="vllm", version="0.34.0", source=("installed",), options=options, learned=True)
    found = changes("vllm", "0.33.0", "0.34.0", (new,))
    assert [c.name for c in found.added if c.section == "options"] == ["--turtles"]


def test_a_spelling_that_became_the_first_is_no_change() -> None:
    found = changes("sglang", "0.5.8", "0.5.23")
    assert "--tensor-parallel-size" not in {c.name for c in found.removed}


@pytest.mark.parametrize(
    ("engine", "before", "after"), [("vllm", "0.25", "0.25.1"), ("nothing", "1", "2"), ("vllm", "x", "2")]
)
def test_a_comparison_that_cannot_be_made(engine: str, before: str, after: str) -> None:
    with pytest.raises(UsageError):
        changes(engine, before, after)


def test_the_share_is_of_what_cuda_shows_as_in_fit() -> None:
    (share,) = [p for p in ask("--gpu-memory-utilization 0.95", gpu="4060 laptop").points if "GiB" in p.says]
    assert "7.45 GiB" in share.says  # of 7.84, not of 8
