"""The screens of `mopt doctor`: layers in order, then the first broken thing with evidence and fix."""

import json
import textwrap
from collections.abc import Sequence

from model_optimizer.cli.render import printable
from model_optimizer.core import Finding, Host, units
from model_optimizer.core.endpoint import Endpoint

MARK = {"ok": "ok  ", "warn": "warn", "fail": "FAIL", "unknown": "?   ", "skipped": "-   "}
_WORST = ("fail", "warn", "ok", "unknown", "skipped")
_WIDTH = 100
# What a layer's line begins with when all is well; the others follow as far as there is room.
_TELLING = (
    "memory_enough", "disk_enough", "cpu_vectors", "module_loaded", "gpu_visible", "driver_branch",
    "gpu_formats", "power_limit", "pcie_link", "runtime_fits_driver", "visible_devices", "container_toolkit",
    "runtime_registered", "target_driver", "target_gpu",
)  # fmt: skip


def report(host: Host, findings: Sequence[Finding], *, everything: bool = False) -> str:
    """The whole screen. `everything` lists each check instead of a line a layer."""
    blocks = [
        heading(host),
        findings_text(findings) if everything else layers_text(findings),
        first_broken(findings),
        others(findings),
        "\n".join(f"not read: {line}" for line in host.unread),
        summary(findings, hint=not everything),
    ]
    return printable("\n\n".join(block for block in blocks if block)) + "\n"


def endpoint_report(endpoint: Endpoint, findings: Sequence[Finding], *, everything: bool = False) -> str:
    """The same screen for a running server."""
    what = " ".join(filter(None, (endpoint.engine, endpoint.version)))
    models = endpoint.models or ()
    blocks = [
        ", ".join(filter(None, (endpoint.url + endpoint.prefix, what, *models[:3]))),
        findings_text(findings) if everything else layers_text(findings),
        first_broken(findings),
        others(findings),
        summary(findings, hint=not everything),
    ]
    return printable("\n\n".join(block for block in blocks if block)) + "\n"


def heading(host: Host) -> str:
    """Which machine this is, in one line."""
    gpus = [gpu.name for gpu in host.gpus or ()]
    memory = host.gpus[0].memory_bytes if host.gpus else None
    size = f" ({units.show_bytes(memory)})" if memory else ""
    parts = [
        host.distribution or host.os or "unknown system",
        f"kernel {host.kernel}" if host.kernel and host.os != "Windows" else "",
        "WSL2" if host.wsl else "in a container" if host.container else "",
        f"{len(gpus)} x {gpus[0]}{size}"
        if len(gpus) > 1
        else f"{gpus[0]}{size}"
        if gpus
        else _without_gpu(host),
        f"driver {host.driver_version}" if host.driver_version else "",
    ]
    return ", ".join(part for part in parts if part)


def _without_gpu(host: Host) -> str:
    """A GPU that is plugged in and that no driver shows is not the same as none."""
    waiting = [a for a in host.adapters or () if a.vendor == "nvidia" and a.kind != "switch"]
    return "an NVIDIA GPU that no driver shows" if waiting else "no GPU seen"


def layers_text(findings: Sequence[Finding]) -> str:
    """One line a layer: its worst answer; where all is well, what was found."""
    names = list(dict.fromkeys(f.layer for f in findings))
    width = max(map(len, names))
    return "\n".join(_layer(name, [f for f in findings if f.layer == name], width) for name in names)


def _layer(name: str, here: Sequence[Finding], width: int) -> str:
    waiting = [f for f in here if f.waits_for]
    status = min((f.status for f in here), key=_WORST.index)
    if status in ("fail", "warn"):
        text = next(f.message for f in here if f.status == status)
        more = sum(f.status == status for f in here) - 1
        text += f" (and {more} more)" if more else ""
    elif status == "ok":
        good = sorted((f for f in here if f.status == "ok"), key=_telling)
        text = "; ".join(dict.fromkeys(f.message for f in good))
    elif waiting:
        text = f"waits for {waiting[0].waits_for}"
    else:
        text = [f.message for f in here if f.status == status][-1]
    start = f"{MARK[status]}  {name:<{width}}  "
    return start + textwrap.shorten(text, _WIDTH - len(start), placeholder=" ...")


def _telling(finding: Finding) -> int:
    return _TELLING.index(finding.check) if finding.check in _TELLING else len(_TELLING)


def first_broken(findings: Sequence[Finding]) -> str:
    """The root: what is wrong, what was read, what to do here. Empty when nothing failed."""
    broken = next((f for f in findings if f.status == "fail"), None)
    return _detail(broken, "BROKEN") if broken else ""


def others(findings: Sequence[Finding]) -> str:
    """The other failures in full, then the warnings."""
    failed = [_detail(f, "ALSO BROKEN") for f in findings if f.status == "fail"][1:]
    return "\n\n".join([*failed, *(_detail(f, "To look at") for f in findings if f.status == "warn")])


def _detail(finding: Finding, label: str) -> str:
    lines = [f"{label}: {finding.message}", f"  check   {finding.check} ({finding.layer})"]
    rows = [("read", [finding.evidence or ""]), ("do", (finding.hint or "").split("\n"))]
    rows += [("source", ["; ".join(finding.source)])] if finding.status == "fail" else []
    for name, values in rows:
        for index, value in enumerate(value for value in values if value):
            wrapped = _wrap(value) if name != "do" else [value]
            first = name if index == 0 else ""
            lines += [f"  {'' if i else first:<6}  {line}" for i, line in enumerate(wrapped)]
    return "\n".join(lines)


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH - 10, break_long_words=False, break_on_hyphens=False) or [""]


def findings_text(findings: Sequence[Finding]) -> str:
    """Every check on a line, under its layer."""
    width = max(len(f.check) for f in findings)
    lines: list[str] = []
    layer = ""
    for finding in findings:
        if finding.layer != layer:
            layer = finding.layer
            lines += [*([""] if lines else []), layer]
        lines.append(f"  {MARK[finding.status]}  {finding.check:<{width}}  {finding.message}")
    return "\n".join(lines)


def summary(findings: Sequence[Finding], *, hint: bool = False) -> str:
    """One line: how many checks, and what it means."""
    count = {status: sum(f.status == status for f in findings) for status in MARK}
    parts = [f"{count['ok']} ok"]
    parts += [f"{count[s]} {word}" for s, word in (("warn", "to look at"), ("fail", "failed")) if count[s]]
    parts += [f"{count[s]} {s}" for s in ("unknown", "skipped") if count[s]]
    return ", ".join(parts) + ("; --all lists each check" if hint else "")


def findings_json(findings: Sequence[Finding], subject: object, name: str = "host") -> str:
    """The findings, and under `name` what they are about."""
    rows = [
        {
            "check": f.check,
            "status": f.status,
            "message": f.message,
            "evidence": f.evidence,
            "hint": f.hint,
            "layer": f.layer,
            "source": f.source,
            "waits_for": f.waits_for,
        }
        for f in findings
    ]
    return json.dumps({"findings": rows, name: subject}, indent=2, ensure_ascii=False) + "\n"
