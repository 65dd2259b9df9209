"""`mopt tune A --ab B`: two plans on the same machine, in turn, under the same load."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from model_optimizer.core import Plan, Progress, UsageError, codec
from model_optimizer.explain import changes
from model_optimizer.system import files
from model_optimizer.tune import Order, Outcome, Shared
from model_optimizer.tune.ab import A, Duellists, SideBySide, side_by_side

from .sharing import apart
from .study import Prepared, Room, TuneRequest, create, prepare
from .tune import Runner

RESULT = "side_by_side.json"


def compare(
    a: TuneRequest, b: TuneRequest, folder: Path, room: Room, progress: Progress, *, repeats: int, most: int
) -> SideBySide:
    """Both are prepared like a study of their own; what B's load says otherwise is refused, not measured."""
    one, two = prepare(a, folder, room, progress), prepare(b, folder, room, progress)
    _require_alike(one, two)
    create(folder, a)
    runners = {A: one.runner, "b": two.runner}

    def runner_of(order: Order) -> Runner:
        kind = order.settings.get("put back") or order.settings["arm"]
        log = folder / "log" / _plain(kind)
        log.mkdir(parents=True, exist_ok=True)
        return dataclasses.replace(runners[order.settings["arm"]], logs=log)

    def execute(orders: Sequence[Order]) -> Iterator[tuple[Order, Outcome]]:
        for order in orders:
            yield order, runner_of(order)(order)

    found = side_by_side(
        one.question.plan,
        two.question.plan,
        Duellists(
            aim=one.question.aim,
            execute=execute,
            share=_share(a, one, two, runner_of),
            repeats=repeats,
            most=most,
            seed=a.seed,
            progress=progress,
        ),
        defaults=changed_defaults(one.question.plan, two.question.plan),
    )
    files.write_atomic(folder / RESULT, codec.dumps(found))
    return found


def _share(
    request: TuneRequest, one: Prepared, two: Prepared, runner_of: Callable[[Order], Runner]
) -> Callable[[Sequence[Order]], Shared | str]:
    """Servers that stand by each other, where that tells the two apart."""
    first, second = one.question.plan, two.question.plan
    reason = None
    if request.second_look == "restart":
        reason = "that is what was asked for"
    elif first.engine != second.engine:
        reason = "how servers of two engines share memory is not known here"
    elif one.guide is not None:
        reason = apart(second, first)
    residents = one.residents(runner_of)
    return lambda orders: reason or residents.shared(orders)


def changed_defaults(a: Plan, b: Plan) -> Mapping[str, tuple[str, str]]:
    """Options and variables whose default changed between two releases, and that can change speed."""
    if a.engine != b.engine or not a.engine_version or not b.engine_version:
        return {}
    if a.engine_version == b.engine_version:
        return {}
    try:
        found = changes(a.engine, a.engine_version, b.engine_version)
    except UsageError:
        return {}
    return {
        change.name.removeprefix("--"): (change.before, change.after)
        for change in found.defaults
        if change.speed and change.section in ("options", "variables") and change.before and change.after
    }


def _require_alike(one: Prepared, two: Prepared) -> None:
    first, second = one.question.plan, two.question.plan
    if first.workload.task != second.workload.task or one.model.name != two.model.name:
        raise UsageError(
            "the two plans are not of one model",
            cause=(f"a serves {one.model.name}, b serves {two.model.name}",),
            hint=("compare plans that differ in version or settings alone",),
        )


def _plain(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in text)[:40] or "arm"
