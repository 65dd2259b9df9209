"""Two plans side by side, and when the second is slower, which of their differences explains it."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from model_optimizer.core import Plan, Progress, Setting
from model_optimizer.core.study import Contribution, Duel, FinalRun

from . import finals, objective
from .objective import Aim
from .second_look import Shared
from .turns import Arm, Execute, Order, Outcome, each_alone, endless, in_turn

A, B = "a", "b"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing in which b differs from a: `a` and `b` are values, empty where the engine takes its own.

    `because` says where the difference comes from: the plan, or a default that changed with the version.
    """

    name: str
    a: str
    b: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """`duel` compares b with a. `explained` holds, for each difference that was put back in b, what that
    gave: its duel compares b as it is (a) with b with the value of a (b). `notes` say how it was run."""

    differences: tuple[Difference, ...]
    duel: Duel
    explained: tuple[Contribution, ...] = ()
    because: str = ""
    notes: tuple[str, ...] = ()


def differences(a: Plan, b: Plan, defaults: Mapping[str, tuple[str, str]]) -> tuple[Difference, ...]:
    """Settings in which the plans differ, then defaults that changed between their versions and that b leaves
    to the engine. `defaults` maps an option to (default for a, default for b)."""
    names = sorted({s.name for s in (*a.settings, *b.settings)} | set(a.env) | set(b.env))
    found: list[Difference] = []
    for name in names:
        one = a.env.get(name, a.setting(name) or "")
        two = b.env.get(name, b.setting(name) or "")
        if one != two:
            found.append(Difference(name=name, a=one, b=two, because="the plans differ"))
    said = {difference.name for difference in found} | {s.name for s in b.settings}
    for name, (one, two) in sorted(defaults.items()):
        if name not in said and one != two:
            because = f"the default changed between {a.engine_version} and {b.engine_version}"
            found.append(Difference(name=name, a=one, b=two, because=because))
    return tuple(found)


def put_back(plan: Plan, difference: Difference) -> Plan:
    """`plan` with the value of a for one difference."""
    if difference.name in plan.env or difference.name.isupper():
        env = {k: v for k, v in plan.env.items() if k != difference.name}
        return dataclasses.replace(plan, env=env | ({difference.name: difference.a} if difference.a else {}))
    kept = tuple(s for s in plan.settings if s.name != difference.name)
    if difference.a:
        mine = Setting(name=difference.name, value=difference.a, because="as in a", source="measured")
        kept = (*kept, mine)
    return dataclasses.replace(plan, settings=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Duellists:
    """What a comparison is handed. `share` gives servers that stand by each other, or says why not."""

    aim: Aim
    execute: Execute
    share: Callable[[Sequence[Order]], Shared | str]
    repeats: int
    most: int
    seed: int
    progress: Progress


def side_by_side(
    a: Plan, b: Plan, given: Duellists, *, defaults: Mapping[str, tuple[str, str]]
) -> SideBySide:
    """Runs of a and b in turn; when b is worse, also b with each of at most `most` differences put back.

    An order says which of the two it is of by `settings["arm"]`.
    """
    found = differences(a, b, defaults)
    runs, how = _runs({A: a, B: b}, given, given.seed)
    duel = finals.duel({"arm": A}, {"arm": B}, runs[A], runs[B], resident=_resident(runs))
    if duel.decision != "worse" or not found:
        return SideBySide(differences=found, duel=duel, because=_words(duel, found), notes=how)
    arms = {d.name: put_back(b, d) for d in found[: given.most]}
    again, more = _runs({B: b, **arms}, given, given.seed + 1)
    explained = tuple(
        Contribution(
            name=d.name,
            value=d.b,
            back_to=d.a,
            verdict=finals.duel(
                {"arm": B}, {"arm": B, d.name: d.a}, again[B], again[d.name], resident=_resident(again)
            ),
        )
        for d in found[: given.most]
    )
    notes = tuple(dict.fromkeys((*how, *more)))
    return SideBySide(
        differences=found, duel=duel, explained=explained, because=_cause(explained), notes=notes
    )


def _runs(
    plans: Mapping[str, Plan], given: Duellists, seed: int
) -> tuple[dict[str, list[FinalRun]], tuple[str, ...]]:
    """Runs by arm, and how they were made."""
    arms = [Arm(name=name, plan=plan, settings=_settings(name)) for name, plan in plans.items()]
    runs: dict[str, list[FinalRun]] = {arm.name: [] for arm in arms}
    orders = [Order(number=0, plan=arm.plan, settings=arm.settings, thorough=True) for arm in arms]
    shared = given.share(orders)
    resident = isinstance(shared, Shared)
    notes = [
        f"the servers stood by each other: {shared.because}"
        if resident
        else f"a start for every run: {shared}"
    ]

    def taken(turn: int, arm: Arm, outcome: Outcome) -> None:
        score = (
            objective.score(outcome.points, given.aim, outcome.shapes) if outcome.state != "failed" else None
        )
        if score is None:
            notes.append(f"a run of {arm.name} failed: {outcome.because or 'nothing was measured'}")
        runs[arm.name].append(
            FinalRun(
                turn=turn,
                settings=arm.settings,
                value=score.value if score else None,
                points=outcome.points,
                because=outcome.because,
                shapes=outcome.shapes,
                by_shape=score.shapes if score else {},
                resident=resident,
                beside=outcome.beside,
                preemptions=outcome.preemptions,
                seconds=outcome.seconds,
                round=turn // len(arms) + 1,
            )
        )

    in_turn(
        arms,
        shared.open if isinstance(shared, Shared) else each_alone(given.execute),
        repeats=given.repeats,
        seed=seed,
        done=lambda turn, arm: False,
        taken=taken,
        progress=given.progress,
        budget=endless(),
    )
    return runs, tuple(notes)


def _settings(name: str) -> dict[str, str]:
    return {"arm": A if name == A else B, "put back": "" if name in (A, B) else name}


def _resident(runs: Mapping[str, Sequence[FinalRun]]) -> bool:
    return any(run.resident for found in runs.values() for run in found)


def _words(duel: Duel, found: Sequence[Difference]) -> str:
    if not found:
        return "they do not differ in anything that is known here"
    return {
        "better": "b is faster",
        "worse": "b is slower",
        "undecided": "no difference was proven",
    }[duel.decision]


def _cause(explained: Sequence[Contribution]) -> str:
    gained = [c for c in explained if c.verdict.decision == "better"]
    if not gained:
        return "b is slower, and no single difference explains it: the release itself, or several together"
    gained.sort(key=lambda c: -(c.verdict.ratio or 0.0))
    best = gained[0]
    return (
        f"b is slower, and `{best.name}` explains it: put back, b is {best.verdict.ratio:.3g} times as fast"
    )
