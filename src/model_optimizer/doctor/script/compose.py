"""Which steps a machine needs, in their order, with its values filled in: pure, from findings to text."""

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from model_optimizer.core import Finding, Host, HostError
from model_optimizer.doctor import advice

from . import values
from .step import Step, shell, steps

PLACES = ("ubuntu", "debian", "rhel9", "rhel10", "wsl2")
COVERED = "Ubuntu 22.04 to 26.04, Debian 12 and 13, Rocky and RHEL 9 and 10, WSL2 with Ubuntu or Debian"
_CONDITIONS: Mapping[str, Callable[[Host], bool]] = {
    "engine": lambda host: bool(host.container_runtimes),
    "docker": advice.has_docker,
    "selinux": lambda host: host.platform.selinux == "enforcing",
    "secure-boot": lambda host: bool(host.platform.secure_boot),
    "no-toolkit": lambda host: not host.containers.toolkit,
    "no-runtime": lambda host: "nvidia" not in (host.containers.runtimes or ()) and not host.containers.cdi,
    "cdi-or-no-toolkit": lambda host: bool(host.containers.cdi) or not host.containers.toolkit,
    "systemd-cgroups": lambda host: host.containers.cgroup_driver == "systemd" and not host.containers.cdi,
    "boolean-off": lambda host: not (host.platform.selinux_booleans or {}).get("container_use_devices"),
}


def compose(host: Host, findings: Sequence[Finding]) -> str:
    """The script. HostError where there is none: another system, a container, native Windows."""
    place = advice.place(host)
    _refuse_elsewhere(host, place, findings)
    chosen = choose(host, place, findings)
    left = [f for f in findings if f.status == "fail" and not _covers(chosen, f)]
    parts = [_head(host, chosen), shell("prelude"), _same_machine(host)]
    if chosen:
        parts += [shell("dnf" if place.startswith("rhel") else "apt"), *_steps(host, chosen)]
    parts += [_probe(host), *map(_left_over, left), shell("finish")]
    return "\n\n".join(part for part in parts if part) + "\n"


def mends(host: Host, findings: Sequence[Finding]) -> bool:
    """Whether there is a script for this machine with anything to do."""
    place = advice.place(host)
    return place in PLACES and values.system(host) is not None and bool(choose(host, place, findings))


def choose(host: Host, place: str, findings: Iterable[Finding]) -> list[Step]:
    """The steps that the findings call for. What waits for something that is mended is asked again then."""
    found = {f.check: f for f in findings}
    if host.nvml == "no library" and "driver_present" in found:
        found["driver_library"] = found["driver_present"]  # half a driver is installed anew
    here = [s for s in steps() if place in s.places and (s.only is None or _CONDITIONS[s.only](host))]
    called = [s for s in here if _called(s, found)]
    mended = {name for s in called for name in s.calls}
    return [s for s in here if s in called or _waiting(s, host, found, mended)]


def _called(step: Step, found: dict[str, Finding]) -> bool:
    failed = any(name in found and found[name].status == "fail" for name in step.calls)
    return failed or any(name in found and found[name].status == "warn" for name in step.warns)


def _waiting(step: Step, host: Host, found: dict[str, Finding], mended: set[str]) -> bool:
    """Whether it will be wanted once what its checks wait for is mended."""
    if step.wait is None or not _CONDITIONS[step.wait](host):
        return False
    return any(name in found and found[name].waits_for in mended for name in step.calls)


def _covers(chosen: Sequence[Step], finding: Finding) -> bool:
    return any(finding.check in step.calls for step in chosen)


def _refuse_elsewhere(host: Host, place: str, findings: Sequence[Finding]) -> None:
    why = {
        "windows": "there is no script for native Windows",
        "container": "there is no script for the inside of a container: the host has the driver",
    }.get(place)
    if why is None and (place not in PLACES or values.system(host) is None):
        why = f"there is no script for {host.distribution or 'a system that could not be read'}"
    if why is None:
        return
    steps_by_hand = [
        line for f in findings if f.status == "fail" for line in (f.hint or "").split("\n") if line
    ]
    raise HostError(
        why,
        cause=(f"covered are {COVERED}",),
        hint=(*steps_by_hand, "make it there, or for a saved host of another machine: --host FILE"),
        reference="no-script",
    )


def _head(host: Host, chosen: Sequence[Step]) -> str:
    """Who it is for, and what it will do."""
    what = [f"#   {number}. {step.title}" for number, step in enumerate(chosen, 1)]
    day = f" on {host.taken}" if host.taken else ""
    lines = [
        "#!/usr/bin/env bash",
        f"# Made by `mopt doctor --script` from what was read{day}. Read it before you run it.",
        "# It makes so:",
        *(what or ["#   nothing: a script has nothing to do here"]),
        "# What is so already is left alone, so it may be run again at any time. It stops where a",
        "# reboot or a person is needed, and goes on from there. With --check it only says what is",
        "# missing. Where root is needed it asks for it with sudo.",
    ]
    return "\n".join(map(_one_line, lines))


def _same_machine(host: Host) -> str:
    system = values.system(host)
    assert system is not None
    return "\n".join(
        [
            f"made_for={shlex.quote(system)}",
            'if [ "$(os_release ID) $(os_release VERSION_ID)" != "$made_for" ]; then',
            '  by_hand "this script is for $made_for" "make one here: mopt doctor --script"',
            "fi",
        ]
    )


def _steps(host: Host, chosen: Sequence[Step]) -> list[str]:
    """The values that the steps use, then each with its call."""
    bodies = "\n".join(step.body for step in chosen)
    known = values.of(host)
    used = [name for name in known if re.search(rf"\$\{{?{name}\b", bodies)]
    given = "\n".join(f"{name}={shlex.quote(known[name])}" for name in used)
    blocks = [f"{step.body}\nstep {step.name} {shlex.quote(step.title)}" for step in chosen]
    return [*([given] if given else []), *blocks]


def _probe(host: Host) -> str:
    """The last word is the driver's own."""
    if not advice.has_nvidia(host) and not host.wsl:
        return ""
    return "if command -v nvidia-smi >/dev/null; then timeout 30 nvidia-smi -L || true; fi"


def _left_over(finding: Finding) -> str:
    """What failed and no script mends, said at the end, with its steps."""
    todo = [line for line in (finding.hint or "").split("\n") if line]
    words = " ".join(shlex.quote(_one_line(text)) for text in (f"left to you: {finding.message}", *todo))
    return f"printf '%s\\n' {words}\nleft=$((left + 1))"


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
