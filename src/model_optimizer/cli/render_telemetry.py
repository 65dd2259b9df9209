"""What `mopt bench` says about the machine beside the numbers: energy, waits, slowed clocks, spikes."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from model_optimizer.cli.render import printable
from model_optimizer.core import Measurement

_MOST_MISSING = 4


def telemetry_text(found: Measurement) -> str:
    """A line for each thing that a reader should know; empty when nothing was recorded."""
    block = cast("Mapping[str, Any]", found.telemetry)
    loads = cast("Sequence[Mapping[str, Any]]", block.get("loads") or ())
    lines = [f"INVALID: {found.invalid}: nothing of this counts"] if found.invalid else []
    for load in loads:
        lines += [f"{load['target']}: {text}" for text in _load(load)]
    if (idle := block.get("idle_power_w")) is not None:
        lines.append(f"idle power: {idle:.0f} W before the load")
    for event in block.get("events") or ():
        lines.append(f"event at {event['time_s']:.1f} s: {event['text']}")
    missing = cast("Mapping[str, str]", block.get("missing") or {})
    if missing:
        names = [f"{name} ({why.removeprefix('not available: ')})" for name, why in missing.items()]
        more = f" and {len(names) - _MOST_MISSING} more" if len(names) > _MOST_MISSING else ""
        lines.append(f"not available: {'; '.join(names[:_MOST_MISSING])}{more}")
    return "".join(f"{printable(line)}\n" for line in lines)


def _load(load: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    energy = load["energy"]
    if energy.get("joules") is not None:
        parts = [f"{energy['joules']:.4g} J", f"{energy['power_w']:.0f} W"]
        parts += [f"{energy['j_per_token']:.3g} J/token"] if energy.get("j_per_token") else []
        parts += [f"{energy['j_per_request']:.3g} J/request"] if energy.get("j_per_request") else []
        lines.append(f"energy {', '.join(parts)} ({energy['source']})")
    for reason, share in load["slowed_by"].items():
        lines.append(f"clocks were slowed by {reason} for {share:.0%} of the time")
    queue = load["queue"]
    if queue["verdict"] == "starved":
        lines.append(f"STARVED: {queue['because']}")
    if queue.get("engine_mean_ms") is not None:
        lines.append(f"requests waited {queue['engine_mean_ms']:.3g} ms in the engine's queue on average")
    if (usage := load["means"].get("engine.kv_usage")) is not None:
        lines.append(f"KV cache in use {usage:.0%} on average")
    for spike in load["spikes"]:
        what = "; ".join(spike["what"])
        lines.append(f"spike at {spike['time_s']:.1f} s, TTFT {spike['ttft_ms']:.0f} ms: {what}")
    return lines
