"""Layer `service` beside a real vLLM on the CPU, with tiny-qwen3."""

from pathlib import Path

import pytest

from model_optimizer.core import plugins
from model_optimizer.flow import verify_service
from model_optimizer.flow.verify_inside import Inside
from model_optimizer.serve import Wish, plain_plan, start
from model_optimizer.system import models, probe

TINY = Path(__file__).parents[2] / "examples/models/tiny-qwen3"


@pytest.mark.engine
@pytest.mark.slow
def test_vllm_answers_at_once_as_alone(vllm_cpu_env_python: Path, tmp_path: Path) -> None:
    del vllm_cpu_env_python
    engines = plugins.load_all("model_optimizer.engines")
    schemes = {name: m.SCHEME for name, m in plugins.load_all("model_optimizer.schemes").items()}
    spec = models.read(str(TINY))
    artifact = models.checkpoint_artifact(spec)
    wish = Wish(engine="vllm_cpu", scheme="bf16")
    plan = plain_plan(spec, artifact, wish, probe.probe(), engines=engines, schemes=schemes)
    log = tmp_path / "server.log"
    with start(plan, artifact, engine=engines["vllm_cpu"], log=log, progress=lambda _t, _s: None) as server:
        asked = Inside(model=server.served_name, concurrency=8, requests=64)
        verdict = verify_service.verify(server.url, asked, progress=lambda _t, _s: None)
    found = {c.metric: c for c in verdict.comparisons}
    assert found["error_rate"].outcome == "pass", verdict
    assert found["mixed_streams"].outcome == "pass", verdict
    assert found["same_tokens"].outcome != "fail", verdict
    assert found["damaged_streams"].outcome == found["token_counts"].outcome == "pass", verdict
    assert found["left_running"].outcome == found["kv_held"].outcome == "pass", verdict
