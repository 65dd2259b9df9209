"""Screens of `mopt tune`."""

import math
from pathlib import Path

from model_optimizer.core.study import Duel, Paired, Score, Settings, Study, Trial
from model_optimizer.flow.study import Prepared
from model_optimizer.tune.ab import SideBySide

UNITS = {"goodput": "requests/s within the SLO", "energy": "tokens/J", "cost": "requests/s per money/h"}
SHOWN = 8


def space_text(prepared: Prepared) -> str:
    """What would be searched, and what is predicted of it."""
    question, guide = prepared.question, prepared.guide
    rows = [f"{prepared.model.name} on {prepared.study.host_name}, {question.plan.engine}"]
    rows += ["", "Settings that are tried (the default is marked)", ""]
    width = max(len(knob.name) for knob in question.knobs)
    for knob in question.knobs:
        values = "  ".join(f"[{v or 'unset'}]" if v == knob.default else v or "unset" for v in knob.values)
        rows.append(f"  {knob.name.ljust(width)}  {_short(values, 90)}")
        rows.append(f"  {' ' * width}  {knob.because}")
    size = math.prod(len(knob.values) for knob in question.knobs)
    rows += ["", f"{size:,} combinations; {question.trials} starts are spent on the search, then "]
    finals = question.repeats * (1 + question.finalists + question.ablate)
    rows[-1] += f"up to {finals} on the proof."
    rows += prepared.study.notes
    if guide is None:
        rows.append("Speed of this engine is not predicted: trials alone lead the search.")
    return "\n".join(rows) + "\n"


def study_text(study: Study, folder: Path) -> str:
    """The answer first, then why, then the trials."""
    rows = [_answer(study), ""]
    if study.finals:
        rows += [f"Proof: runs taken in turn, {_how(study)}", ""]
        rows += [f"  {_duel(study, found)}" for found in study.finals]
        rows.append("")
    if study.contributions:
        rows += ["What each setting gives (the best that was found beside the same without it)", ""]
        for part in study.contributions:
            back = part.back_to or "unset"
            rows.append(f"  {part.name}={_value(part.value)} (was {back}): {_ratio(part.verdict)}")
        rows.append("")
    rows += _trials(study)
    rows += [f"  {note}" for note in study.notes]
    rows += [f"  caution: {text}" for text in study.cautions]
    if study.unverified:
        rows.append(f"  not verified for quality: {', '.join(study.unverified)}")
    rows.append(f"Study: {folder}  (report.html, study.json, lock.json, log/)")
    return "\n".join(rows) + "\n"


def _how(study: Study) -> str:
    """Where the servers of the second look came from."""
    kinds = {run.resident for run in study.final_runs if run.value is not None}
    if kinds == {True}:
        times = max(run.sitting for run in study.final_runs)
        again = f", started {times} times" if times > 1 else ""
        return f"servers that stand by each other{again}"
    return "each with a start of its own" if kinds != {True, False} else "of both kinds (see below)"


def _answer(study: Study) -> str:
    if study.paused:
        return f"Not finished: {study.paused}. `mopt tune --resume` goes on."
    if study.winner is None:
        return f"The default stays: {study.because}."
    best = study.proven
    words = settings_text(best.b, study.default) if best is not None else "the plan of the winner"
    return f"Better: {words}\n{study.because}."


def settings_text(settings: Settings, default: Settings) -> str:
    """Only what differs from the default."""
    turned = [f"{n}={_value(v)}" for n, v in settings.items() if v != default.get(n)]
    return "  ".join(turned) or "default"


def _value(value: str) -> str:
    return _short(value, 40) if value else "unset"


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _duel(study: Study, found: Duel) -> str:
    words = f"{settings_text(found.b, study.default)}: {_ratio(found)}"
    if found.decision == "undecided" and found.runs_needed:
        words += f"; about {found.runs_needed} runs of each would decide"
    for part in found.shapes:
        words += f"\n    {part.shape}: {part.ratio:.3f} x{_span(part.interval)}, {part.decision}"
        words += _pairs(part.paired)
    return words


def _ratio(found: Duel) -> str:
    if found.ratio is None:
        return f"{found.decision}, {found.because}"
    runs = f"{len(found.a_values)} and {len(found.b_values)} runs"
    if found.interval is None:
        return f"{found.ratio:.3f} x, {found.decision} ({runs}: {found.because})"
    if found.decided_by == "paired" and found.paired is not None:
        pairs = f"{found.paired.ratio:.3f} x{_span(found.paired.interval)}"
        welch = f"Welch{_span(found.interval)}, {_of(found.interval)}"
        return f"{pairs}, {found.decision} ({found.paired.pairs} pairs of one round each; {welch})"
    return f"{found.ratio:.3f} x{_span(found.interval)}, {found.decision} ({runs}){_pairs(found.paired)}"


def _span(interval: tuple[float, float] | None) -> str:
    return f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else ""


def _pairs(found: Paired | None) -> str:
    if found is None:
        return ""
    return f"; {found.pairs} pairs of one round each say{_span(found.interval)}"


def _of(interval: tuple[float, float] | None) -> str:
    if interval is None or interval[0] <= 1 <= interval[1]:
        return "undecided"
    return "better" if interval[0] > 1 else "worse"


def _trials(study: Study) -> list[str]:
    """The best ones, and those that failed."""
    first = next((t.score for t in study.trials if t.score is not None), None)
    good = [t for t in study.trials if t.score is not None]
    good.sort(key=lambda t: (t.score.value, t.score.signal) if t.score else (0.0, 0.0), reverse=True)
    bad = [t for t in study.trials if t.score is None]
    unit = UNITS[study.objective]
    rows = [f"Trials: {len(study.trials)} of {study.combinations:,} combinations; {unit}", ""]
    for trial in good[:SHOWN]:
        rows.append(f"  {_trial(trial, study, first)}")
    if len(good) > SHOWN:
        rows.append(f"  and {len(good) - SHOWN} more")
    for trial in bad:
        what = settings_text(trial.settings, study.default)
        rows.append(f"  failed: {what}: {_short(trial.because or '', 120)}")
    if study.predicted_error is not None:
        rows.append(
            f"  predicted ratios to the default were off by {study.predicted_error:.0%} in the median"
        )
    return [*rows, ""]


def _trial(trial: Trial, study: Study, first: Score | None) -> str:
    found = trial.score
    assert found is not None
    ratio = f"{found.value / first.value:.2f} x" if first is not None and first.value > 0 else "-"
    words = f"{found.value:9.3f}  {ratio:>7}  at {found.level}"
    if trial.state == "aborted":
        words += ", given up after the probe"
    if trial.seconds is not None:
        words += f", {trial.seconds:.0f} s"
    return f"{words}  {settings_text(trial.settings, study.default)}"


def pair_text(pair: SideBySide, folder: Path) -> str:
    """The verdict, what differs, and what each difference is worth."""
    rows = [f"b beside a: {_ratio(pair.duel)}", f"{pair.because}.", ""]
    if pair.differences:
        rows += ["What differs", ""]
        for found in pair.differences:
            a, b = _value(found.a), _value(found.b)
            rows.append(f"  {found.name}: {a} in a, {b} in b ({found.because})")
        rows.append("")
    if pair.explained:
        rows += ["b with one difference put back, beside b as it is", ""]
        for part in pair.explained:
            rows.append(f"  {part.name}={_value(part.back_to)}: {_ratio(part.verdict)}")
        rows.append("")
    rows.append(f"Kept in {folder}")
    return "\n".join(rows) + "\n"
