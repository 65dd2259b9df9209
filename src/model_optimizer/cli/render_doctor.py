"""The screens of `mopt doctor`."""

import json
from collections.abc import Sequence

from model_optimizer.core import Finding

MARK = {"ok": "ok  ", "warn": "warn", "fail": "FAIL", "unknown": "?   ", "skipped": "-   "}


def findings_text(findings: Sequence[Finding]) -> str:
    width = max(len(f.check) for f in findings)
    lines: list[str] = []
    for finding in findings:
        lines.append(f"{MARK[finding.status]}  {finding.check:<{width}}  {finding.message}")
        if finding.hint and finding.status != "ok":
            lines.append(f"{'':{width + 8}}hint: {finding.hint}")
    return "\n".join([*lines, "", summary(findings)]) + "\n"


def summary(findings: Sequence[Finding]) -> str:
    """One line: how many checks, and what it means."""
    count = {status: sum(f.status == status for f in findings) for status in MARK}
    parts = [f"{count['ok']} ok"]
    parts += [f"{count[s]} {word}" for s, word in (("warn", "to look at"), ("fail", "failed")) if count[s]]
    parts += [f"{count[s]} {s}" for s in ("unknown", "skipped") if count[s]]
    return ", ".join(parts)


def findings_json(findings: Sequence[Finding], host: object) -> str:
    rows = [
        {
            "check": f.check,
            "status": f.status,
            "message": f.message,
            "evidence": f.evidence,
            "hint": f.hint,
        }
        for f in findings
    ]
    return json.dumps({"findings": rows, "host": host}, indent=2, ensure_ascii=False) + "\n"
