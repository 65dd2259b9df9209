"""What every scheme, check and tool must keep, whoever wrote it. A broken contract is an AssertionError.

Engines have theirs in engine_contract.py. An outside package runs these on its own plug-ins.
"""

from collections.abc import Mapping
from typing import Any

from model_optimizer.core import Artifact, Finding, Host, ModelSpec, Needs, Scheme


def check_contract(name: str, check: Any) -> None:
    """A check documents itself in one sentence and answers about a machine that it knows nothing of."""
    title = (check.__doc__ or "").strip().splitlines()[0]
    assert title.endswith("."), f"{name}: the first line of the docstring is its title, a sentence"
    assert len(title) <= 100, f"{name}: the title is longer than 100 characters"
    assert isinstance(check.AFTER, tuple), f"{name}: AFTER is a tuple of names"
    found = check.check(Host())
    assert isinstance(found, Finding), f"{name}: check() returns a Finding"
    assert found.status != "fail", f"{name}: what could not be read is unknown, not broken"


def scheme_contract(name: str, module: Any) -> None:
    """A scheme is a constant named like its file, with a gate and a source."""
    scheme = module.SCHEME
    assert isinstance(scheme, Scheme), f"{name}: SCHEME is a Scheme"
    assert scheme.name == name, f"{name}: the scheme is called {scheme.name}"
    assert scheme.title and scheme.source and scheme.gate.source, f"{name}: title and sources are given"
    assert 1 <= scheme.weight_bits <= 32 and 1 <= scheme.activation_bits <= 32, f"{name}: bits"
    for limit in (scheme.gate.recovery, scheme.gate.top1, scheme.gate.cosine, scheme.gate.rank):
        assert 0 < limit <= 1, f"{name}: a gate is a share"
    lowest, highest = scheme.min_compute_capability, scheme.max_compute_capability
    assert lowest is None or highest is None or lowest <= highest, f"{name}: capabilities in order"


def tool_contract(name: str, tool: Any, schemes: Mapping[str, Scheme], model: ModelSpec) -> None:
    """A tool says what it reads and writes, for schemes that exist, and what it needs."""
    assert tool.READS and tool.ENVIRONMENT and tool.TASKS, f"{name}: READS, ENVIRONMENT, TASKS are given"
    assert tool.WRITES, f"{name}: WRITES maps schemes to formats"
    for scheme in tool.WRITES:
        assert scheme in schemes, f"{name}: there is no scheme {scheme}"
        needs = tool.needs(model, schemes[scheme])
        assert isinstance(needs, Needs), f"{name}: needs() returns Needs"
        assert needs.disk_bytes > 0 and needs.memory_bytes > 0, f"{name}: a tool writes and holds something"
    assert callable(tool.make), f"{name}: make() makes an Artifact"


def artifact_contract(artifact: Artifact) -> None:
    """An artefact can be traced: content, origin and maker are recorded."""
    assert artifact.digest.startswith("sha256:") and len(artifact.digest) == 71, "a digest of its content"
    assert artifact.bytes > 0, "its size"
    assert artifact.made_by is None or artifact.made_by.version, "the version of its maker"
