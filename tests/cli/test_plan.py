"""`mopt plan` from the command line: its screens, its JSON, its exit codes."""

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from inline_snapshot import snapshot

from model_optimizer.cli import main, render_plan
from model_optimizer.cli.commands import plan as command
from model_optimizer.core import (
    Cost,
    Crossover,
    Derivation,
    Estimate,
    Lengths,
    Link,
    Nearest,
    Plan,
    Rejection,
    Setting,
    Slo,
    Spread,
    UsageError,
    Workload,
    codec,
)

QWEN = "Qwen/Qwen3-0.6B"
HOSTS = Path(__file__).parents[1] / "hosts"
FIELDS = (
    "feasible", "model", "checkpoint", "gpu", "gpus", "host_digest", "workload", "slo", "engine", "engine_version",
    "image", "environment", "scheme", "tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel",
    "replicas", "settings", "estimate", "rejected", "command", "env", "binding", "short_by", "nearest",
)  # fmt: skip

PLAN = Plan(
    model="some/model",
    checkpoint="./model-awq-int4",
    gpu="H100 SXM5 80GB",
    gpus=2,
    workload=Workload(qps=5.0, prompt_tokens=Lengths.fixed(512), output_tokens=Lengths.fixed(128)),
    slo=Slo(ttft_ms=200),
    engine="vllm",
    engine_version="0.33.0",
    image="vllm/vllm-openai:v0.33.0",
    scheme="awq_int4",
    format="safetensors",
    tensor_parallel=2,
    settings=(
        Setting(name="max-model-len", value="2048", because="99.9 % of requests fit", source="derived"),
        Setting(name="block-size", value="16", because="left alone", source="table"),
    ),
    estimate=Estimate(
        ttft_ms=Spread(mean=52.4, p99=100.2), tpot_ms=Spread(mean=11.4, p99=16.4), requests_per_s=5.0,
        output_tokens_per_s=640.0, provenance="roofline",
    ),
    rejected=(
        Rejection(engine="vllm", scheme="bf16", reason="does not fit: weights", source="mopt fit"),
        Rejection(engine="vllm", scheme="fp8", reason="does not fit: weights", source="mopt fit"),
        Rejection(engine="tensorrt", scheme="any", reason="does not handle the task `generate`", source="engines"),
    ),
    command=("vllm", "serve", "./model-awq-int4", "--max-model-len", "2048"),
    prepare=(("mopt", "quantize", "some/model", "--scheme", "awq_int4"),),
    links=(Link(name="driver", holds=None, says="CUDA 13.0 asks for driver 580 or newer", source="facts"),),
    branch=("vendor is NVIDIA: so it is",),
    derivations=(
        Derivation(
            title="requests at once", constraint="no request waits", formula="rate x time",
            numbers="5/s x 1.3 s = 6.5", conclusion="--max-num-seqs 24", source="derived",
        ),
    ),
    crossover=(
        Crossover(above=9.6, unit="requests/s", engine="vllm", scheme="fp8", parallel="TP2", because="2 GPUs instead of 4"),
    ),
    cost=Cost(currency="EUR", per_hour=4.0, per_million_output_tokens=1.7, because="2 x 2 EUR/h", source="prices.toml"),
    notes=("headroom is 10%",),
)  # fmt: skip


def run(*words: str) -> Result:
    return CliRunner().invoke(command.COMMAND, list(words), catch_exceptions=False)


def test_the_screen() -> None:
    assert render_plan.plan_text(PLAN) == snapshot("""\
some/model on 2 x H100 SXM5 80GB: vllm 0.33.0, awq_int4 TP2
  expected: TTFT 52.4 ms mean, 100 ms P99; TPOT 11.4 ms mean, 16.4 ms P99
            5 requests/s, 640 output tokens/s
  by: roofline

Settings:
  max-model-len  2048  99.9 % of requests fit [derived]
  block-size     16    left alone [table]

First:    mopt quantize some/model --scheme awq_int4
Command:  vllm serve ./model-awq-int4 --max-model-len 2048
Image:    vllm/vllm-openai:v0.33.0
Check:    CUDA 13.0 asks for driver 580 or newer

Where another combination would win:
  above 9.6 requests/s: vllm fp8 TP2, 2 GPUs instead of 4

Cost:
  4 EUR an hour
  1.7 EUR a million output tokens
  (2 x 2 EUR/h; prices.toml)

Rejected:
  vllm bf16, fp8: does not fit: weights
  tensorrt in any format: does not handle the task `generate`

note: headroom is 10%
""")


def test_the_notebook() -> None:
    assert "\n".join(render_plan.notebook(PLAN)) == snapshot("""\
Which engine:
  vendor is NVIDIA: so it is

1. requests at once
   constraint  no request waits
   formula     rate x time
   numbers     5/s x 1.3 s = 6.5
   therefore   --max-num-seqs 24
   source      derived
""")


def test_the_screen_when_nothing_is_feasible() -> None:
    bare = Plan(
        feasible=False, model="some/model", checkpoint="x", gpu="L20", gpus=1, workload=Workload(), slo=Slo(),
        engine="vllm", scheme="bf16", format="safetensors", binding="memory", short_by=69.9e9,
        short_by_unit="bytes a GPU", nearest=(Nearest(axis="gpus", change="4 x L20: awq_int4 TP4", plan=PLAN),),
        notes=("weights of 109 GiB a GPU, it has 44.2 GiB",), rejected=PLAN.rejected[:1],
    )  # fmt: skip
    assert render_plan.infeasible_text(bare) == snapshot("""\
NO FEASIBLE PLAN for some/model on 1 x L20
  memory binds, short by 65.1 GiB a GPU
  weights of 109 GiB a GPU, it has 44.2 GiB

Nearest plans:
  gpus  4 x L20: awq_int4 TP4

Rejected:
  vllm bf16: does not fit: weights
""")


def test_the_example_of_the_manual() -> None:
    done = run(
        QWEN, "--gpu", "rtx 4060 laptop", "--qps", "5", "--prompt-tokens", "512", "--output-tokens", "128",
        "--ttft-ms", "200", "--json",
    )  # fmt: skip
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert set(FIELDS) <= set(found)
    assert found["feasible"] is True and found["engine"] == "vllm"
    assert {"name", "value", "because", "source"} == set(found["settings"][0])
    assert {"engine", "scheme", "parallel", "reason", "source"} == set(found["rejected"][0])
    assert codec.loads(done.stdout, Plan).gpus == 1
    assert all(d["conclusion"] for d in found["derivations"]), "--json carries the page of reasons too"


def test_nothing_feasible_exits_with_4_and_the_plan_on_stdout() -> None:
    done = run("deepseek-ai/DeepSeek-V2", "--gpu", "l20", "--json")
    assert done.exit_code == 4
    found = json.loads(done.stdout)
    assert found["feasible"] is False and found["binding"] == "memory" and found["short_by"] > 0
    assert {"axis", "change", "plan"} == set(found["nearest"][0])
    shown = run("deepseek-ai/DeepSeek-V2", "--gpu", "l20")
    assert shown.exit_code == 4 and "NO FEASIBLE PLAN" in shown.stdout


def test_explain_shows_constraint_formula_numbers_and_conclusion() -> None:
    done = run(QWEN, "--gpu", "h100", "--qps", "2", "--explain")
    for word in ("Which engine:", "constraint", "formula", "numbers", "therefore", "Little", "term by term"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("gpu", "form", "start"),
    [
        ("h100", "command", "vllm serve"),
        ("h100", "vllm", "vllm serve"),
        ("h100", "docker", "docker run"),
        ("gtx 1070", "ollama", "# start"),
        ("gtx 1070", "llama-server", "# first: "),
    ],
)
def test_emit_prints_the_command_alone(gpu: str, form: str, start: str) -> None:
    done = run(QWEN, "--gpu", gpu, "--emit", form)
    assert done.exit_code == 0 and done.stdout.startswith(start)
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    if form != "ollama":
        assert (len(lines) == 1 and "127.0.0.1" in shlex.split(lines[0])) or form == "docker"


@pytest.mark.parametrize("form", ["command", "docker"])
def test_a_command_of_several_replicas_says_that_it_starts_one(form: str) -> None:
    words = (QWEN, "--gpus", "4xh100", "--qps", "400")
    found = json.loads(run(*words, "--json").stdout)
    assert (found["replicas"], found["gpus"]) == (4, 4)
    said = "one of 4; each takes a GPU of its own (for the second of a host CUDA_VISIBLE_DEVICES=1)"
    assert said in " ".join(run(*words).stdout.split())
    first, second = run(*words, "--emit", form).stdout.splitlines()
    assert first.startswith("# ") and said in first
    assert not second.startswith("#")
    assert len(run(QWEN, "--gpu", "h100", "--emit", form).stdout.splitlines()) == 1


def test_emit_for_another_engine_is_refused() -> None:
    with pytest.raises(UsageError, match="the plan is for vllm"):
        run(QWEN, "--gpu", "h100", "--engine", "vllm", "--emit", "sglang")


@pytest.mark.parametrize(
    ("form", "start"),
    [
        ("sglang", "python3 -m sglang.launch_server"),
        ("trtllm-serve", "trtllm-serve "),
        ("llama-server", "# first: "),
        ("ollama", "# start the server with OLLAMA_NUM_PARALLEL="),
    ],
)
def test_a_form_of_one_engine_asks_for_that_engine(form: str, start: str) -> None:
    assert run(QWEN, "--gpu", "h100", "--emit", form).stdout.startswith(start)


def test_variables_of_the_environment_stand_before_the_command() -> None:
    words = (QWEN, "--gpu", "h100", "--env", "VLLM_LOGGING_LEVEL=DEBUG")
    assert run(*words, "--emit", "command").stdout.startswith("VLLM_LOGGING_LEVEL=DEBUG vllm serve")
    assert "-e VLLM_LOGGING_LEVEL=DEBUG" in run(*words, "--emit", "docker").stdout


def test_a_shell_line_is_quoted_and_keeps_the_home_folder() -> None:
    line = render_plan.shell_line(
        ("run", "-v", "~/.cache/x:/root/x", "--json", '{"a": 1}', "$(rm -rf /)", "~/a b")
    )
    assert line == """run -v "$HOME/.cache/x:/root/x" --json '{"a": 1}' '$(rm -rf /)' '~/a b'"""


def test_a_command_on_several_lines_can_be_pasted() -> None:
    override = Setting(name="hf-overrides", value='{"a": 1, "b": 2}', because="x " * 40, source="derived")
    words = ("vllm", "serve", *(f"--option-{n} value" for n in range(9)), "--hf-overrides", override.value)
    wide = Plan(
        model="m", checkpoint="m", workload=Workload(), slo=Slo(), engine="vllm", scheme="bf16", format="x",
        command=words, settings=(override,),
    )  # fmt: skip
    shown = render_plan.plan_text(wide).split("Command:")[1]
    assert tuple(shlex.split(shown.replace("\\\n", " "))) == words
    assert all(len(line) <= 110 for line in render_plan.plan_text(wide).splitlines())


def test_a_recorded_host_decides_gpu_memory_and_driver(tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    done = run(QWEN, "--host", str(HOSTS / "rtx4060-laptop.json"), "--qps", "1", "--out", str(out), "--json")
    found = json.loads(done.stdout)
    assert found["gpu"] == "GeForce RTX 4060 Laptop GPU" and found["host_digest"].startswith("sha256:")
    assert next(link for link in found["links"] if link["name"] == "driver")["holds"] is True
    assert codec.load(out, Plan).gpu == found["gpu"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--gpu", "rtx 9999"], 2, "no GPU `rtx 9999`"),
        (["--gpu", "4060"], 2, "fits 2 GPUs"),
        (["--gpus", "2xh100,a100"], 2, "several kinds"),
        (["--gpu", "h100", "--tp", "3"], 2, "does not divide the 16 attention heads"),
        (["--gpu", "h100", "--tp", "0"], 2, "--tp"),
        (["--gpu", "h100", "--qps", "0"], 2, "above zero"),
        (["--gpu", "h100", "--qps", "-3"], 2, "above zero"),
        (["--gpu", "h100", "--qps", "nan"], 2, "above zero"),
        (["--gpu", "h100", "--qps", "1", "--concurrency", "1"], 2, "exclude each other"),
        (["--gpu", "h100", "--qps", "inf"], 2, "--requests"),
        (["--gpu", "h100", "--prompt-tokens", "0"], 2, "at least 1 token"),
        (["--gpu", "h100", "--prompt-tokens", "900000"], 2, "above the limit"),
        (["--gpu", "h100", "--max-model-len", "500000"], 2, "above the limit"),
        (["--gpu", "h100", "--vram", "8GiB", "--gpu-memory-utilization", "0.5"], 2, "both set the budget"),
        (["--gpu", "h100", "--gpu-memory-utilization", "1.5"], 2, "up to 1"),
        (["--gpu", "h100", "--engine", "vllm==0.1.0"], 2, "no vLLM 0.1.0"),
        (["--gpu", "h100", "--engine", "vllm==not.a.version"], 2, "not a version"),
        (["--gpu", "h100", "--engine", "paddle"], 2, "no engine `paddle`"),
        (["--gpu", "h100", "--scheme", "int3"], 2, "no scheme `int3`"),
        (["--gpu", "h100", "--prices", "/nowhere.toml"], 2, "not a price file"),
        (["--gpu", "h100", "--gpus", "2xa10"], 2, "--gpus says"),
        (["--gpu", "h100", "--vram", "0"], 2, "--vram must be above zero"),
        (["--gpu", "h100", "--vram", "200GiB"], 2, "more than the memory"),
        (["--gpu", "h100", "--reserve", "90GiB"], 2, "nothing of H100 SXM5 80GB is left"),
        (["--gpu", "h100", "--block-size", "7"], 2, "multiple of 16"),
        (["--gpu", "h100", "--kv-cache-dtype", "fp7"], 2, "no KV cache format `fp7`"),
        (["--gpu", "h100", "--texts", "2"], 2, "one prompt a request"),
        (["--gpu", "h100", "--shared-prefix", "600"], 2, "longer than prompts"),
        (["--host", str(HOSTS / "no-gpu.json")], 3, "no GPU here"),
    ],
)
def test_bad_input(
    words: list[str],
    code: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["mopt", "plan", QWEN, *words])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == code
    shown = capsys.readouterr()
    assert said in shown.err and "Traceback" not in shown.err and not shown.out


def test_a_hosted_price_gives_a_break_even(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(
        'currency = "EUR"\n[gpu_per_hour]\nh100 = 2.0\n[hosted_per_million_tokens]\ninput = 1.0\noutput = 3.0\n'
    )
    done = run(QWEN, "--gpu", "h100", "--qps", "5", "--prices", str(file), "--json")
    found = json.loads(done.stdout)["cost"]
    assert found["currency"] == "EUR" and found["per_hour"] == 2.0
    assert found["break_even_tokens_per_day"] > 0 and found["per_million_tokens"] > 0


def test_a_break_even_beyond_the_load_is_said_so(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(
        'currency = "EUR"\n[gpu_per_hour]\nh100 = 200.0\n[hosted_per_million_tokens]\ninput = 1.0\noutput = 3.0\n'
    )
    load = ("--qps", "5", "--prompt-tokens", "1000", "--output-tokens", "300")
    done = run(QWEN, "--gpu", "h100", *load, "--prices", str(file))
    # 200 EUR an hour against 1.9 EUR for a thousand requests of 1300 tokens; 5 a second are 562 M tokens a day.
    assert "from 3,284 M tokens a day on, this is cheaper; this load is 562 M a day: it is not" in done.stdout


def test_without_a_gpu_the_plan_is_for_the_cpu_and_says_so() -> None:
    from model_optimizer.flow import plan as asking
    from model_optimizer.planner import Options

    cpu = Plan(
        model="m",
        checkpoint="./m",
        workload=Workload(),
        slo=Slo(),
        engine="onnxruntime",
        scheme="int8",
        format="onnx",
    )
    found = asking.for_cpu(Options(reference=cpu, plans=(cpu, cpu), rejected=PLAN.rejected))
    assert found.rejected == PLAN.rejected and "no GPU here" in found.notes[0] and "1 more" in found.notes[1]
    assert "on the CPU of this machine" in render_plan.plan_text(found)
    with pytest.raises(UsageError, match="no command of its own"):
        asking.emitted(found, "command")


def test_measurements_of_a_run_are_read_by_engine_and_scheme(tmp_path: Path) -> None:
    from model_optimizer.core import ClientHealth, LoadPoint, Measurement
    from model_optimizer.flow import plan as asking
    from model_optimizer.system import runs

    folder = runs.create(tmp_path, "m")
    (folder.path / "run.json").write_text("{}")
    folder.write(PLAN, "candidates/one/plan")
    points = tuple(
        LoadPoint(target=f"{n}", completed=1, failed=0, window_s=1.0, requests_per_s=float(n)) for n in (3, 7)
    )
    folder.write(Measurement(points=points, client=ClientHealth()), "candidates/one/measurement")
    assert asking.measured_in(folder.path) == {("vllm", "awq_int4"): 7.0}


def test_the_command_names_the_folder_of_a_config_that_was_planned_for(tmp_path: Path) -> None:
    model = Path(__file__).parents[2] / "examples" / "models" / "tiny-qwen3" / "config.json"
    place = tmp_path / "some-model" / "config.json"
    place.parent.mkdir()
    place.write_text(model.read_text())
    found = run(str(place), "--gpu", "h100", "--emit", "command")
    assert found.exit_code == 0
    assert f"vllm serve {place.parent} " in found.output


@pytest.mark.parametrize(
    ("word", "scheme"),
    [("w8a8", "int8"), ("W8A16", "int8_weight"), ("FP8-dynamic", "fp8"), ("awq", "awq_int4")],
)
def test_a_scheme_goes_by_the_names_that_other_tools_give_it(word: str, scheme: str) -> None:
    found = CliRunner().invoke(command.COMMAND, [QWEN, "--gpu", "h100", "--scheme", word, "--json"])
    assert json.loads(found.stdout)["scheme"] == scheme


def test_a_driver_is_named_by_its_version_or_its_branch() -> None:
    with pytest.raises(UsageError) as error:
        command.COMMAND([QWEN, "--gpu", "h100", "--driver", "abc"], standalone_mode=False)
    assert "`--driver abc`" in error.value.message and "570.86.10" in error.value.hint[0]
    found = CliRunner().invoke(command.COMMAND, [QWEN, "--gpu", "h100", "--driver", "R570", "--json"])
    assert json.loads(found.stdout)["image"].endswith("-cu129")


def test_one_gpu_is_said_in_the_singular() -> None:
    done = run(
        "Qwen/Qwen3-VL-8B-Instruct", "--gpu", "l4", "--qps", "1", "--prompt-tokens", "200", "--images", "2"
    )
    assert done.exit_code == 4
    assert ", short by 1 GPU\n" in done.stdout and "1 needs 2 GPUs, there is 1" in done.stdout
