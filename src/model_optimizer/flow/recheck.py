"""Does a plan that was written down still hold: on this machine, with the facts of today?"""

from collections.abc import Iterator
from dataclasses import dataclass

from model_optimizer.core import (
    Finding,
    GpuMemory,
    Host,
    Link,
    ModelSpec,
    MoptError,
    Plan,
    digest,
)
from model_optimizer.core.site import GpuEngine, Site
from model_optimizer.planner.decide import Functions

from .placed import placed

PORT = 8000
STATUS = {True: "ok", False: "fail", None: "unknown"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """The questions that a plan rests on, asked again."""

    model: str
    engine: str
    engine_version: str | None
    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        return not any(finding.status == "fail" for finding in self.findings)


def recheck(
    plan: Plan,
    host: Host,
    card: GpuMemory,
    site: Site,
    functions: Functions,
    spec: ModelSpec,
) -> Recheck:
    """`card` and `site` are the GPU to run on, `spec` is the model of the plan."""
    engine = functions.engines.get(plan.engine)
    found = [_machine(plan, host), _cards(plan, host, card)]
    if engine is None:
        found.append(_finding("engine", False, f"{plan.engine} is no engine that plans for GPUs know"))
    else:
        found += _chain(plan, engine, site, spec)
        found.append(_format(plan, engine, site, functions))
        found.append(_command(plan, engine))
        found.append(_memory(plan, functions, card, spec))
    return Recheck(
        model=plan.model, engine=plan.engine, engine_version=plan.engine_version, findings=tuple(found)
    )


def _finding(
    check: str, holds: bool | None, message: str, *, source: str = "", hint: str | None = None
) -> Finding:
    status = STATUS[holds]
    return Finding(
        status=status,  # pyright: ignore[reportArgumentType]
        message=message,
        check=check,
        layer="plan",
        source=(source,) if source else (),
        hint=hint,
    )


def _machine(plan: Plan, host: Host) -> Finding:
    if plan.host_digest is None or host == Host():
        return _finding("machine", None, "a GPU was named, so machines cannot be compared")
    if plan.host_digest == digest.of_noun(host):
        return _finding("machine", True, "the machine looks as it did when the plan was made")
    return Finding(
        status="warn",
        message="the machine differs from the one that the plan was made on",
        check="machine",
        layer="plan",
        hint="`mopt doctor` shows it; the checks below say whether it matters",
    )


def _cards(plan: Plan, host: Host, card: GpuMemory) -> Finding:
    there = len(host.gpus or ())
    if plan.gpu != card.name:
        text = f"the plan is for {plan.gpu}, this is {card.name}"
        return _finding("gpus", False, text, hint="plan again for this GPU")
    if host.gpus is not None and there < plan.gpus:
        return _finding("gpus", False, f"the plan takes {plan.gpus} GPUs, there are {there}")
    return _finding("gpus", True, f"{plan.gpus} x {card.name}")


def _chain(plan: Plan, engine: GpuEngine, site: Site, spec: ModelSpec) -> Iterator[Finding]:
    """The links from model to driver, and whether the image is still the one for them."""
    version = plan.engine_version or engine.versions()[-1]
    try:
        offer = engine.offer(spec, site, version)
    except MoptError as error:
        yield _finding("release", False, error.message)
        return
    yield from (_link(link) for link in offer.links)
    if plan.image != offer.image:
        yield Finding(
            status="warn",
            message=f"the image would now be {offer.image}, the plan has {plan.image}",
            check="image",
            layer="plan",
        )


def _link(link: Link) -> Finding:
    return _finding(link.name, link.holds, link.says, source=link.source)


def _format(plan: Plan, engine: GpuEngine, site: Site, functions: Functions) -> Finding:
    scheme = functions.schemes.get(plan.scheme)
    if scheme is None:
        return _finding("number format", False, f"there is no scheme `{plan.scheme}`")
    ability = engine.ability(scheme, site, plan.engine_version or engine.versions()[-1])
    return _finding("number format", ability.how != "no", ability.because, source=ability.source)


def _command(plan: Plan, engine: GpuEngine) -> Finding:
    """Every option is asked of the facts again while the command is made."""
    try:
        words = engine.command(plan, PORT)
    except MoptError as error:
        return _finding("settings", False, error.message, hint="plan again")
    if words == plan.command:
        return _finding("settings", True, "every option is one that the release takes")
    return Finding(
        status="warn",
        message="the same settings now make another command",
        evidence=" ".join(words),
        check="settings",
        layer="plan",
    )


def _memory(plan: Plan, functions: Functions, card: GpuMemory, spec: ModelSpec) -> Finding:
    """Whether it would start beside what is on the card now."""
    if plan.engine != "vllm":
        return Finding(
            status="skipped", message="memory is worked out again for vLLM alone", check="memory",
            layer="plan",
        )  # fmt: skip
    try:
        found = functions.fit(placed(plan, spec, card, functions.schemes.get))
    except MoptError as error:
        return _finding("memory", False, error.message)
    text = f"it starts with {found.kv_cache_tokens:,} tokens of KV cache" if found.fits else found.because
    return _finding("memory", found.fits, text, hint=None if found.fits else "free the GPU, or plan again")
