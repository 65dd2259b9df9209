"""Chains of tools from what there is to what is wanted. Pure: a tool is known by what it declares.

safetensors (bf16) -> onnx_from_torch -> onnx (fp32) -> onnx_dynamic -> onnx (int8)

A quantizing tool starts from the schemes in its FROM and never from what is quantized already; a tool
with an empty FROM only changes the format.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .artifact import Artifact
from .errors import UsageError
from .model import ModelSpec
from .protocols import Needs, Tool
from .scheme import Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class Hop:
    """One tool at work: what it makes, and in which format."""

    tool: str
    scheme: str
    format: str


Chain = tuple[Hop, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be made of which model: a scheme, in one of several formats (the first possible one)."""

    model: ModelSpec
    source: Artifact
    scheme: str
    formats: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What will be done: the tools in order, what they start from, and what they take.

    `seconds` is an interval, None where it is not known; `vram_bytes` is None where no GPU takes part.
    """

    chain: Chain
    source: Artifact
    needs: Needs
    vram_bytes: int | None = None
    seconds: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()


def paths(
    task: str,
    scheme: str,
    have_format: str,
    want_formats: Iterable[str],
    tools: Mapping[str, Tool],
    *,
    have_scheme: str | None = None,
) -> list[Chain]:
    """Every chain that makes `scheme` in one of the formats, the shortest first.

    `have_scheme` None means the numbers that the model was trained in. The empty chain means that what
    there is will do.
    """
    usable = {name: tool for name, tool in sorted(tools.items()) if task in tool.TASKS}
    found = _search((have_format, have_scheme), (scheme, frozenset(want_formats)), usable, ())
    return sorted(found, key=lambda chain: (len(chain), [hop.tool for hop in chain]))


def reachable(
    task: str, have_format: str, tools: Mapping[str, Tool], *, have_scheme: str | None = None
) -> list[Hop]:
    """All that can be made, each as the last hop of a shortest chain; for telling what is possible."""
    ends: dict[tuple[str, str], Hop] = {}
    for scheme, form in sorted({pair for tool in tools.values() for pair in tool.WRITES.items()}):
        for chain in paths(task, scheme, have_format, (form,), tools, have_scheme=have_scheme)[:1]:
            if chain:
                ends[scheme, form] = chain[-1]
    return list(ends.values())


def named(names: Iterable[str], chains: Iterable[Chain]) -> Chain:
    """The chain that uses these tools in this order, as a plan's `path` says. Raises UsageError."""
    wanted = tuple(names)
    for chain in chains:
        if tuple(hop.tool for hop in chain) == wanted:
            return chain
    raise UsageError(
        f"no chain of tools goes through {' -> '.join(wanted) or 'nothing'}",
        hint=("the plan may be of another version: make it again",),
    )


def needs(chain: Chain, model: ModelSpec, tools: Mapping[str, Tool], schemes: Mapping[str, Scheme]) -> Needs:
    """The whole chain: tools run one after the other, what they write is there together."""
    each = [tools[hop.tool].needs(model, schemes[hop.scheme]) for hop in chain]
    return Needs(
        download_bytes=sum(n.download_bytes for n in each),
        disk_bytes=sum(n.disk_bytes for n in each),
        memory_bytes=max((n.memory_bytes for n in each), default=0),
        artifact_bytes=each[-1].artifact_bytes if each else 0,
    )


def chains(order: Order, tools: Mapping[str, Tool]) -> list[Chain]:
    """Every chain of tools that take the model and make what was ordered, the shortest first."""
    source, refused = order.source, refusals(order.model, tools)
    usable = {name: tool for name, tool in tools.items() if name not in refused}
    return paths(source.task, order.scheme, source.format, order.formats, usable, have_scheme=source.scheme)


def choose(order: Order, tools: Mapping[str, Tool]) -> Chain:
    """The shortest chain for the order. UsageError tells why there is none, and what can be made."""
    found = chains(order, tools)
    if found and found[0]:
        return found[0]
    source, refused = order.source, refusals(order.model, tools)
    what = f"`{order.model.name}` in `{order.scheme}` as {' or '.join(order.formats) or 'anything'}"
    if found:
        raise UsageError(f"there is nothing to make: {what} is what it is already")
    usable = {name: tool for name, tool in tools.items() if name not in refused}
    ends = reachable(source.task, source.format, usable, have_scheme=source.scheme)
    raise UsageError(
        f"no tool makes {what}",
        cause=(
            f"it is a model for the task `{source.task}` in {source.format} ({source.scheme})",
            *_obstacles(order, tools, refused),
        ),
        hint=_instead(order, ends),
        reference="cannot-be-made",
    )


def _obstacles(order: Order, tools: Mapping[str, Tool], refused: Mapping[str, str]) -> tuple[str, ...]:
    """Why the tools that could have made the order do not: they refuse the model, or have other tasks."""
    source = order.source
    ways = paths(source.task, order.scheme, source.format, order.formats, tools, have_scheme=source.scheme)
    used = {hop.tool for way in ways for hop in way}
    if found := tuple(reason for name, reason in refused.items() if name in used):
        return found
    makers = [tool for tool in tools.values() if tool.WRITES.get(order.scheme) in order.formats]
    tasks = sorted({task for tool in makers for task in tool.TASKS})
    if not tasks or source.task in tasks:
        return ()
    return (f"`{order.scheme}` in that format is only made for the task {' or '.join(tasks)}",)


MOST_ENDS = 6
"""So many ends are named one by one; of more, those are named that the order is near to."""


def _instead(order: Order, ends: Sequence[Hop]) -> tuple[str, ...]:
    """What can be made: the same number format in other files, other formats in the same files, else all."""
    if len(ends) <= MOST_ENDS:
        possible = ", ".join(f"{hop.scheme} as {hop.format}" for hop in ends)
        return (f"from it can be made: {possible or 'nothing with the tools of this version'}",)
    found: list[str] = []
    if files := [hop.format for hop in ends if hop.scheme == order.scheme]:
        found.append(f"`{order.scheme}` can be made as {', '.join(files)}")
    for wanted in order.formats:
        if schemes := [hop.scheme for hop in ends if hop.format == wanted]:
            found.append(f"as {wanted} can be made: {', '.join(schemes)}")
    if found:
        return tuple(found)
    formats = dict.fromkeys(hop.format for hop in ends)
    return tuple(f"as {f} can be made: {', '.join(h.scheme for h in ends if h.format == f)}" for f in formats)


def refusals(model: ModelSpec, tools: Mapping[str, Tool]) -> dict[str, str]:
    """Why tools that handle the model's task cannot take this model; a tool that can is not in it."""
    reasons: dict[str, str] = {}
    for name, tool in tools.items():
        refuses: Callable[[ModelSpec], str | None] | None = getattr(tool, "refuses", None)
        if model.task in tool.TASKS and refuses and (reason := refuses(model)):
            reasons[name] = reason
    return reasons


def finder(
    model: ModelSpec, have: Artifact, tools: Mapping[str, Tool]
) -> Callable[[str, str], tuple[str, ...] | None]:
    """(scheme, format) -> the names of the tools that make it, () when it is there, None when none can."""
    refused = refusals(model, tools)
    usable = {name: tool for name, tool in tools.items() if name not in refused}

    def find(scheme: str, form: str) -> tuple[str, ...] | None:
        found = paths(model.task, scheme, have.format, (form,), usable, have_scheme=have.scheme)
        return tuple(hop.tool for hop in found[0]) if found else None

    return find


def _search(
    have: tuple[str, str | None],
    want: tuple[str, frozenset[str]],
    tools: Mapping[str, Tool],
    chain: Chain,
) -> Iterator[Chain]:
    form, scheme = have
    if scheme == want[0] and form in want[1]:
        yield chain
        return
    been = {(hop.format, hop.scheme) for hop in chain}
    for name, tool in tools.items():
        if form != tool.READS:
            continue
        for made, into in tool.WRITES.items():
            if (into, made) not in been and _takes(tool, scheme, made):
                hop = Hop(tool=name, scheme=made, format=into)
                yield from _search((into, made), want, tools, (*chain, hop))


def _takes(tool: Tool, scheme: str | None, made: str) -> bool:
    """Whether the tool turns the scheme into `made`; a model as trained (None) suits every quantizer."""
    if not tool.FROM:
        return made == scheme
    return scheme is None or scheme in tool.FROM
