"""A soak of a running server: the bench client makes the load, telemetry looks at the server in between."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from model_optimizer.bench import soak
from model_optimizer.bench.options import BenchOptions
from model_optimizer.bench.run import measure
from model_optimizer.bench.soak.verdict import QUESTIONS, show, show_time
from model_optimizer.bench.target import Target
from model_optimizer.core import Measurement, Progress, Slo, UsageError, Workload, codec
from model_optimizer.report import Course, Panel
from model_optimizer.system import files, telemetry

ANSWER = "soak.json"
_IDLE_WAIT_S = 3.0
_MEMORY = ".memory_used_bytes"


def run_soak(
    target: Target,
    workload: Workload,
    *,
    for_s: float,
    window_s: float,
    folder: Path,
    error_rate: float = 0.001,
    pid: int | None = None,
    resume: bool = False,
    options: BenchOptions | None = None,
    seed: int = 0,
    progress: Progress,
    each: Callable[[soak.SoakWindow], None] | None = None,
) -> soak.Soak:
    """Load `target` for `for_s` seconds in windows of `window_s`, keep the journal and the answer in
    `folder`. `pid` is the server's process, where it runs here.

    Raises UsageError when the folder holds another soak, HostError when it cannot be written or another
    process is at work on it.
    """
    if not 0 < window_s <= for_s:
        raise UsageError("a window must be longer than nothing and not longer than the soak")
    task = soak.Task(
        url=target.url,
        model=target.model,
        load=_words(workload),
        for_s=for_s,
        window_s=window_s,
        error_rate=error_rate,
        began=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    glance = telemetry.Glance(telemetry.What(url=target.url, pid=pid, host=False, key_env=target.api_key_env))
    options = replace(options or BenchOptions(), warmup=0)

    def load(number: int, seconds: float) -> Measurement:
        part = replace(options, duration_s=seconds)
        return measure(target, workload, Slo(), progress=_quiet, seed=seed + number, options=part)

    with files.locked(folder / ".soak-lock", waiting=_taken(folder)):
        try:
            there = resume and (folder / soak.journal.NAME).exists()
            journal = soak.Journal.reopen(folder, task) if there else soak.Journal.create(folder, task)
            journal.task = replace(journal.task, for_s=for_s, error_rate=error_rate)
            found = soak.run(journal, load=load, look=lambda: look(glance), progress=progress, each=each)
        finally:
            glance.close()
        files.write_atomic(folder / ANSWER, codec.dumps(found))
    return found


def look(glance: telemetry.Glance, *, wait_s: float = _IDLE_WAIT_S) -> soak.Look:
    """Wait until the engine says that nothing runs (or has no such counter), then read."""
    until = time.monotonic() + wait_s
    values, events = glance()
    while values.get("engine.running", 0.0) > 0 and time.monotonic() < until:
        time.sleep(0.1)
        values, more = glance()
        events += more
    memory = [
        v for name, v in values.items() if name.startswith("gpu") and name.endswith(".memory_used_bytes")
    ]
    fatal = next((e.text for e in events if e.fatal), None)
    return soak.Look(
        gpu_memory_bytes=sum(memory) if memory else None,
        server_rss_bytes=values.get("server.rss_bytes"),
        open_files=values.get("server.open_files"),
        kv_usage=values.get("engine.kv_usage"),
        started_s=values.get("server.started_s"),
        events=tuple(e.text for e in events),
        fatal=fatal,
    )


def answer(folder: Path) -> soak.Soak:
    """What a soak has found until now, from its journal; it may still be running."""
    journal = soak.Journal.reopen(folder)
    last = journal.windows[-1] if journal.windows else None
    ended = (
        last is not None
        and last.at_s + last.seconds >= journal.task.for_s - 0.2 * journal.task.window_s - 0.5
    )
    return soak.judge(journal.task, journal.windows, finished=ended)


def course(folder: Path) -> Course:
    """A soak for a report: its answer, its trends and every quantity over time."""
    found = answer(folder)
    windows = soak.Journal.reopen(folder).windows
    head = ("what", "level", "growth per hour", "95 % interval", "verdict")
    task = found.task
    facts = [
        ("Server", task.url),
        ("Load", task.load),
        ("Began", task.began),
        ("Length", f"{show_time(found.hours)} of {show_time(task.for_s / 3600)}, {found.windows} windows"),
        ("Requests", f"{found.completed} completed, {found.failed} failed"),
        ("Restarts", str(found.restarts)),
    ]
    marks = [w.at_s / 3600 for w in windows if w.restarted or w.look.events]
    return Course(
        title=f"Soak of {task.model or task.url}",
        answer=found.outcome,
        good=found.outcome == "sound",
        because=found.because,
        facts=tuple(facts),
        trends=(head, *(_trend(t) for t in found.trends)),
        panels=tuple(
            Panel(
                title=question.name[0].upper() + question.name[1:],
                unit=question.unit,
                points=[(w.at_s / 3600, v) for w in windows if (v := question.read(w)) is not None],
            )
            for question in QUESTIONS
        ),
        marks=tuple(marks),
        failures=tuple((k, str(n), found.examples.get(k, "")) for k, n in found.errors.items()),
        events=found.events,
    )


def _trend(trend: soak.Trend) -> tuple[str, ...]:
    if trend.slope_per_h is None or trend.interval is None or trend.level is None:
        return (trend.quantity, "-", "-", "-", trend.judgement)
    low, high = (show(v, trend.unit) for v in trend.interval)
    level, slope = show(trend.level, trend.unit), show(trend.slope_per_h, trend.unit)
    return (trend.quantity, level, slope, f"{low} to {high}", f"{trend.judgement}: {trend.because}")


def _words(workload: Workload) -> str:
    rate = f"{workload.qps:g} requests/s" if workload.qps else f"concurrency {workload.concurrency}"
    return f"{rate} {workload.arrivals}, prompts {workload.prompt_tokens}, outputs {workload.output_tokens}"


def _taken(folder: Path) -> Callable[[], None]:
    def tell() -> None:
        raise UsageError(
            f"another soak is at work on `{folder}`", hint=("wait for it, or name another folder with --out",)
        )

    return tell


def _quiet(_text: str, _share: float | None) -> None:
    pass
