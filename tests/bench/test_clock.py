"""The alarm never rings early; how late it rings is the machine's business and no test's."""

import asyncio
from time import perf_counter_ns

import pytest

from model_optimizer.bench import clock


@pytest.mark.parametrize("own_timer", [True, False])
def test_it_never_rings_early(monkeypatch: pytest.MonkeyPatch, own_timer: bool) -> None:
    if not own_timer:
        monkeypatch.setattr(clock, "_timer", lambda: None)

    async def wake() -> list[int]:
        alarm = clock.Alarm()
        early: list[int] = []
        try:
            for ahead_us in (-1000, 0, 50, 300, 2500, 20_000):
                wanted = perf_counter_ns() + ahead_us * 1000
                await alarm.until(wanted)
                early.append(max(0, wanted - perf_counter_ns()))
        finally:
            alarm.close()
        return early

    allowed_ns = 0 if own_timer else 100_000  # asyncio's own timer may round down its last step
    assert max(asyncio.run(wake())) <= allowed_ns


def test_a_cancelled_wait_leaves_the_alarm_usable() -> None:
    async def wake() -> bool:
        alarm = clock.Alarm()
        try:
            task = asyncio.create_task(alarm.until(perf_counter_ns() + 60_000_000_000))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await alarm.until(perf_counter_ns() + 1_000_000)
        finally:
            alarm.close()
        return task.cancelled()

    assert asyncio.run(wake())
