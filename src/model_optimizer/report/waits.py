"""How long prompts of each length waited, and whether some starved: from the telemetry that was kept."""

from dataclasses import dataclass

import msgspec

from model_optimizer.core import Measurement, units


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """One row: a load, a class of prompt lengths, and its waits as text."""

    load: str
    prompts: str
    requests: str
    waits: str
    overtaken: str


class _Class(msgspec.Struct):
    shortest: int
    longest: int
    requests: int
    wait_p50_ms: float | None = None
    wait_p90_ms: float | None = None
    wait_p99_ms: float | None = None
    overtaken: float | None = None


class _Queue(msgspec.Struct):
    verdict: str
    because: str
    classes: list[_Class] = []


class _Load(msgspec.Struct):
    target: str
    queue: _Queue


def _loads(found: Measurement) -> list[_Load]:
    try:
        return msgspec.convert(found.telemetry.get("loads") or [], list[_Load])
    except msgspec.ValidationError:
        return []


def waits(found: Measurement) -> list[Wait]:
    """Rows of all loads that had prompts of several lengths; the rest has nothing to tell."""
    return [
        Wait(
            load=load.target,
            prompts=f"{one.shortest}" if one.shortest == one.longest else f"{one.shortest} to {one.longest}",
            requests=str(one.requests),
            waits=" / ".join(map(units.show_ms, (one.wait_p50_ms, one.wait_p90_ms, one.wait_p99_ms))),
            overtaken="-" if one.overtaken is None else f"{one.overtaken:.1f}",
        )
        for load in _loads(found)
        if len(load.queue.classes) > 1
        for one in load.queue.classes
    ]


def starved(found: Measurement) -> list[str]:
    """The verdicts that accuse the server of starving some prompts."""
    return [f"{x.target}: {x.queue.because}" for x in _loads(found) if x.queue.verdict == "starved"]
