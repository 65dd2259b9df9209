"""The space of a search: which knobs, which values, and a plan with some of them turned."""

import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from model_optimizer.core import ModelSpec, Plan, Setting, UsageError
from model_optimizer.core.study import Knob, Settings
from model_optimizer.facts.tune import KnobFact
from model_optimizer.facts.versions import key

SCHEME = "scheme"
ENVIRONMENT = "env:"
MOST = 20_000
"""Combinations that are looked at; of a larger space so many are drawn."""


def knobs(
    facts: Sequence[KnobFact],
    plan: Plan,
    model: ModelSpec,
    *,
    clients: float,
    wanted: Mapping[str, tuple[str, ...]],
    fixed: Iterable[str] = (),
    schemes: Sequence[str] = (),
) -> tuple[Knob, ...]:
    """Those that can matter for this plan and load, each with more than one value.

    `wanted` are values that a user names for a knob, known to the facts or not; `fixed` are left as they are.
    `clients` is the most requests in flight, `schemes` the number formats that there are artefacts of.
    """
    fixed = frozenset(fixed)
    known = {fact.name for fact in facts}
    found = [_scheme_knob(plan, schemes)] if SCHEME not in fixed else []
    for fact in facts:
        if fact.name in fixed or (fact.name not in wanted and not _matters(fact, plan, model)):
            continue
        default = _default(fact.name, plan, fact.default)
        values = wanted.get(fact.name) or _useful(fact, plan, clients, default)
        found.append(_knob(fact.name, values, default, fact.because, fact.source[0]))
    for name, values in wanted.items():
        if name not in known and name not in fixed:
            default = _default(name, plan, "")
            found.append(_knob(name, values, default, "named on the command line", "user"))
    return tuple(knob for knob in found if len(knob.values) > 1)


def _scheme_knob(plan: Plan, schemes: Sequence[str]) -> Knob:
    others = tuple(name for name in schemes if name != plan.scheme)
    because = "fewer bits are read faster; only formats that passed verification are tried"
    return _knob(SCHEME, others, plan.scheme, because, "verdicts of the run")


def _knob(name: str, values: Iterable[str], default: str, because: str, source: str) -> Knob:
    ordered = sorted({*values, default}, key=_rank)
    return Knob(name=name, values=tuple(ordered), default=default, because=because, source=source)


def _rank(value: str) -> tuple[int, float, str]:
    try:
        return 1, float(value), ""
    except ValueError:
        return (2 if value else 0), 0.0, value


def _matters(fact: KnobFact, plan: Plan, model: ModelSpec) -> bool:
    version = plan.engine_version
    gpus = plan.gpus or 1
    return (
        not fact.on_request
        and plan.workload.task in fact.tasks
        and gpus >= fact.gpus
        and (not fact.experts or model.experts is not None)
        and plan.workload.prompt_tokens.mean >= fact.prompt_tokens
        and (version is None or fact.since is None or key(version) >= key(fact.since))
        and (version is None or fact.until is None or key(version) <= key(fact.until))
    )


def _default(name: str, plan: Plan, otherwise: str) -> str:
    if name.startswith(ENVIRONMENT):
        return plan.env.get(name.removeprefix(ENVIRONMENT), otherwise)
    found = plan.setting(name)
    return otherwise if found is None else found


def _useful(fact: KnobFact, plan: Plan, clients: float, default: str) -> tuple[str, ...]:
    """Without the values beyond which nothing changes: one of those is kept."""
    edge = math.inf
    if fact.sequences:
        edge = clients
    elif fact.tokens:
        edge = clients * plan.workload.prompt_tokens.quantile(0.99)
    numbers = sorted(float(v) for v in {*fact.values, default} if is_number(v))
    beyond = [n for n in numbers if n >= edge]
    dropped = set(beyond[1:])
    return tuple(v for v in fact.values if not is_number(v) or float(v) not in dropped)


def is_number(text: str) -> bool:
    return _rank(text)[0] == 1


def applied(plan: Plan, settings: Settings, default: Settings, plans: Mapping[str, Plan]) -> Plan:
    """The plan with knobs turned. `plans` holds the plan of each number format.

    Knobs that stand where they stood leave the plan as it is, so that an untouched one is the default.
    """
    base = plan
    if (scheme := settings.get(SCHEME)) is not None and scheme != plan.scheme:
        if scheme not in plans:
            raise UsageError(f"there is no artefact in {scheme} to try")
        base = plans[scheme]
    turned = {n: v for n, v in settings.items() if n != SCHEME and v != default.get(n)}
    env = dict(base.env)
    kept = tuple(s for s in base.settings if s.name not in turned)
    mine: list[Setting] = []
    for name, value in turned.items():
        if name.startswith(ENVIRONMENT):
            variable = name.removeprefix(ENVIRONMENT)
            env.pop(variable, None)
            if value:
                env[variable] = value
        elif value:
            because = f"tried in place of {default.get(name) or 'what the engine takes by itself'}"
            mine.append(Setting(name=name, value=value, because=because, source="measured"))
    parallel = int(turned.get("tensor-parallel-size") or base.tensor_parallel)
    return dataclasses.replace(base, settings=(*kept, *mine), env=env, command=(), tensor_parallel=parallel)


def combinations(
    found: Sequence[Knob], refuse: Callable[[Settings], str | None], *, seed: int
) -> tuple[list[dict[str, str]], dict[str, int], int]:
    """(those that can start, how many each reason refused, the size of the whole space)."""
    size = math.prod(len(knob.values) for knob in found)
    names = [knob.name for knob in found]
    if size <= MOST:
        rows: Iterable[tuple[str, ...]] = itertools.product(*(knob.values for knob in found))
    else:
        draw = random.Random(seed)
        default = tuple(knob.default for knob in found)
        drawn = {tuple(draw.choice(knob.values) for knob in found) for _ in range(MOST)}
        rows = sorted({default, *drawn})
    kept: list[dict[str, str]] = []
    refused: dict[str, int] = {}
    for row in rows:
        settings = dict(zip(names, row, strict=True))
        reason = refuse(settings)
        if reason is None:
            kept.append(settings)
        else:
            refused[reason] = refused.get(reason, 0) + 1
    return kept, refused, size


def changes(settings: Settings, default: Settings) -> dict[str, str]:
    """What differs from the default."""
    return {name: value for name, value in settings.items() if value != default.get(name)}
