"""A number format: what it is, what it keeps, and what it does on the GPU that is named."""

from model_optimizer.core import Scheme, plugins
from model_optimizer.core.explanation import Explanation, Point
from model_optimizer.facts import formats
from model_optimizer.schemes import canonical

from . import machine
from .question import Question

ROOM = "model_optimizer.schemes"
OF_FACTS = {
    "fp8_block": "fp8",
    "fp8_static": "fp8",
    "int4_rtn": "int4_w4a16",
    "int8_weight": None,
    "fp16": None,
    "fp32": None,
}
"""Schemes whose row in the facts has another name, or that have none."""


def named(word: str) -> str | None:
    """The scheme or the format of the facts that a word names."""
    name = canonical(word)
    return name if name in plugins.names(ROOM) or name in formats.names() else None


def explain(name: str, question: Question) -> Explanation:
    if name in plugins.names(ROOM):
        return _scheme(plugins.load(ROOM, name).SCHEME, question)
    fact = formats.find(name)
    return Explanation(
        asked=question.thing,
        kind="scheme",
        title=f"{name}: {fact.title}",
        means=(f"A format of {fact.kind}.", *fact.notes),
        points=(*_hardware(name), *machine.of_format(name, question, about=name)),
        do=_do(name),
        source=fact.source,
    )


def _scheme(scheme: Scheme, question: Question) -> Explanation:
    fact = OF_FACTS.get(scheme.name, scheme.name)
    fact = fact if fact in formats.names() else None
    points = [*(_hardware(fact) if fact else ())]
    if question.gpu and scheme.min_compute_capability and question.capability:
        points += _on_gpu(scheme, question)
    elif fact:
        points += machine.of_format(fact, question, about=scheme.name)
    scale_bits = 8 if scheme.weight_number == "fp4" else 16
    share = (scheme.weight_bits + (scale_bits / scheme.group_size if scheme.group_size else 0)) / 16
    means = (
        f"Weights in {scheme.weight_bits} bits, activations in {scheme.activation_bits}: about "
        f"{share:.2f} of the bytes of a 16-bit checkpoint for the layers that it covers"
        + (f", with one scale for {scheme.group_size} weights." if scheme.group_size else "."),
        "It needs calibration texts to make."
        if scheme.needs_calibration
        else "It is made without calibration.",
        f"Our verification asks for a recovery of at least {scheme.gate.recovery:g} and the same most likely "
        f"token in {scheme.gate.top1:.0%} of positions.",
    )
    return Explanation(
        asked=question.thing,
        kind="scheme",
        title=f"{scheme.name}: {scheme.title}",
        means=means,
        points=tuple(points),
        do=_do(scheme.name),
        source=(scheme.source, scheme.gate.source),
    )


def _on_gpu(scheme: Scheme, question: Question) -> list[Point]:
    gpu, have = question.gpu, question.capability
    if gpu is None or have is None or scheme.min_compute_capability is None:
        return []
    where = f"{gpu.name} (compute capability {machine.dotted(have)})"
    least = machine.dotted(scheme.min_compute_capability)
    if have < scheme.min_compute_capability:
        return [
            Point(about=scheme.name, level="wrong", says=f"{where} is below {least}, where it begins to load")
        ]
    if scheme.max_compute_capability and have > scheme.max_compute_capability:
        last = machine.dotted(scheme.max_compute_capability)
        return [
            Point(about=scheme.name, level="wrong", says=f"{where} is past {last}, the last that runs it")
        ]
    native = scheme.native_compute_capability
    if native and have < native:
        says = f"{where} loads it and computes in 16 bits: it saves memory and speeds decoding, not prompts"
        return [Point(about=scheme.name, level="warn", says=says)]
    return [Point(about=scheme.name, level="fine", says=f"{where} computes in it")]


def _hardware(name: str) -> list[Point]:
    fact = formats.find(name)
    if fact.hardware_from is None:
        return []
    says = f"tensor cores multiply it from compute capability {machine.dotted(fact.hardware_from)} on"
    return [Point(about="hardware", level="note", says=says, source=f"facts/compatibility/formats/{name}")]


def _do(name: str) -> tuple[str, ...]:
    return (
        f"mopt plan MODEL --gpu NAME --scheme {name}",
        "mopt facts format NAME lists every GPU generation",
    )
