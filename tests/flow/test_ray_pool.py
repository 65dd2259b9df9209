"""Trials on a real Ray cluster of this machine: a study on a CPU engine, and a worker that is lost."""

import os
from pathlib import Path

import pytest

from model_optimizer import api
from model_optimizer.core import HostError, Lengths, Plan, Slo, UsageError, Workload
from model_optimizer.flow import ray_pool
from model_optimizer.flow.study import TuneRequest
from model_optimizer.tune import Order, Outcome

MODEL = Path(__file__).parents[2] / "examples" / "models" / "tiny-qwen3"
PLAN = Plan(
    model="m", checkpoint="m", workload=Workload(), slo=Slo(), engine="pytorch", scheme="fp32", format="x"
)


def nothing(order: Order) -> Outcome:
    del order
    return Outcome(state="measured")


def orders(count: int) -> list[Order]:
    return [Order(number=n, plan=PLAN, settings={}) for n in range(count)]


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with (
        pytest.raises(HostError, match="need Ray") as caught,
        ray_pool.pool("local", nothing, gpus=0),
    ):
        pass
    assert "ray" in caught.value.hint[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
class TestCluster:
    def test_a_lost_worker_loses_its_order_alone(self) -> None:
        pytest.importorskip("ray")

        def work(order: Order) -> Outcome:
            if order.number == 1:
                os._exit(9)
            return Outcome(state="measured", seconds=float(order.number))

        with ray_pool.pool("local", work, gpus=0) as (execute, workers):
            found = {order.number: outcome.seconds for order, outcome in execute(orders(4))}
        assert workers >= 1
        assert found == {0: 0.0, 2: 2.0, 3: 3.0}

    def test_a_cluster_without_room_says_so(self) -> None:
        pytest.importorskip("ray")
        with (
            pytest.raises(UsageError, match="no room"),
            ray_pool.pool("local", nothing, gpus=64),
        ):
            pass

    def test_a_cluster_that_is_not_there_says_so(self) -> None:
        pytest.importorskip("ray")
        with (
            pytest.raises(HostError, match="cannot be reached"),
            ray_pool.pool("127.0.0.1:1", nothing, gpus=0),
        ):
            pass

    @pytest.mark.engine
    def test_a_study_on_several_workers(self, tmp_path: Path) -> None:
        pytest.importorskip("ray")
        asked = TuneRequest(
            target=str(MODEL),
            engine="pytorch",
            prompt_tokens=Lengths.fixed(16),
            output_tokens=Lengths.fixed(4),
            levels=(2.0,),
            only=("max_batch_size",),
            values={"max_batch_size": ("1", "2")},
            trials=2,
            seconds=1.0,
            probe_s=0.5,
            repeats=0,
            workers="local",
        )
        folder, study = api.tune(asked, tmp_path / "study", progress=lambda text, share: None)
        assert study.trials[0].state == "measured"
        assert len(study.trials) == 2
        assert all(t.worker for t in study.trials)
        assert (folder / "study.json").is_file()
