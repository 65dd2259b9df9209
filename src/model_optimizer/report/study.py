"""The report of a search for the best settings: the answer, the proof, what each setting gave, all trials."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from model_optimizer.core.study import Duel, Paired, Settings, Study, Trial

from .page import render
from .words import clean, load_words, slo_words

Table = Sequence[Sequence[str]]
"""Rows of cells; the first are the headings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading, a table below it, and a sentence that says how to read it."""

    title: str
    table: Table
    reads: str = ""


def study_html(study: Study) -> str:
    """The whole page; opens offline."""
    return render(
        "study.html.jinja",
        title=_title(study),
        answer=_answer(study),
        good=study.proven is not None and not study.paused,
        facts=_facts(study),
        sections=_sections(study),
        cautions=study.cautions,
        notes=study.notes,
    )


def study_markdown(study: Study) -> str:
    """The same as text."""
    lines = [f"# {clean(_title(study))}", "", f"**{clean(_answer(study))}**", ""]
    lines += [f"- {what}: {clean(text)}" for what, text in _facts(study)]
    lines += [f"- caution: {clean(text)}" for text in study.cautions]
    for section in _sections(study):
        lines += ["", f"## {section.title}", "", *_rows(section.table)]
        lines += ["", section.reads] if section.reads else []
    if study.notes:
        lines += ["", "## How it was run", "", *(f"- {clean(note)}" for note in study.notes)]
    return "\n".join(lines) + "\n"


def _rows(table: Table) -> list[str]:
    head, *rest = [f"| {' | '.join(clean(cell) for cell in row)} |" for row in table]
    return [head, f"|{'---|' * len(table[0])}", *rest]


def _title(study: Study) -> str:
    return f"Settings of {study.plan.model} with {study.plan.engine}"


def _answer(study: Study) -> str:
    if study.paused:
        return f"Not finished: {study.paused}"
    best = study.proven
    if best is None:
        return f"The default stays: {study.because or 'nothing was proven better'}"
    return f"Better: {_settings(best.b, study.default)}, {study.because}"


def _facts(study: Study) -> list[tuple[str, str]]:
    plan = study.plan
    release = f" {plan.engine_version}" if plan.engine_version else ""
    found = [
        ("engine", f"{plan.engine}{release}, {plan.scheme}"),
        ("machine", study.host_name or "unknown"),
        ("objective", study.objective),
        ("limits", slo_words(plan.slo)),
    ]
    if study.shapes:
        each = "; ".join(f"{s.name}: {s.prompt_tokens} / {s.output_tokens}" for s in study.shapes)
        found.append(("workloads (prompt / output tokens)", each))
    else:
        found.append(("load", load_words(plan.workload)))
    found.append(("levels", ", ".join(f"{level:g}" for level in study.levels)))
    found.append(("trials", f"{len(study.trials)} of {study.combinations:,} combinations"))
    if study.unverified:
        found.append(("not verified for quality", ", ".join(study.unverified)))
    if study.predicted_error is not None:
        found.append(("predicted ratios were off by", f"{study.predicted_error:.0%} in the median"))
    return found


def _sections(study: Study) -> list[Section]:
    made: list[Section] = []
    if study.finals:
        rows = [_duel(_settings(d.b, study.default), d) for d in study.finals]
        shapes = [
            (f"the same, {s.shape} alone", f"{s.ratio:.3f}", _span(s.interval), _pairs(s.paired), s.decision)
            for d in study.finals
            for s in d.shapes
        ]
        made.append(
            Section(title="Is it better than the default?", table=[_HEAD, *rows, *shapes], reads=_RULE)
        )
    if study.contributions:
        rows = [
            _duel(f"{c.name}={c.value or 'unset'} (was {c.back_to or 'unset'})", c.verdict)
            for c in study.contributions
        ]
        made.append(Section(title="What does each setting give?", table=[_HEAD, *rows]))
    made.append(Section(title="What was tried?", table=[_TRIALS, *_trials(study)]))
    if study.final_runs:
        made.append(Section(title="The runs of the second look", table=_runs(study)))
    return made


_HEAD = ("settings", "ratio", "Welch, 95 %", "pairs of one round, 95 %", "verdict")
_RULE = (
    "Where servers stood by each other and four rounds or more measured both, the pairs decide; elsewhere "
    "Welch's interval does."
)
_TRIALS = (
    "settings", "state", "value", "ratio", "predicted ratio", "level", "KV cache tokens", "predicted",
    "start",
)  # fmt: skip


def _duel(name: str, found: Duel) -> tuple[str, ...]:
    ratio = "-" if found.ratio is None else f"{found.ratio:.3f}"
    return name, ratio, _span(found.interval), _pairs(found.paired), found.decision


def _pairs(found: Paired | None) -> str:
    return f"{_span(found.interval)} ({found.pairs} pairs)" if found else "-"


def _span(interval: tuple[float, float] | None) -> str:
    return f"{interval[0]:.3f} to {interval[1]:.3f}" if interval else "-"


def _settings(settings: Settings, default: Settings) -> str:
    turned = [f"{name}={value or 'unset'}" for name, value in settings.items() if value != default.get(name)]
    return ", ".join(turned) or "default"


def _trials(study: Study) -> list[tuple[str, ...]]:
    base = next((t for t in study.trials if t.settings == study.default), None)
    ranked = sorted(study.trials, key=lambda t: t.score.value if t.score else -math.inf, reverse=True)
    return [_trial(trial, base, study.default) for trial in ranked]


def _trial(trial: Trial, base: Trial | None, default: Settings) -> tuple[str, ...]:
    value = trial.score.value if trial.score else None
    first = base.score.value if base and base.score else None
    predicted = "-"
    if trial.predicted is not None and base is not None and base.predicted is not None:
        predicted = f"{math.exp(trial.predicted - base.predicted):.2f}"
    return (
        _settings(trial.settings, default),
        f"{trial.state}: {trial.because}" if trial.because else trial.state,
        "-" if value is None else f"{value:.3f}",
        "-" if value is None or not first else f"{value / first:.2f}",
        predicted,
        trial.score.level if trial.score else "-",
        _count(trial.kv_cache_tokens),
        _count(trial.kv_cache_tokens_predicted),
        "-" if trial.start_s is None else f"{trial.start_s:.0f} s",
    )


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _runs(study: Study) -> Table:
    """A column for each arm, a row for each round."""
    runs = sorted(study.final_runs, key=lambda run: run.turn)
    arms: Mapping[str, None] = dict.fromkeys(_settings(run.settings, study.default) for run in runs)
    cells: dict[tuple[str, str], str] = {}
    for run in runs:
        where = "side by side" if run.resident else "own start"
        row = f"{where}, round {run.round}" if run.round else where
        old = cells.get((row, arm := _settings(run.settings, study.default)))
        mine = "failed" if run.value is None else f"{run.value:.3f}"
        cells[row, arm] = f"{old}, {mine}" if old else mine
    names = dict.fromkeys(row for row, _ in cells)
    return [("round", *arms), *((row, *(cells.get((row, arm), "-") for arm in arms)) for row in names)]
