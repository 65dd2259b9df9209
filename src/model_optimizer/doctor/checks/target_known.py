"""What shall run is known to the facts.

A release that is not known is judged by the nearest one that is, and the answer says so.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.core.target import Target

LAYER = "target"
TARGETED = True
AFTER: tuple[str, ...] = ()
SOURCE = ("facts/compatibility",)


def check(host: Host, target: Target | None = None) -> Finding:
    del host
    if target is None:
        return Finding(status="skipped", message="nothing was named with --for")
    inexact = [need for need in target.needs if not need.exact]
    evidence = (
        "; ".join(f"{need.asked}: {need.product} {need.version or '?'}" for need in target.needs)
        or target.asked
    )
    if not target.needs:
        return Finding(
            status="unknown", message=f"nothing that is known was found in {target.asked}", evidence=evidence
        )
    if inexact:
        notes = [note for need in inexact for note in need.notes] or [f"{inexact[0].asked} is not known"]
        return Finding(
            status="warn",
            message="; ".join(notes),
            evidence=evidence,
            hint="name a release that is known (mopt facts lists them), or compare with its release notes",
        )
    unknown = f"; not known: {', '.join(target.unknown)}" if target.unknown else ""
    return Finding(
        status="ok",
        message=f"{', '.join(need.asked for need in target.needs)}: known{unknown}",
        evidence=evidence,
    )
