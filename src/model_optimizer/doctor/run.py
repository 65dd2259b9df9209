"""Run every check against one Host, in order of dependency, so that one broken layer speaks once."""

import dataclasses
from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter

from model_optimizer.core import Check, Finding, Host


def examine(host: Host, checks: Mapping[str, Check]) -> tuple[Finding, ...]:
    """One finding a check. A check whose AFTER did not end well is skipped and names what it waits for."""
    findings: dict[str, Finding] = {}
    for name in order(checks):
        blocker = _first_blocker(checks[name].AFTER, findings)
        found = (
            Finding(status="skipped", message=f"waits for `{blocker}`")
            if blocker
            else checks[name].check(host)
        )
        findings[name] = dataclasses.replace(found, check=name)
    return tuple(findings.values())


def order(checks: Mapping[str, Check]) -> list[str]:
    """Names so that each comes after all that it depends on; alphabetical where that leaves a choice."""
    return list(TopologicalSorter({n: sorted(c.AFTER) for n, c in sorted(checks.items())}).static_order())


def _first_blocker(after: Iterable[str], findings: Mapping[str, Finding]) -> str | None:
    return next((name for name in after if findings[name].status not in ("ok", "warn")), None)
