"""Which combinations of engine and scheme are worth making on this host, and why the others are not.

A combination is kept when the engine runs on the device, handles the task, can be given the weights in
a format that it reads, has its environment, and fits into the memory. What is kept is ordered: the
reference first, then by engine and falling precision.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from model_optimizer.core import (
    Artifact,
    Engine,
    Estimate,
    Host,
    ModelSpec,
    NoFeasiblePlan,
    Plan,
    Rejection,
    Scheme,
    Slo,
    Workload,
    digest,
    lacking,
    units,
)

FindPath = Callable[[str, str], tuple[str, ...] | None]
"""(scheme, format) -> the tools that make it from the checkpoint, () when it is already there."""

ANY = "any scheme"
"""The scheme of a rejection that concerns the whole engine: said once, not once a scheme."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked. `engines` and `schemes` are () where every one may be considered.

    `environments` holds the stage environments that exist or may be made without being asked; `on_request`
    maps tools that are used only for schemes that are asked for by name to the environment that they need;
    `budget_bytes` is the memory that one server may take, None for what the host has available.
    """

    host: Host
    model: ModelSpec
    checkpoint: Artifact
    workload: Workload
    slo: Slo
    device: Literal["cpu", "gpu"] = "cpu"
    budget_bytes: int | None = None
    engines: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    environments: frozenset[str] = frozenset()
    on_request: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """`reference` is what all others are compared with; `plans` leaves it out."""

    reference: Plan
    plans: tuple[Plan, ...]
    rejected: tuple[Rejection, ...]


def options(
    question: Question,
    *,
    engines: Mapping[str, Engine],
    schemes: Mapping[str, Scheme],
    find_path: FindPath,
) -> Options:
    """All plans that this host can carry out. NoFeasiblePlan when not even the reference is one."""
    judge = _Judge(question, engines, schemes, find_path)
    kept: list[Plan] = []
    rejected: list[Rejection] = []
    for engine, scheme in _combinations(question, engines, schemes):
        answer = judge.plan(engine, scheme)
        if isinstance(answer, Plan):
            kept.append(answer)
        elif answer is not None and answer not in rejected:
            rejected.append(answer)
    reference = _reference(question, judge, engines, schemes)
    others = tuple(p for p in kept if (p.engine, p.scheme) != (reference.engine, reference.scheme))
    if not others and (question.engines or question.schemes):
        raise NoFeasiblePlan(
            f"nothing that was asked for can serve `{question.model.name}` here",
            cause=tuple(f"{r.engine}, {r.scheme}: {r.reason}" for r in rejected),
            hint=("leave --engines and --schemes out to see everything that can be made",),
        )
    return Options(reference=reference, plans=others, rejected=tuple(rejected))


def _combinations(
    question: Question, engines: Mapping[str, Engine], schemes: Mapping[str, Scheme]
) -> Iterator[tuple[str, str]]:
    # The plain baseline is there to be compared with; it is no candidate unless it is asked for by name.
    rivals = tuple(name for name, engine in engines.items() if not getattr(engine, "BASELINE", False))
    wanted_engines = question.engines or rivals
    wanted_schemes = question.schemes or tuple(schemes)
    precise_first = sorted(wanted_schemes, key=lambda name: (-schemes[name].weight_bits, name))
    return product(wanted_engines, precise_first)


def _reference(
    question: Question, judge: "_Judge", engines: Mapping[str, Engine], schemes: Mapping[str, Scheme]
) -> Plan:
    """The most precise scheme of the engine that computes the checkpoint as it is."""
    reasons: list[str] = []
    for name, engine in engines.items():
        if not getattr(engine, "BASELINE", False):
            continue
        for scheme in sorted(schemes, key=lambda s: -schemes[s].weight_bits):
            answer = judge.plan(name, scheme)
            if isinstance(answer, Plan):
                return answer
            if answer is not None:
                reasons.append(f"{name}, {scheme}: {answer.reason}")
    raise NoFeasiblePlan(
        f"`{question.model.name}` cannot be run as it is, so nothing can be compared with it",
        cause=tuple(reasons),
        hint=("use a machine with more memory", "use a smaller model"),
    )


class _Judge:
    """Turns one engine and scheme into a plan, a rejection, or None when they have nothing in common."""

    def __init__(
        self,
        question: Question,
        engines: Mapping[str, Engine],
        schemes: Mapping[str, Scheme],
        find_path: FindPath,
    ) -> None:
        self._question = question
        self._engines = engines
        self._schemes = schemes
        self._find_path = find_path
        self._host_digest = digest.of_noun(question.host)

    def plan(self, engine_name: str, scheme_name: str) -> Plan | Rejection | None:
        question, engine = self._question, self._engines[engine_name]
        formats = [f for f, computes in engine.READS.items() if scheme_name in computes]
        if not formats:
            return None
        if whole := self._objection(engine):
            return self._reject(engine_name, ANY, whole, "the engine's own description")
        route = self._route(scheme_name, formats)
        if route is None:
            reason = f"no tool makes {' or '.join(formats)} of it in {scheme_name}"
            return self._reject(engine_name, scheme_name, reason, "the tools of this version")
        if held := self._held_back(engine_name, scheme_name, route[1]):
            return held
        scheme = self._schemes[scheme_name]
        if missing := lacking(engine, question.model, scheme, question.host):
            return self._reject(engine_name, scheme_name, missing, "the engine's own description")
        estimate = Estimate(
            memory=engine.memory(question.model, scheme, question.workload),
            provenance="memory by arithmetic; speed on a CPU is measured, not predicted",
        )
        if too_large := self._does_not_fit(estimate):
            return self._reject(engine_name, scheme_name, too_large, "memory arithmetic")
        return Plan(
            model=question.model.name,
            checkpoint=question.checkpoint.path,
            host_digest=self._host_digest,
            workload=question.workload,
            slo=question.slo,
            engine=engine_name,
            environment=engine.ENVIRONMENT,
            scheme=scheme_name,
            format=route[0],
            path=route[1],
            settings=engine.settings(question.model, scheme, question.workload, question.host),
            estimate=estimate,
        )

    def _route(self, scheme: str, formats: Sequence[str]) -> tuple[str, tuple[str, ...]] | None:
        """The format that takes the fewest tools, with those tools."""
        found = [(f, path) for f in formats if (path := self._find_path(scheme, f)) is not None]
        return min(found, key=lambda item: len(item[1]), default=None)

    def _held_back(self, engine: str, scheme: str, path: Sequence[str]) -> Rejection | None:
        """A tool that takes long works only when its scheme is named; then its environment must be there."""
        question = self._question
        slow = [tool for tool in path if tool in question.on_request]
        if not slow:
            return None
        if scheme not in question.schemes:
            reason = "further number formats are made when they are named: --schemes"
            return self._reject(engine, "quantized checkpoints", reason, "a run stays short by default")
        wanted = question.on_request[slow[0]]
        if wanted not in question.environments:
            name = wanted.replace("_", "-")
            reason = f"the environment of `{slow[0]}` is not there; `mopt env create {name}` makes it"
            return self._reject(engine, scheme, reason, "the tool's own description")
        return None

    def _objection(self, engine: Engine) -> str | None:
        question = self._question
        if question.device not in engine.DEVICES:
            return f"runs on {' and '.join(sorted(engine.DEVICES))} only"
        if question.model.task not in engine.TASKS:
            return f"does not handle the task `{question.model.task}`"
        if engine.ENVIRONMENT not in question.environments:
            name = engine.ENVIRONMENT.replace("_", "-")
            return f"its environment is not there; `mopt env create {name}` makes it"
        return None

    def _does_not_fit(self, estimate: Estimate) -> str | None:
        room = self._question.budget_bytes or self._question.host.memory_available_bytes
        if room is None or estimate.memory_bytes <= room:
            return None
        wanted, have = units.show_bytes(estimate.memory_bytes), units.show_bytes(room)
        short = f": {units.show_bytes(estimate.memory_bytes - room)} too few" if wanted == have else ""
        return f"needs {wanted} of memory, {have} may be used{short}"

    def _reject(self, engine: str, scheme: str, reason: str, source: str) -> Rejection:
        return Rejection(engine=engine, scheme=scheme, reason=reason, source=source)
