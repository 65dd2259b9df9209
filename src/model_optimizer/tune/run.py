"""The search itself: the default first, proposals while the budget lasts, then the second look."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model_optimizer.core import LoadPoint, MoptError, Plan, Progress
from model_optimizer.core.study import FinalRun, Knob, Prior, Score, Settings, Study, Trial, TrialState

from . import finals, objective, space, surrogate
from .objective import Aim

HOPELESS = 0.7
"""A short probe below this share of the best value so far ends the trial. ASSUMED."""

BROKEN_STARTS = 4
"""So many failures in a row, before anything worked, end the study: something else is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One start to carry out. After the short probe it ends when its value is under `hopeless_below`.

    `thorough` runs skip the probe: they are for the record.
    """

    number: int
    plan: Plan
    settings: Settings
    hopeless_below: float | None = None
    thorough: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of an order. `reference` is the name of the error when it failed."""

    state: TrialState
    points: tuple[LoadPoint, ...] = ()
    because: str | None = None
    reference: str | None = None
    start_s: float | None = None
    seconds: float | None = None
    kv_cache_tokens: int | None = None
    kv_cache_tokens_predicted: int | None = None
    worker: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions:
    """What the search is handed.

    `refuse` says why a plan cannot start, None when it can. `predict` is the logarithm of what it should be
    worth, None when nobody can tell. `execute` carries out orders, `workers` at a time, and yields each
    as it ends. `now` is a clock in seconds, `saved` is called whenever the study has changed.
    """

    refuse: Callable[[Plan], str | None]
    predict: Callable[[Plan], float | None]
    execute: Callable[[Sequence[Order]], Iterator[tuple[Order, Outcome]]]
    now: Callable[[], float]
    saved: Callable[[Study], None]
    workers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneQuestion:
    """`plans` has the plan of each number format. `trials` and `limit_s` bound the search, not the finals:
    `finalists` x `repeats` runs, and `ablate` settings of the winner put back, `repeats` times each.
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


def tune(
    question: TuneQuestion, functions: Functions, folder: Path, study: Study, progress: Progress
) -> Study:
    """Search, prove, explain. `study` is empty or what an earlier run left; it grows and is saved.

    Raises ToolError when not even the default can be measured, HostError for a study that cannot be kept.
    """
    job = _Job(question, functions, folder, study, progress)
    job.search()
    job.second_look()
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
        if not self.study.trials:
            self._run([self._ask(self._default)])
            first = self.study.trials[-1]
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
            batch = [self._ask() for _ in range(min(room, self._f.workers))]
            self._run(batch)

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
        )

    def _run(self, batch: Sequence[tuple[Any, Order]]) -> None:
        """Carry out and tell; whatever is still open when this ends by force is told to be interrupted."""
        open_ = {order.number: handle for handle, order in batch}
        count = len(self.study.trials)
        self._progress(f"trial {count + 1} of {self._q.trials}", count / max(self._q.trials, 1))
        try:
            for order, outcome in self._f.execute([order for _, order in batch]):
                trial = self._trial(order, outcome)
                self._store.tell(open_.pop(order.number), trial)
                self._grow(trials=(*self.study.trials, trial))
        finally:
            for handle in open_.values():
                self._store.interrupt(handle)

    def _trial(self, order: Order, outcome: Outcome) -> Trial:
        found = objective.score(outcome.points, self._q.aim)
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
        )

    # -- the second look

    def second_look(self) -> None:
        """Finalists, the default, and the winner with single settings put back, all in one sequence."""
        chosen = self._finalists()
        if not chosen or self._q.repeats < 1:
            return
        best = chosen[0]
        back = self._largest(best)
        without = [{**best, name: self._default[name]} for name in back]
        arms: list[Settings] = [self._default, *chosen, *without]
        # An arm that equals another (a winner with one change, put back) shares its runs.
        places = [arms.index(arm) for arm in arms]
        unique = sorted(set(places))
        values: dict[int, list[float]] = {place: [] for place in unique}
        sequence = finals.order(len(unique), self._q.repeats, self._q.seed)
        for turn, which in enumerate(sequence):
            self._progress(f"second look {turn + 1} of {len(sequence)}", turn / len(sequence))
            arm = arms[place := unique[which]]
            done = self._done(turn, arm) or self._final(turn, arm)
            if done is None or done.value is None:
                self._note(f"run {turn + 1} of the second look failed: {done.because if done else 'lost'}")
            else:
                values[place].append(done.value)
            self._decide(chosen, back, places, values)

    def _done(self, turn: int, arm: Settings) -> FinalRun | None:
        """A run that an earlier process made, when it was this one."""
        found = next((r for r in self.study.final_runs if r.turn == turn), None)
        return found if found is not None and found.settings == arm else None

    def _final(self, turn: int, arm: Settings) -> FinalRun | None:
        made: FinalRun | None = None
        order = Order(number=turn, plan=self._plan(arm), settings=arm, thorough=True)
        for _, outcome in self._f.execute([order]):
            found = objective.score(outcome.points, self._q.aim) if outcome.state != "failed" else None
            made = FinalRun(
                turn=turn,
                settings=arm,
                value=found.value if found else None,
                points=outcome.points,
                because=outcome.because,
            )
            others = tuple(r for r in self.study.final_runs if r.turn != turn)
            self._grow(final_runs=(*others, made))
        return made

    def _decide(
        self,
        chosen: Sequence[Settings],
        back: Sequence[str],
        places: Sequence[int],
        values: Mapping[int, Sequence[float]],
    ) -> None:
        base = values[places[0]]
        duels = tuple(
            finals.duel(self._default, arm, base, values[places[1 + i]]) for i, arm in enumerate(chosen)
        )
        lost = {name: values[places[1 + len(chosen) + i]] for i, name in enumerate(back)}
        self._grow(
            finals=duels,
            contributions=finals.contributions(chosen[0], self._default, back, values[places[1]], lost),
        )

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

    def finish(self) -> Study:
        better = [d for d in self.study.finals if d.decision == "better"]
        winner, because = None, "no finalist was proven better than the default, so the default stays"
        if better:
            best = max(better, key=lambda d: (d.interval or (0.0, 0.0))[0])
            winner = self._plan(best.b)
            because = f"{best.ratio:.3g} times the default's {self._q.aim.objective}, in runs taken in turn"
        elif not self.study.finals:
            because = "no setting that was tried beat the default"
        scores = [(t.number, t.score) for t in self.study.trials if t.score is not None]
        self._grow(
            winner=winner,
            because=because,
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
