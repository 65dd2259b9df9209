"""Two plans side by side, and when the second is slower, which of their differences explains it."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from model_optimizer.core import Plan, Setting
from model_optimizer.core.study import Contribution, Duel

from . import finals, objective
from .objective import Aim
from .run import Order, Outcome

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
    gave: its duel compares b as it is (a) with b with the value of a (b)."""

    differences: tuple[Difference, ...]
    duel: Duel
    explained: tuple[Contribution, ...] = ()
    because: str = ""


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


def side_by_side(
    a: Plan,
    b: Plan,
    aim: Aim,
    execute: Callable[[Sequence[Order]], Iterator[tuple[Order, Outcome]]],
    *,
    defaults: Mapping[str, tuple[str, str]],
    repeats: int,
    most: int,
    seed: int,
    progress: Callable[[str, float | None], None],
) -> SideBySide:
    """Runs of a and b in turn; when b is worse, also b with each of at most `most` differences put back.

    Execute is told which of the two an order is by `settings["arm"]`.
    """
    found = differences(a, b, defaults)
    values = _runs({A: a, B: b}, aim, execute, repeats, seed, progress)
    duel = finals.duel({"arm": A}, {"arm": B}, values[A], values[B])
    if duel.decision != "worse" or not found:
        return SideBySide(differences=found, duel=duel, because=_words(duel, found))
    arms = {d.name: put_back(b, d) for d in found[:most]}
    again = _runs({B: b, **arms}, aim, execute, repeats, seed + 1, progress)
    explained = tuple(
        Contribution(
            name=d.name,
            value=d.b,
            back_to=d.a,
            verdict=finals.duel({"arm": B}, {"arm": B, d.name: d.a}, again[B], again[d.name]),
        )
        for d in found[:most]
    )
    return SideBySide(differences=found, duel=duel, explained=explained, because=_cause(explained))


def _runs(
    arms: Mapping[str, Plan],
    aim: Aim,
    execute: Callable[[Sequence[Order]], Iterator[tuple[Order, Outcome]]],
    repeats: int,
    seed: int,
    progress: Callable[[str, float | None], None],
) -> dict[str, list[float]]:
    names = list(arms)
    values: dict[str, list[float]] = {name: [] for name in names}
    sequence = finals.order(len(names), repeats, seed)
    for turn, which in enumerate(sequence):
        name = names[which]
        progress(f"{name}: run {turn + 1} of {len(sequence)}", turn / len(sequence))
        settings = {"arm": A if name == A else B, "put back": "" if name in (A, B) else name}
        order = Order(number=turn, plan=arms[name], settings=settings, thorough=True)
        for _, outcome in execute([order]):
            score = objective.score(outcome.points, aim) if outcome.state != "failed" else None
            if score is not None:
                values[name].append(score.value)
    return values


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
