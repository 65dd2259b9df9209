"""Run every check against one Host, in order of dependency, so that one broken layer speaks once."""

import dataclasses
from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from typing import Any

from model_optimizer.core import Check, Finding, Host, MoptError
from model_optimizer.core.target import Target

LAYERS = (
    "machine", "hardware", "kernel", "driver", "gpu", "cuda", "packages", "containers", "network", "target",
    "reach", "interface", "access", "answers",
)  # fmt: skip
"""From the bottom up: what a layer needs stands in those before it. A check names its own in LAYER.
The last four are those of a running server."""


def examine(host: Host, checks: Mapping[str, Check], target: Target | None = None) -> tuple[Finding, ...]:
    """One finding a check, layer by layer. A check that comes AFTER one that failed is skipped and names it.

    Checks that say TARGETED look at what shall run here, and take part only when there is a target.
    """
    return examine_subject(host, checks, target)


def examine_subject(
    subject: object, checks: Mapping[str, Check], target: Target | None = None
) -> tuple[Finding, ...]:
    """The same for anything that the checks know: a Host, or an Endpoint."""
    here = {n: c for n, c in checks.items() if target is not None or not _is_targeted(c)}
    findings: dict[str, Finding] = {}
    for name in order(here):
        module = here[name]
        blocker = _first_blocker(module.AFTER, findings)
        found = (
            Finding(status="skipped", message=f"waits for `{blocker}`", waits_for=blocker)
            if blocker
            else _ask(module, subject, target)
        )
        findings[name] = dataclasses.replace(
            found, check=name, layer=layer(module), source=tuple(getattr(module, "SOURCE", ()))
        )
    return tuple(sorted(findings.values(), key=lambda f: LAYERS.index(f.layer)))


def order(checks: Mapping[str, Check]) -> list[str]:
    """Names so that each comes after all that it depends on; by layer and name where that leaves a choice."""
    by_layer = sorted(checks, key=lambda name: (LAYERS.index(layer(checks[name])), name))
    after = {name: [n for n in checks[name].AFTER if n in checks] for name in by_layer}
    return list(TopologicalSorter(after).static_order())


def layer(check: Check) -> str:
    """The layer that a check belongs to; `machine` when it does not say."""
    return getattr(check, "LAYER", LAYERS[0])


def _is_targeted(check: Check) -> bool:
    return bool(getattr(check, "TARGETED", False))


def _ask(check: Any, subject: object, target: Target | None) -> Finding:
    try:
        return check.check(subject, target) if _is_targeted(check) else check.check(subject)
    except (MoptError, ValueError) as error:
        return Finding(
            status="unknown",
            message="what was read is of a form that this check does not know",
            evidence=str(error),
        )
    except Exception as error:  # noqa: BLE001 - a crash in a check is a result, and costs no other check
        return Finding(
            status="unknown",
            message="this check has a bug and did not finish",
            evidence=f"{type(error).__name__}: {error}",
            hint="report it with the file that `mopt doctor --save` writes",
        )


def _first_blocker(after: Iterable[str], findings: Mapping[str, Finding]) -> str | None:
    """The root that it waits for: a check that failed, or what a check before it waits for itself."""
    for name in after:
        if name in findings and findings[name].status == "fail":
            return name
        if name in findings and findings[name].waits_for:
            return findings[name].waits_for
    return None
