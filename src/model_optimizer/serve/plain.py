"""A plan for a model or an artefact that nobody planned for: the engine that reads its format."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from model_optimizer.core import (
    Artifact,
    Engine,
    Host,
    HostError,
    ModelSpec,
    Plan,
    Scheme,
    Setting,
    Slo,
    UsageError,
    Workload,
    lacking,
)
from model_optimizer.core.model import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a user says. `settings` are theirs by the engine's name for them and win over the engine's own."""

    engine: str | None = None
    scheme: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict[str, str])


def plain_plan(
    model: ModelSpec,
    artifact: Artifact,
    wish: Wish,
    host: Host,
    *,
    engines: Mapping[str, Engine],
    schemes: Mapping[str, Scheme],
) -> Plan:
    """How to serve `artifact` on this host. Raises UsageError when no engine reads it as was asked, HostError
    when this machine cannot compute it."""
    scheme = wish.scheme or artifact.scheme
    devices = {"cpu", "gpu"} if host.gpus else {"cpu"}
    idle = {name for name, engine in engines.items() if _idle(engine, host)}
    name = _engine(artifact, scheme, wish.engine, engines, devices, idle)
    engine = engines[name]
    if missing := lacking(engine, model, schemes[scheme], host):
        raise HostError(
            f"{engine.TITLE} cannot compute `{scheme}` on this machine",
            cause=(missing,),
            hint=("take another number format: `mopt quantize MODEL --engine vllm-cpu --scheme int8`",),
        )
    workload = Workload(task=_task(artifact))
    plan = Plan(
        model=model.name,
        checkpoint=artifact.path,
        workload=workload,
        slo=Slo(),
        engine=name,
        environment=engine.ENVIRONMENT,
        scheme=scheme,
        format=artifact.format,
        settings=engine.settings(model, schemes[scheme], workload, host),
    )
    return with_settings(plan, wish.settings)


def with_settings(plan: Plan, wished: Mapping[str, str]) -> Plan:
    """The same plan with a user's settings in place of the engine's."""
    kept = tuple(s for s in plan.settings if s.name not in wished)
    mine = tuple(
        Setting(name=name, value=value, because="named on the command line", source="user")
        for name, value in wished.items()
    )
    return dataclasses.replace(plan, settings=kept + mine)


def _engine(
    artifact: Artifact,
    scheme: str,
    asked: str | None,
    engines: Mapping[str, Engine],
    devices: set[str],
    idle: set[str],
) -> str:
    able = _able(artifact, scheme, engines, devices)
    if asked is not None:
        if asked in able:
            return asked
        known = ", ".join(able) or "no engine"
        raise UsageError(
            f"`{asked}` does not serve {artifact.format} in {scheme} for the task `{artifact.task}`",
            hint=(f"{known} can", "`mopt convert --to` makes the format of another engine"),
        )
    if not able:
        elsewhere = _able(artifact, scheme, engines, {"cpu", "gpu"})
        here = "`mopt quantize MODEL --engine vllm-cpu --scheme NAME` makes what runs here"
        first = f"make it first: `mopt quantize MODEL --scheme {scheme} --out DIR`, then `mopt serve DIR`"
        raise UsageError(
            f"no engine of this machine serves {artifact.format} in {scheme} for the task `{artifact.task}`",
            cause=(f"{', '.join(elsewhere)} can, on a GPU, and there is none here",) if elsewhere else (),
            hint=(here if scheme == artifact.scheme else first,),
        )
    # The plain one first: who asked for nothing gets the model as it is. Else a GPU that is there is used.
    order = {name: (not getattr(engines[name], "BASELINE", False), name in idle, name) for name in able}
    return min(able, key=order.__getitem__)


def _able(artifact: Artifact, scheme: str, engines: Mapping[str, Engine], devices: set[str]) -> list[str]:
    """The engines that serve it on one of these devices."""
    return [
        name
        for name, engine in engines.items()
        if scheme in getattr(engine, "SERVES", engine.READS).get(artifact.format, ())
        and artifact.task in engine.TASKS
        and devices & engine.DEVICES
    ]


def _idle(engine: Engine, host: Host) -> bool:
    """Whether it would leave a GPU without work, or cannot give it any: an engine may say by `runs_on`."""
    runs_on: Callable[[Host], bool] = getattr(engine, "runs_on", lambda host: bool(host.gpus))
    return bool(host.gpus) and not ("gpu" in engine.DEVICES and runs_on(host))


def _task(artifact: Artifact) -> Task:
    return artifact.task  # pyright: ignore[reportReturnType]
