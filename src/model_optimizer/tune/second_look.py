"""The second look: finalists, the default, and the winner with single settings put back, in turn.

Where memory allows, every arm's server is started once and stands by while another is loaded, so that the
arms of a round are measured seconds apart. What is worth its memory cannot be judged so: such arms, and
those that they are compared with, get a start for every run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from model_optimizer.core import HostError, Plan, Progress
from model_optimizer.core.study import Contribution, Duel, FinalRun, Settings, Study

from . import finals, objective
from .objective import Aim
from .turns import Arm, Budget, Execute, Open, Order, Outcome, each_alone, in_turn

RESIDENT = "resident"
RESTART = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A bench whose servers stand by each other; `because` says how they share the memory."""

    open: Open
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalists:
    """Who is compared: `chosen`, best first, with the default, and the best with each of `back` put back."""

    default: Settings
    chosen: tuple[Settings, ...]
    back: tuple[str, ...]

    def without(self, name: str) -> dict[str, str]:
        return {**self.chosen[0], name: self.default[name]}

    @property
    def named(self) -> tuple[tuple[str, Settings], ...]:
        """Every arm once: a winner with one change, put back, is the default."""
        found: dict[tuple[tuple[str, str], ...], tuple[str, Settings]] = {
            _key(self.default): ("default", self.default)
        }
        for place, settings in enumerate(self.chosen):
            found.setdefault(_key(settings), (f"finalist {place + 1}", settings))
        for name in self.back:
            settings = self.without(name)
            found.setdefault(_key(settings), (f"finalist 1 without {name}", settings))
        return tuple(found.values())

    @property
    def pairs(self) -> tuple[tuple[Settings, Settings], ...]:
        chosen = [(self.default, settings) for settings in self.chosen]
        return (*chosen, *((self.without(name), self.chosen[0]) for name in self.back))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a second look is handed. `share` gives servers that stand by each other, or says why not; `apart`
    says why a plan cannot be judged so. `how` is auto, resident (or an error) or restart. `levels` are the
    loads of an arm, by shape.
    """

    plan: Callable[[Settings], Plan]
    aim: Aim
    execute: Execute
    share: Callable[[Sequence[Order]], Shared | str]
    apart: Callable[[Plan], str | None]
    how: str
    repeats: int
    seed: int
    levels: Callable[[Settings], Mapping[str, tuple[float, ...]]]
    base: Mapping[str, float]
    progress: Progress
    budget: Budget
    study: Callable[[], Study]
    grow: Callable[..., None]
    note: Callable[[str], None]


@dataclass(slots=True)
class _Sides:
    """Which arms stand by each other and which start for every run."""

    resident: list[Arm] = field(default_factory=list[Arm])
    alone: list[Arm] = field(default_factory=list[Arm])


def look(finalists: Finalists, given: Look) -> None:
    """Measure all arms and keep each run, each verdict; what an earlier process measured is not repeated."""
    arms = [Arm(name=name, plan=given.plan(s), settings=s) for name, s in finalists.named]
    sides = _sides(finalists, arms, given)
    shared = _shared(sides, arms, given)
    if shared is not None:
        _take(sides.resident, shared.open, finalists, given, resident=True)
        if not _values(given.study(), finalists.default, resident=True):
            given.note("the default gave no value beside others, so all arms were started for every run")
            sides.alone = arms
    _take(sides.alone, each_alone(given.execute), finalists, given, resident=False)


def _sides(finalists: Finalists, arms: Sequence[Arm], given: Look) -> _Sides:
    if given.how == RESTART:
        return _Sides(alone=list(arms))
    reasons = {_key(arm.settings): given.apart(arm.plan) for arm in arms}
    together: set[Any] = set()
    alone: set[Any] = set()
    for one, two in finalists.pairs:
        keys = {_key(one), _key(two)}
        (alone if any(reasons[k] for k in keys) else together).update(keys)
    for arm in arms:
        if reason := reasons[_key(arm.settings)]:
            given.note(f"{arm.name} was started for every run: {reason}")
    return _Sides(
        resident=[arm for arm in arms if _key(arm.settings) in together],
        alone=[arm for arm in arms if _key(arm.settings) in alone],
    )


def _shared(sides: _Sides, arms: Sequence[Arm], given: Look) -> Shared | None:
    """The bench of the resident ones; where there is none, all are started for every run."""
    if not sides.resident:
        return None
    orders = [
        Order(
            number=0, plan=arm.plan, settings=arm.settings, thorough=True, levels=given.levels(arm.settings)
        )
        for arm in sides.resident
    ]
    found = given.share(orders)
    if isinstance(found, Shared):
        given.note(f"second look with servers that stand by each other: {found.because}")
        return found
    if given.how == RESIDENT:
        raise HostError(
            "the servers of the second look cannot stand by each other",
            cause=(found,),
            hint=("`--second-look auto` starts one for every run instead", "or ask for a smaller load"),
            reference="not-side-by-side",
        )
    given.note(f"every run of the second look had a start of its own: {found}")
    sides.resident, sides.alone = [], list(arms)
    return None


def _take(arms: Sequence[Arm], open_: Open, finalists: Finalists, given: Look, *, resident: bool) -> None:
    earlier = [r.sitting for r in given.study().final_runs if r.resident == resident]
    sitting = 1 + max(earlier, default=0)

    def done(turn: int, arm: Arm) -> bool:
        return any(
            run.turn == turn and run.resident == resident and run.settings == arm.settings
            for run in given.study().final_runs
        )

    def taken(turn: int, arm: Arm, outcome: Outcome) -> None:
        run = _run(turn, arm, outcome, given, resident=resident, sitting=sitting)
        run = replace(run, round=turn // len(arms) + 1)
        if run.value is None:
            given.note(f"run {turn + 1} of the second look failed ({arm.name}): {run.because}")
        others = (r for r in given.study().final_runs if (r.turn, r.resident) != (turn, resident))
        given.grow(final_runs=(*others, run))
        _keep_verdicts(finalists, given)

    in_turn(
        arms,
        open_,
        repeats=given.repeats,
        seed=given.seed,
        done=done,
        taken=taken,
        progress=lambda text, share: given.progress(f"second look, {text}", share),
        budget=given.budget,
        levels=lambda arm: given.levels(arm.settings),
        base=given.base,
    )
    _keep_verdicts(finalists, given)


def _run(turn: int, arm: Arm, outcome: Outcome, given: Look, *, resident: bool, sitting: int) -> FinalRun:
    found = None
    if outcome.state != "failed":
        found = objective.score(outcome.points, given.aim, outcome.shapes, given.base)
    return FinalRun(
        turn=turn,
        settings=arm.settings,
        value=found.value if found else None,
        points=outcome.points,
        because=outcome.because or (None if found else "nothing was measured"),
        shapes=outcome.shapes,
        by_shape=found.shapes if found else {},
        resident=resident,
        sitting=sitting if resident else 1,
        beside=outcome.beside,
        preemptions=outcome.preemptions,
        seconds=outcome.seconds,
    )


def _keep_verdicts(finalists: Finalists, given: Look) -> None:
    """The verdicts that the runs so far give."""
    study = given.study()
    contributions = tuple(
        Contribution(
            name=name,
            value=finalists.chosen[0][name],
            back_to=finalists.default[name],
            verdict=_duel(finalists.without(name), finalists.chosen[0], study),
        )
        for name in finalists.back
    )
    duels = tuple(_duel(finalists.default, settings, study) for settings in finalists.chosen)
    given.grow(finals=duels, contributions=contributions)


def _duel(a: Settings, b: Settings, study: Study) -> Duel:
    """Of runs of one kind: those of servers that stood by where both arms have some, else of own starts."""
    resident = all(_values(study, arm, resident=True) for arm in (a, b))
    one, two = (_values(study, arm, resident=resident) for arm in (a, b))
    return finals.duel(a, b, one, two, resident=resident)


def _values(study: Study, settings: Settings, *, resident: bool) -> list[FinalRun]:
    return [
        run
        for run in sorted(study.final_runs, key=lambda run: run.turn)
        if run.resident == resident and run.settings == settings and run.value is not None
    ]


def _key(settings: Settings) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(settings.items()))
