"""`mopt estimate` end to end without a machine: memory, speed and service joined, and what is refused."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from inline_snapshot import snapshot

from model_optimizer import api
from model_optimizer.cli.app import app
from model_optimizer.cli.render_estimate import estimate_text
from model_optimizer.core import (
    Estimate,
    FitQuestion,
    Lengths,
    MoptError,
    NoFeasiblePlan,
    Setting,
    Spread,
    UsageError,
    Workload,
    codec,
)
from model_optimizer.core.grid import StepGrid
from model_optimizer.core.question import EstimateQuestion, SpeculationAsked
from model_optimizer.planner import estimate as room
from model_optimizer.planner.memory import card
from model_optimizer.system import ledger

from .speed_cases import model, scheme
from .test_speed_measured import row

RECORDED = Path(__file__).parents[1] / "data/step-tables"
EXAMPLE = (
    "estimate Qwen/Qwen3-8B --gpu h100 --engine vllm==0.30.0 --concurrency 64 --prompt-tokens 128 "
    "--output-tokens 128 --json"
)


def run(line: str) -> tuple[int, str]:
    """Exit code and output; expected failures as their message and their code."""
    found = CliRunner().invoke(app, shlex.split(line), standalone_mode=False)
    if isinstance(found.exception, MoptError):
        error = found.exception
        return error.exit_code, "\n".join([error.message, *error.cause, *error.hint])
    if found.exception is not None:
        return 2, str(found.exception)
    return found.exit_code, found.output


def said(line: str) -> dict[str, Any]:
    code, output = run(f"{line} --json")
    assert code == 0, output
    return json.loads(output)


def question(name: str = "Qwen/Qwen3-8B", gpu: str = "h100", **placed: Any) -> EstimateQuestion:
    placed.setdefault("version", "0.30.0")
    return EstimateQuestion(
        placed=FitQuestion(model=model(name), gpu=card.named(gpu), **placed),
        workload=Workload(
            task=model(name).task,
            concurrency=64,
            prompt_tokens=Lengths.fixed(128),
            output_tokens=Lengths.fixed(128),
        ),
    )


def desk(**more: Any) -> room.Desk:
    return room.Desk(fit=api.fit, scheme=scheme, **more)


def test_the_example_of_the_manual_has_every_name_that_others_rely_on() -> None:
    code, output = run(EXAMPLE)
    answer = json.loads(output)
    assert code == 0
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        assert set(answer[name]) == {"p50", "mean", "p99"}
    assert {
        "schema", "output_tokens_per_s", "input_tokens_per_s", "requests_per_s", "saturated", "bound", "provenance",
        "interval",
    } <= set(answer)  # fmt: skip
    assert answer["schema"] == "estimate/1"
    assert answer["bound"] in ("memory bandwidth", "compute", "launch overhead", "KV capacity", "network")
    low, high = answer["interval"]["output_tokens_per_s"]
    assert low < answer["output_tokens_per_s"] < high
    # silybench-data, vLLM 0.30.0 on one H100: 6957.7 output tokens a second.
    assert low < 6957.7 < high


def test_an_answer_survives_being_written_and_read() -> None:
    found = room.estimate(question(), desk())
    assert codec.loads(codec.dumps(found), Estimate) == found


def test_what_was_left_out_is_said() -> None:
    settings = {
        s["name"]: s for s in said("estimate Qwen/Qwen3-8B --gpu h100 --engine vllm==0.25.1")["settings"]
    }
    assert settings["max-num-seqs"]["value"] == "1024" and settings["max-num-seqs"]["source"] == "table"
    assert settings["concurrency"]["value"] == "1" and settings["concurrency"]["source"] == "assumed"
    assert settings["engine"]["value"] == "vllm 0.25.1"
    assert settings["scheme"]["value"] == "bf16"
    assert settings["KV cache"]["source"] == "derived"


def test_what_was_asked_for_is_used() -> None:
    many = room.estimate(question(), desk())
    few = room.estimate(question(max_num_seqs=8), desk())
    assert (few.output_tokens_per_s or 0) < 0.5 * (many.output_tokens_per_s or 0)
    faster = room.estimate(question(scheme=scheme("fp8")), desk())
    assert (faster.tpot_ms.mean or 0) < (many.tpot_ms.mean or 0)


def test_an_embedding_model_has_requests_and_no_tokens() -> None:
    found = said('estimate Qwen/Qwen3-Embedding-0.6B --gpu "rtx 4060 laptop" --qps 200 --prompt-tokens 32')
    assert found["requests_per_s"] == 200 and found["input_tokens_per_s"] == 6400
    assert found["output_tokens_per_s"] is None and found["tpot_ms"]["p50"] is None
    assert 0 < found["e2e_ms"]["p50"] < found["e2e_ms"]["p99"] < 200
    assert found["bound"] != "KV capacity"


VIT = {
    "architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 768,
    "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "image_size": 224,
    "patch_size": 16, "num_channels": 3, "id2label": {"0": "a", "1": "b"}, "label2id": {"a": 0, "b": 1},
}  # fmt: skip


VISION = "Qwen/Qwen3-VL-8B-Instruct --gpu l4 --scheme fp8 --concurrency 1 --output-tokens 128"


@pytest.mark.parametrize("engine", ["vllm==0.30.0", "llama.cpp --max-model-len 4096"])
def test_images_of_a_prompt_are_places_and_time_of_their_encoder(engine: str) -> None:
    """Prompts of the same length, once of text alone: what differs is the encoder."""
    line = f"estimate {VISION} --engine {engine}".replace(
        "--scheme fp8", "" if "llama" in engine else "--scheme fp8"
    )
    images = said(f"{line} --prompt-tokens 200 --images 2 --image-size 1280x720")
    text = said(f"{line} --prompt-tokens 2040")
    more = images["ttft_ms"]["mean"] - text["ttft_ms"]["mean"]
    # 2 x 5 T operations at the 121 T a second of an L4, of which it reaches a part.
    assert 2 * 5e12 / 121e12 * 1e3 < more < 3 * 2 * 5e12 / 121e12 * 1e3
    assert images["tpot_ms"]["mean"] == pytest.approx(text["tpot_ms"]["mean"], rel=0.01)
    assert "image encoder by its operations" in images["provenance"]
    assert any("2 of 1280 x 720 pixels in each prompt, 920 tokens each" in note for note in images["notes"])
    assert said(f"{line} --prompt-tokens 2040 --images 0") == text


def test_images_are_those_of_the_plan() -> None:
    """Both commands make the same prompts of the same words."""
    line = f"{VISION} --prompt-tokens normal:200,20 --images 1"
    planned = said(f"plan {line} --engine vllm==0.30.0")
    assert planned["workload"]["prompt_tokens"] == {"kind": "normal", "numbers": [1224.0, 20.0]}
    code, output = run(f"estimate {line} --engine vllm==0.30.0 --max-model-len 2048 --prompt-tokens 900")
    assert code == 2 and "requests of up to 2,052 tokens are longer" in output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("Qwen/Qwen3-8B --gpu l4 --images 1", "not known to read images"),
        ("Qwen/Qwen3-VL-8B-Instruct --gpu l4 --image-size 10x10", "--image-size belongs to --images N"),
        (
            "Qwen/Qwen3-VL-8B-Instruct --gpu l4 --images 1 --image-size big",
            "`big` is not the size of an image",
        ),
        ("Qwen/Qwen3-VL-8B-Instruct --gpu l4 --images -1", "-1"),
    ],
)
def test_images_that_cannot_be_are_refused(words: str, says: str) -> None:
    code, output = run(f"estimate {words}")
    assert code == 2 and says in output


def test_a_vision_model_has_images_a_second(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(VIT))
    found = said(f"estimate {tmp_path / 'config.json'} --gpu l4 --qps 100")
    assert found["requests_per_s"] == 100 and found["input_tokens_per_s"] == 100 * 197
    assert found["tpot_ms"]["p50"] is None and found["output_tokens_per_s"] is None
    assert 3 < found["e2e_ms"]["p50"] < 30
    assert any("taken to be vLLM's" in note for note in found["notes"])
    names = {s["name"] for s in found["settings"]}
    assert "max-num-seqs" in names and not names & {"KV cache", "kv-cache-dtype"}


def test_an_encoder_looks_both_ways_and_is_computed_in_one_piece(tmp_path: Path) -> None:
    line = "estimate sentence-transformers/all-MiniLM-L6-v2 --gpu l4 --concurrency 4 --prompt-tokens"
    short, long = said(f"{line} 128"), said(f"{line} 500")
    assert long["e2e_ms"]["mean"] > short["e2e_ms"]["mean"]


def test_an_engine_of_encoders_generates_no_text() -> None:
    code, text = run("estimate Qwen/Qwen3-8B --gpu h100 --engine tensorrt")
    assert code == 2 and "generate text" in text


def test_a_default_length_that_does_not_start_is_replaced_and_said() -> None:
    """The card holds the weights and 40960 tokens of cache only just; requests are short."""
    asked = question(gpu="a10", version="0.25.1")
    found = room.estimate(replace(asked, workload=replace(asked.workload, concurrency=4)), desk())
    length = next(s.value for s in found.settings if s.name == "max-model-len")
    assert int(length) < 40960
    assert any("does not start" in note for note in found.notes)


def test_what_does_not_start_at_all_has_no_speed() -> None:
    with pytest.raises(NoFeasiblePlan) as error:
        room.estimate(question(gpu="rtx 4060 laptop"), desk())
    assert "weights" in error.value.cause[0]


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("--qps 5 --concurrency 3", 2, "exclude each other"),
        ("--qps 0", 2, "above zero"),
        ("--qps -1", 2, "above zero"),
        ("--concurrency 0", 2, "x>=1"),
        ("--prompt-tokens 0", 2, "at least 1 token"),
        ("--output-tokens 40000 --prompt-tokens 2000", 2, "longer than the limit of `Qwen/Qwen3-8B`, 40,960"),
        ("--max-model-len 1000 --prompt-tokens 2000", 2, "longer than --max-model-len, 1,000"),
        ("--max-model-len 50000", 2, "limit"),
        ("--qps inf", 2, "--qps inf --requests 1000"),
        ("--prefix-hit 1.5", 2, "share from 0"),
        ("--shared-prefix 600", 2, "not shorter than the prompts"),
        ("--tp 3", 2, "32 attention heads"),
        ("--gpus 2xA100,2xH100", 2, "several kinds"),
        ("--gpus 4 --tp 8", 2, "4"),
        ("--engine vllm==0.5.0", 2, "0.8.5"),
        (
            "--engine tgi",
            2,
            "known: onnxruntime, sglang, tensorrt, tensorrt_llm, tensorrt_rtx, vllm, llama.cpp",
        ),
        ("--scheme int9", 2, "awq_int4"),
        ("--scheme int8 --gpu b200", 1, "int8"),
        ("--arrivals constant", 2, "open loop"),
        ("--burstiness 2 --qps 3", 2, "gamma"),
        ("--speculative ngram", 2, "METHOD:TOKENS"),
        ("--speculative ngram:4:1.5", 2, "METHOD:TOKENS"),
        ("--speculative draft:4", 2, "--draft-model"),
        ("--speculative mtp:1", 2, "no layers that predict"),
        ("--draft-model Qwen/Qwen3-0.6B", 2, "--speculative draft"),
        ("--gpu-memory-utilization 1.5", 2, "share up to 1"),
        ("--gpu-memory-utilization 0.5 --vram 8GiB", 2, "both set the budget"),
        ("--vram 200GiB", 2, "more than the memory of H100"),
        ("--step-model measured", 2, "nothing was measured"),
        ("--step-model tables --scheme awq_int4", 2, "no kernel of `awq_int4`"),
        ("--concurrency 100000000", 2, "requests at once on each replica"),
        ("--expert-parallel", 2, "has no experts"),
        ("--gpu-layers 3", 2, "belongs to --engine llama.cpp"),
        ("--speculative ngram:1000", 2, "METHOD:TOKENS"),
        ("--qps nan", 2, "above zero"),
    ],
)
def test_bad_input_is_one_clear_error(line: str, code: int, words: str) -> None:
    gpu = "" if "--gpu " in line or "xA100" in line else "--gpu h100"
    found, text = run(f"estimate Qwen/Qwen3-8B {gpu} {line}")
    assert (found, words in text) == (code, True), text


@pytest.mark.parametrize("load", ["--qps inf --requests 100000000", "--qps 1 --requests 100000000"])
def test_numbers_of_requests_that_nobody_would_wait_for_are_answered(load: str) -> None:
    found = said(f"estimate Qwen/Qwen3-0.6B --gpu h100 --output-tokens 16 {load}")
    assert found["output_tokens_per_s"] > 0


def test_the_slowest_of_rates_is_as_quick_as_a_single_client() -> None:
    rare, alone = (said(f"estimate Qwen/Qwen3-8B --gpu h100 {load}") for load in ("--qps 1e-9", ""))
    assert rare["ttft_ms"]["p50"] == pytest.approx(alone["ttft_ms"]["p50"], rel=0.02)


def test_an_unknown_gpu_has_its_neighbours_named() -> None:
    code, text = run("estimate Qwen/Qwen3-8B --gpu h1000")
    assert code == 2 and "H100 SXM5 80GB" in text


def test_a_release_outside_of_the_facts_marks_every_number() -> None:
    found = said("estimate Qwen/Qwen3-8B --gpu h100 --engine vllm==0.99.0")
    assert "its release is not in the facts" in found["provenance"]
    assert any("every number is of" in note for note in found["notes"])


def test_a_checkpoint_in_another_format_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from model_optimizer.core import Quantization

    odd = replace(model(), quantization=Quantization(method="exl2"))
    asked = question()
    asked = replace(asked, placed=replace(asked.placed, model=odd))
    with pytest.raises(UsageError) as error:
        room.estimate(asked, desk())
    assert "exl2" in error.value.message


def test_tables_are_taken_where_they_are_at_hand() -> None:
    grid = codec.load(RECORDED / "bf16.json", StepGrid)
    plain = room.estimate(question(), desk())
    found = room.estimate(question(), desk(grid=lambda _: grid))
    assert found.provenance.startswith("tables: aiconfigurator-core 0.12.0")
    assert found.tpot_ms.mean == pytest.approx(plain.tpot_ms.mean, rel=0.2)
    forced = room.estimate(replace(question(), step_model="roofline"), desk(grid=lambda _: grid))
    assert forced == plain


def test_tables_that_were_asked_for_and_are_missing_are_an_error() -> None:
    asked = replace(question(), step_model="tables")
    with pytest.raises(UsageError) as error:
        room.estimate(asked, desk(tables_because="the extra is missing"))
    assert error.value.cause == ("the extra is missing",)


def test_without_an_answer_of_the_tables_the_roofline_steps_in() -> None:
    def fail(_: object) -> StepGrid:
        raise MoptError("no times of this model")

    found = room.estimate(question(), desk(grid=fail))
    assert found.provenance.startswith("roofline")
    assert any("no times of this model" in note for note in found.notes)


def test_own_measurements_win() -> None:
    work = Workload(concurrency=64, prompt_tokens=Lengths.fixed(128), output_tokens=Lengths.fixed(128))
    own = row(tpot=30.0, gpu="H100 SXM5 80GB", version="0.30.1", workload=work)
    found = room.estimate(question(), desk(ledger=lambda *_: (own,)))
    assert found.tpot_ms.mean == pytest.approx(30.0, rel=0.02)
    assert found.provenance.startswith("measured: 1 rows")
    low, high = found.interval["tpot_ms"]
    plain = room.estimate(question(), desk()).interval["tpot_ms"]
    assert high / low < plain[1] / plain[0]
    other = replace(own, version="0.31.0")
    assert room.estimate(question(), desk(ledger=lambda *_: (other,))).provenance.startswith("roofline")


def test_the_ledger_of_the_user_reaches_the_command() -> None:
    work = Workload(concurrency=1, prompt_tokens=Lengths.fixed(512), output_tokens=Lengths.fixed(128))
    ledger.append((row(tpot=25.0, gpu="H100 SXM5 80GB", version="0.30.0", workload=work),))
    found = said(
        "estimate Qwen/Qwen3-8B --gpu h100 --engine vllm==0.30.0 --concurrency 1 --step-model measured"
    )
    assert found["tpot_ms"]["p50"] == pytest.approx(25.0, rel=0.02)


def test_measurements_that_ship_are_used_where_they_were_made() -> None:
    found = said(
        "estimate Qwen/Qwen3-8B --gpu h200 --engine vllm==0.25.1 --concurrency 32 --prompt-tokens 1024 --requests 64"
    )
    assert found["provenance"].startswith("measured")
    assert found["tpot_ms"]["mean"] == pytest.approx(8.302, rel=0.08)


def test_speculation_is_said_to_pay_or_not() -> None:
    asked = replace(question(), speculation=SpeculationAsked(method="ngram", tokens=4, acceptance=0.1))
    poor = room.estimate(asked, desk())
    assert any("pays from an acceptance" in note or "does not pay" in note for note in poor.notes)
    asked = replace(question(), speculation=SpeculationAsked(method="eagle3", tokens=3))
    rich = room.estimate(asked, desk())
    assert "acceptance 70% (assumed)" in rich.provenance
    assert (rich.tpot_ms.mean or 0) < (room.estimate(question(), desk()).tpot_ms.mean or 0)


def test_a_shared_prefix_shortens_the_first_token() -> None:
    line = "estimate Qwen/Qwen3-8B --gpu h100 --concurrency 16 --prompt-tokens 4096"
    plain, shared = said(line), said(f"{line} --shared-prefix 3000")
    assert shared["ttft_ms"]["mean"] < 0.7 * plain["ttft_ms"]["mean"]
    names = {s["name"]: s["value"] for s in shared["settings"]}
    assert names["prefix cache"] == "2,992 tokens of each prompt"


def test_replicas_and_parallelism() -> None:
    line = "estimate Qwen/Qwen3-32B --concurrency 64 --prompt-tokens 512"
    two = said(f"{line} --gpus 2xh100")
    apart = said(f"{line} --gpus 2xh100 --dp 2 --tp 1 --max-model-len 2048")
    assert two["tpot_ms"]["mean"] < apart["tpot_ms"]["mean"]
    assert any("2 replicas" in note for note in apart["notes"])


def test_other_engines_say_what_was_taken_from_vllm() -> None:
    found = said("estimate Qwen/Qwen3-8B --gpu h100 --engine sglang --concurrency 8")
    assert any(note.startswith("sglang:") for note in found["notes"])
    cache = next(s for s in found["settings"] if s["name"] == "KV cache")
    assert cache["source"] == "assumed"


LAPTOP = "estimate Qwen/Qwen3-8B --gpu 'rtx 4060 laptop' --engine llama.cpp --scheme int4_rtn"


def test_llama_cpp_puts_as_many_layers_on_the_gpu_as_fit() -> None:
    found = said(LAPTOP)
    layers = {s["name"]: s["value"] for s in found["settings"]}
    assert layers["n-gpu-layers"] == "37"
    assert 18 < found["tpot_ms"]["mean"] < 35, "4.5 GB at 256 GB/s, and not all of it"
    less = said("estimate Qwen/Qwen3-30B-A3B --gpu 'rtx 4060 laptop' --engine llama.cpp --scheme int4_rtn")
    assert less["bound"] == "host memory"
    assert any("computed by the CPU" in note for note in less["notes"])


def test_llama_cpp_answers_in_slots() -> None:
    one, four = said(f"{LAPTOP} --concurrency 4"), said(f"{LAPTOP} --concurrency 4 --max-num-seqs 4")
    assert any("one request at a time" in note for note in one["notes"])
    assert four["output_tokens_per_s"] > 1.5 * one["output_tokens_per_s"]
    assert four["ttft_ms"]["mean"] < one["ttft_ms"]["mean"]


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        ("--gpu-layers 99 --max-model-len 40960 --max-num-seqs 8", 4, "do not fit"),
        ("--speculative ngram:4", 2, "not modelled for llama.cpp"),
        ("--step-model tables", 2, "no `tables` steps"),
        ("--kv-cache-dtype fp8", 2, "no KV cache type"),
        ("--prompt-tokens 50000", 2, "limit of"),
    ],
)
def test_llama_cpp_refuses_what_it_cannot(more: str, code: int, words: str) -> None:
    got, output = run(f"{LAPTOP} {more}")
    assert (got, words in output) == (code, True), output


def test_the_screen() -> None:
    answer = Estimate(
        ttft_ms=Spread(p50=61.2, mean=68.0, p99=160.0),
        tpot_ms=Spread(p50=24.8, mean=25.7, p99=35.8),
        e2e_ms=Spread(p50=3210.0, mean=3340.0, p99=4620.0),
        output_tokens_per_s=5760.0,
        input_tokens_per_s=23040.0,
        requests_per_s=45.0,
        saturated=False,
        bound="compute",
        provenance="roofline: kernels measured on H100",
        interval={"tpot_ms": (21.1, 31.4), "output_tokens_per_s": (5760.0, 5760.0)},
        because={},
        settings=(Setting(name="scheme", value="bf16", because="that of the checkpoint", source="derived"),),
        step_ms={"compute": 13.0, "memory bandwidth": 7.0},
        notes=("load: 90% of the 49.8 requests/s that it can do",),
    )
    asked = question()
    asked = replace(asked, workload=replace(asked.workload, arrivals="poisson", qps=45.0, concurrency=None))
    assert estimate_text(answer, asked) == snapshot("""\
Qwen/Qwen3-8B on H100 SXM5 80GB with vllm 0.30.0
  45 requests/s (poisson), 128 prompt tokens, 128 output tokens

                           p50     mean      p99  [80 %]
---------------------  -------  -------  -------  --------------------
time to first token    61.2 ms    68 ms   160 ms
time per output token  24.8 ms  25.7 ms  35.8 ms  [21.1 ms to 31.4 ms]
whole request           3.21 s   3.34 s   4.62 s

                   rate  [80 %]
---------------  ------  ----------------
output tokens/s   5,760  [5,760 to 5,760]
input tokens/s   23,040
requests/s           45

Limited by: compute
A mean step of the engine takes 20 ms: compute 65%, memory bandwidth 35%

Numbers from: roofline: kernels measured on H100
In brackets: the interval that holds the truth in 8 of 10 cases, for the mean.

For these settings:
  scheme bf16: that of the checkpoint

note: load: 90% of the 49.8 requests/s that it can do
""")


def test_a_saturated_screen_says_so_first() -> None:
    answer = Estimate(
        tpot_ms=Spread(p50=1, mean=1, p99=1), requests_per_s=9.0, saturated=True, bound="compute",
        because={"ttft_ms": "the queue grows", "e2e_ms": "the queue grows"},
    )  # fmt: skip
    text = estimate_text(answer, question())
    assert "SATURATED" in text
    assert "no ttft_ms, e2e_ms: the queue grows" in text


def test_the_commands_of_the_guide() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "speed.md").read_text()
    commands = [line for line in guide.splitlines() if line.startswith("mopt estimate ")]
    assert len(commands) == 7
    for command in commands:
        code, output = run(command.removeprefix("mopt "))
        assert code == 0, output


def test_tensorrt_llm_takes_its_share_of_what_is_free() -> None:
    """Qwen3-32B on an H100 of 80 GB: vLLM's rule leaves 0.92 of the card less weights, TensorRT-LLM 0.9 of the rest."""
    words = "estimate Qwen/Qwen3-32B --gpu h100 --concurrency 8 --prompt-tokens 512 --output-tokens 64 --max-model-len 4096"
    rooms = {}
    for engine in ("vllm", "tensorrt_llm"):
        found = CliRunner().invoke(app, [*words.split(), "--engine", engine, "--json"])
        assert found.exit_code == 0, found.output
        cache = next(s for s in json.loads(found.output)["settings"] if s["name"] == "KV cache")
        rooms[engine] = int(cache["value"].split()[0].replace(",", ""))
    assert 1.15 < rooms["tensorrt_llm"] / rooms["vllm"] < 2.5
    assert "0.9 of what" in cache["because"]


def test_layers_with_a_window_leave_room_for_more_long_requests() -> None:
    """What the engine prints counts a token as if all layers kept it."""
    asked = "estimate openai/gpt-oss-120b --gpu h100 --concurrency 8 --output-tokens 100 --prompt-tokens"
    rooms = [
        int(
            next(s["value"] for s in found["settings"] if s["name"] == "KV cache").split()[0].replace(",", "")
        )
        for found in (said(f"{asked} 500"), said(f"{asked} 32000"))
    ]
    assert rooms[1] > 1.3 * rooms[0]


def test_a_length_that_nobody_asked_for_is_not_called_so() -> None:
    asked = shlex.split("estimate Qwen/Qwen3-VL-8B-Instruct --gpu l4 --qps 1 --prompt-tokens 200 --json")
    found = json.loads(CliRunner().invoke(app, asked).stdout)
    one = next(s for s in found["settings"] if s["name"] == "max-model-len")
    assert (one["because"], one["source"]) == ("the longest that starts", "derived")


def test_steps_with_drafts_say_what_they_are_divided_by() -> None:
    asked = shlex.split(
        "estimate Qwen/Qwen3-8B --gpu h100 --concurrency 16 --speculative eagle3:3:0.7 --json"
    )
    notes = json.loads(CliRunner().invoke(app, asked).stdout)["notes"]
    # (1 - 0.7^4) / (1 - 0.7)
    assert any("divided by the 2.53 tokens" in note for note in notes)
