"""The search itself: the default first, proposals while the budget lasts, then the second look."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from model_optimizer.core import MoptError, Plan, Progress
from model_optimizer.core.study import Knob, Prior, Score, Settings, Study, Trial

from . import objective, space, surrogate
from .cautions import cautions
from .objective import Aim
from .second_look import Finalists, Look, Shared, look
from .turns import Budget, Execute, Order, Outcome, Paused, endless

HOPELESS = 0.7
"""A short probe below this share of the best value so far ends the trial. ASSUMED."""

BROKEN_STARTS = 4
"""So many failures in a row, before anything worked, end the study: something else is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions:
    """What the search is handed.

    `refuse` says why a plan cannot start, None when it can. `predict` is the logarithm of what it should be
    worth, None when nobody can tell. `execute` carries out orders, `workers` at a time, and yields each
    as it ends; with `at_once` the first batch is the default with others. `share` gives servers that stand by
    each other for the second look, `apart` says what cannot be judged so. `now` is a clock in seconds,
    `saved` is called whenever the study has changed, `budget` says when to pause.
    """

    refuse: Callable[[Plan], str | None]
    predict: Callable[[Plan], float | None]
    execute: Execute
    now: Callable[[], float]
    saved: Callable[[Study], None]
    workers: int = 1
    at_once: bool = False
    share: Callable[[Sequence[Order]], Shared | str] = field(
        default=lambda orders: "servers that stand by each other were not offered"
    )
    apart: Callable[[Plan], str | None] = field(default=lambda plan: None)
    budget: Budget = field(default_factory=endless)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneQuestion:
    """`plans` has the plan of each number format. `trials` and `limit_s` bound the search, not the finals:
    `finalists` x `repeats` runs, and `ablate` settings of the winner put back, `repeats` times each.
    `second_look` is auto, resident or restart.
    """

    plan: Plan
    knobs: tuple[Knob, ...]
    aim: Aim
    levels: tuple[float, ...]
    plans: Mapping[str, Plan] = field(default_factory=dict[str, Plan])
    trials: int = 12
    limit_s: float | None = None
    finalists: int = 2
    repeats: int = 3
    ablate: int = 2
    seed: int = 0
    storage: str | None = None
    priors: tuple[Prior, ...] = ()
    second_look: str = "auto"


def tune(
    question: TuneQuestion, functions: Functions, folder: Path, study: Study, progress: Progress
) -> Study:
    """Search, prove, explain. `study` is empty or what an earlier run left; it grows and is saved.

    Raises ToolError when not even the default can be measured, HostError for a study that cannot be kept.
    """
    job = _Job(question, functions, folder, study, progress)
    try:
        job.search()
        job.second_look()
    except Paused:
        return job.pause()
    return job.finish()


class _Job:
    def __init__(
        self, question: TuneQuestion, functions: Functions, folder: Path, study: Study, progress: Progress
    ) -> None:
        from .sampler import PriorSampler
        from .store import Store

        self._q, self._f, self._folder, self._progress = question, functions, folder, progress
        self._default = {knob.name: knob.default for knob in question.knobs}
        progress("working out what can start", None)
        kept, refused, size = space.combinations(question.knobs, self._refuse, seed=question.seed)
        if self._default not in kept:
            kept.insert(0, dict(self._default))
        self._candidates = kept
        self._predicted = [functions.predict(self._plan(c)) for c in kept]
        self._store = Store(
            folder,
            question.storage,
            PriorSampler(
                question.knobs,
                kept,
                self._predicted,
                priors=[(p.settings, math.log(p.ratio)) for p in question.priors if p.ratio > 0],
                seed=question.seed,
            ),
            question.knobs,
        )
        notes = tuple(f"{count} combinations were not tried: {why}" for why, count in refused.items())
        if dropped := self._store.drop_interrupted():
            notes += (f"{dropped} trials were broken off by an earlier end and are open again",)
        self.study = dataclasses.replace(
            study, combinations=size, notes=_once((*study.notes, *notes)), trials=tuple(self._store.trials())
        )
        self._begun = functions.now()

    # -- the search

    def search(self) -> None:
        self._recall()
        if not self.study.trials:
            others = min(self._room(), self._f.workers) - 1 if self._f.at_once else 0
            self._run([self._ask(self._default), *(self._ask() for _ in range(others))])
            first = next(t for t in self.study.trials if t.settings == self._default)
            if first.score is None:
                from model_optimizer.core import ToolError

                raise ToolError(
                    "the default plan could not be measured, so there is nothing to improve on",
                    cause=(first.because or first.state,),
                    hint=("mend that first: `mopt serve` with the same plan shows it alone",),
                    reference=first.reference or "no-default",
                )
        while (room := self._room()) > 0 and not self._store.exhausted():
            self._require_hope()
            self._f.budget.require("trial")
            batch = [self._ask() for _ in range(min(room, self._f.workers))]
            self._run(batch)

    def _recall(self) -> None:
        """What took how long in earlier sittings, for the pause."""
        trials, budget = self.study.trials, self._f.budget
        start = max((t.start_s or 0.0 for t in trials), default=0.0)
        load = max(((t.seconds or 0.0) - (t.start_s or 0.0) for t in trials), default=0.0)
        budget.took("open", start)
        budget.took("trial", start + load * self._f.workers)
        for run in self.study.final_runs:
            budget.took("turn", run.seconds)

    def _room(self) -> int:
        if self._q.limit_s is not None and self._f.now() - self._begun > self._q.limit_s:
            return 0
        return self._q.trials - len(self.study.trials)

    def _require_hope(self) -> None:
        tail = self.study.trials[1:]
        if len(tail) >= BROKEN_STARTS and all(t.state == "failed" for t in tail[-BROKEN_STARTS:]):
            from model_optimizer.core import ToolError

            raise ToolError(
                f"the last {BROKEN_STARTS} starts all failed",
                cause=tuple(dict.fromkeys(t.because or t.state for t in tail[-BROKEN_STARTS:])),
                hint=("`mopt tune --resume` goes on when the cause is mended",),
                reference="starts-fail",
            )

    def _ask(self, settings: Settings | None = None) -> tuple[Any, Order]:
        handle, chosen = self._store.ask(dict(settings) if settings is not None else None)
        best = self._best()
        return handle, Order(
            number=handle.number,
            plan=self._plan(chosen),
            settings=chosen,
            hopeless_below=best.value * HOPELESS if best is not None and best.value > 0 else None,
            base=self._base(),
        )

    def _base(self) -> dict[str, float]:
        """What the default was worth under each shape of load."""
        found = next((t.score for t in self.study.trials if t.settings == self._default), None)
        return dict(found.shapes) if found is not None else {}

    def _run(self, batch: Sequence[tuple[Any, Order]]) -> None:
        """Carry out and tell; whatever is still open when this ends by force is told to be interrupted."""
        open_ = {order.number: handle for handle, order in batch}
        count = len(self.study.trials)
        self._progress(f"trial {count + 1} of {self._q.trials}", count / max(self._q.trials, 1))
        try:
            with self._f.budget.spent("trial"):
                for order, outcome in self._f.execute([order for _, order in batch]):
                    trial = self._trial(order, outcome)
                    self._store.tell(open_.pop(order.number), trial)
                    self._f.budget.took("open", trial.start_s)
                    self._grow(trials=(*self.study.trials, trial))
        finally:
            for handle in open_.values():
                self._store.interrupt(handle)

    def _trial(self, order: Order, outcome: Outcome) -> Trial:
        found = objective.score(outcome.points, self._q.aim, outcome.shapes, self._base())
        state = outcome.state if found is not None or outcome.state == "failed" else "failed"
        by = "default" if order.settings == self._default else "prediction and trials"
        return Trial(
            number=order.number,
            state=state,
            settings=order.settings,
            proposed_by=by,
            predicted=self._predicted_of(order.settings),
            score=found if state != "failed" else None,
            points=outcome.points,
            kv_cache_tokens=outcome.kv_cache_tokens,
            kv_cache_tokens_predicted=outcome.kv_cache_tokens_predicted,
            because=outcome.because or (None if found is not None else "nothing was measured"),
            reference=outcome.reference,
            start_s=outcome.start_s,
            seconds=outcome.seconds,
            worker=outcome.worker,
            shapes=outcome.shapes,
            beside=outcome.beside,
            preemptions=outcome.preemptions,
        )

    # -- the second look

    def second_look(self) -> None:
        """Finalists, the default, and the winner with single settings put back, all in one sequence."""
        chosen = self._finalists()
        if not chosen or self._q.repeats < 1:
            return
        finalists = Finalists(
            default=self._default, chosen=tuple(chosen), back=tuple(self._largest(chosen[0]))
        )
        look(
            finalists,
            Look(
                plan=self._plan,
                aim=self._q.aim,
                execute=self._f.execute,
                share=self._f.share,
                apart=self._f.apart,
                how=self._q.second_look,
                repeats=self._q.repeats,
                seed=self._q.seed,
                levels=partial(self._levels_of, finalists),
                base=self._base(),
                progress=self._progress,
                budget=self._f.budget,
                study=lambda: self.study,
                grow=self._grow,
                note=self._note,
            ),
        )

    def _levels_of(self, finalists: Finalists, arm: Settings) -> dict[str, tuple[float, ...]]:
        """The loads at which it was worth most in the search. One that was not tried begins with those of the
        others, and goes on with the best of them."""
        seen = {
            tuple(sorted(t.settings.items())): objective.best_levels(t.points, self._q.aim, t.shapes)
            for t in self.study.trials
            if t.state == "measured"
        }
        named = [tuple(sorted(settings.items())) for _, settings in finalists.named]
        for run in sorted(self.study.final_runs, key=lambda run: run.turn):
            if run.value is not None:
                best = objective.best_levels(run.points, self._q.aim, run.shapes)
                seen.setdefault(tuple(sorted(run.settings.items())), best)
        own = seen.get(tuple(sorted(arm.items())))
        from_ = [own] if own else [seen[key] for key in named if key in seen]
        found: dict[str, set[float]] = {}
        for levels in from_:
            for shape, level in levels.items():
                found.setdefault(shape, set()).add(level)
        return {shape: tuple(sorted(levels)) for shape, levels in found.items()}

    def _finalists(self) -> list[Settings]:
        """The best settings that are not the default, by what was measured."""
        ranked = sorted(
            (t for t in self.study.trials if t.score is not None and t.state == "measured"),
            key=lambda t: (t.score.value, t.score.signal) if t.score else (0.0, 0.0),
            reverse=True,
        )
        found: list[Settings] = []
        for trial in ranked:
            if trial.settings == self._default:
                break
            if trial.settings not in found:
                found.append(trial.settings)
        return found[: self._q.finalists]

    def _largest(self, best: Settings) -> list[str]:
        """The settings of the winner that the belief gives most to."""
        changed = space.changes(best, self._default)
        back = {name: self._default[name] for name in changed}
        lost = surrogate.effects(self._store.believed(), self._candidates, best, back)
        return list(lost)[: self._q.ablate] if len(changed) > 1 else []

    # -- the end

    def pause(self) -> Study:
        """The time that was given is used up: no verdict before all runs are there."""
        done = sum(run.value is not None for run in self.study.final_runs)
        self._grow(
            winner=None,
            paused=f"paused after {len(self.study.trials)} trials and {done} runs of the second look",
        )
        return self.study

    def finish(self) -> Study:
        best = self.study.proven
        winner, because = None, "no finalist was proven better"
        if best is not None:
            winner = self._plan(best.b)
            because = f"{best.ratio:.3g} times the default's {self._q.aim.objective}, in runs taken in turn"
        elif not self.study.finals:
            because = "no setting that was tried beat the default"
        scores = [(t.number, t.score) for t in self.study.trials if t.score is not None]
        self._grow(
            winner=winner,
            because=because,
            paused=None,
            pareto=objective.pareto(scores),
            predicted_error=_prediction_error(self.study.trials),
        )
        return self.study

    # -- small things

    def _plan(self, settings: Settings) -> Plan:
        return space.applied(self._q.plan, settings, self._default, self._q.plans)

    def _refuse(self, settings: Settings) -> str | None:
        try:
            return self._f.refuse(self._plan(settings))
        except MoptError as error:
            return error.message

    def _predicted_of(self, settings: Settings) -> float | None:
        try:
            return self._predicted[self._candidates.index(dict(settings))]
        except ValueError:
            return None

    def _best(self) -> Score | None:
        scores = [t.score for t in self.study.trials if t.score is not None]
        return max(scores, key=lambda s: s.value) if scores else None

    def _note(self, text: str) -> None:
        self._grow(notes=_once((*self.study.notes, text)))

    def _grow(self, **fields: Any) -> None:
        self.study = dataclasses.replace(self.study, **fields)
        if fields.keys() & {"trials", "final_runs"}:
            self.study = dataclasses.replace(self.study, cautions=cautions(self.study))
        self._f.saved(self.study)


def _once(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))


def _prediction_error(trials: Sequence[Trial]) -> float | None:
    """Median of |measured ratio to default / predicted ratio - 1|, over trials with both."""
    pairs = [(t.predicted, t.score.signal) for t in trials if t.predicted is not None and t.score is not None]
    if len(pairs) < 2:
        return None
    base = pairs[0]
    errors = sorted(abs(math.exp((s - base[1]) - (p - base[0])) - 1) for p, s in pairs[1:])
    return errors[len(errors) // 2]
