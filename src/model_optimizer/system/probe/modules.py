"""The kernel's side of the driver: modules, what DKMS built, packages, device nodes, kernel messages."""

import re

from model_optimizer.core.host import Modules

from .world import World, attempt

_MODULES = frozenset({
    "nvidia", "nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nv_peer_mem", "nouveau",
    "nova_core", "amdgpu", "i915", "xe",
})  # fmt: skip
_VERSION = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)?)\b")
_PACKAGE = re.compile(
    r"linux-modules-nvidia\S*|(?:lib)?nvidia-(?:driver|dkms|open|kernel|compute|headless|utils)\S*"
    r"|nvidia-(?:container-toolkit|fabric-?manager)\S*"
    r"|(?:lib)?nvidia-(?:cfg|gl|ml|ptxjitcompiler)\S*|cuda-(?:drivers|compat)\S*|kmod-nvidia\S*|akmod-nvidia\S*"
    r"|libcuda1|xserver-xorg-video-nouveau"
)
_INSTALLED = re.compile(
    r"^Package: (\S+)\nStatus: (?:install|hold) ok installed\n(?:.+\n)*?Version: (\S+)$", re.MULTILINE
)
_SPEAKS_OF_GPU = re.compile(
    r"NVRM|\bXid\b|nouveau|nvidia|\bavc:.*(?:nvidia|container)|Lockdown:.*module|key was rejected"
    r"|BAR \d.*(?:no space|can't|failed)",
    re.IGNORECASE,
)
_STAMP = re.compile(r"^(?:<\d+>)?(?:\[[^\]]*\]\s*|\w{3} +\d+ [\d:.]+ \S+ kernel: |\S+T\S+ \S+ kernel: )")
_MESSAGES = 60


def read(world: World) -> Modules:
    if world.system != "Linux":
        return Modules()
    kernel = world.kernel() or ""
    loaded = world.text("/proc/modules")
    built, added = _dkms(world, kernel)
    names = world.names("/dev")
    return Modules(
        loaded=None
        if loaded is None
        else tuple(sorted({r.split()[0] for r in loaded.splitlines() if r} & _MODULES)),
        nvidia_version=_loaded_version(world),
        open=_is_open(world),
        dkms=built,
        dkms_added=added,
        headers=_headers(world, kernel),
        packages=_packages(world),
        messages=_messages(world),
        device_nodes=None
        if names is None
        else tuple(n for n in names if re.fullmatch(r"nvidia[\w-]*|dxg", n)),
    )


def _loaded_version(world: World) -> str | None:
    if plain := (world.text("/sys/module/nvidia/version") or "").strip():
        return plain
    found = _VERSION.search(world.text("/proc/driver/nvidia/version") or "")
    return found[1] if found else None


def _is_open(world: World) -> bool | None:
    text = world.text("/proc/driver/nvidia/version")
    return None if not text else "Open Kernel Module" in text


def _dkms(world: World, kernel: str) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Versions of the nvidia module in DKMS's tree: built for this kernel, and not built for it."""
    trees = [n for n in world.names("/var/lib/dkms") or () if n.startswith("nvidia")]
    if not trees:
        return (), ()
    built: list[str] = []
    added: list[str] = []
    for tree in trees:
        for version in world.names(f"/var/lib/dkms/{tree}") or ():
            if not _VERSION.fullmatch(version):
                continue
            here = f"/var/lib/dkms/{tree}/{version}/{kernel}"
            done = any(world.exists(f"{here}/{arch}/module") for arch in world.names(here) or ())
            (built if done else added).append(version)
    return tuple(built), tuple(added)


def _headers(world: World, kernel: str) -> bool | None:
    place = f"/lib/modules/{kernel}"
    if not kernel or not world.exists(place):
        return None
    build = world.at(f"{place}/build")
    if attempt(build.is_symlink):
        target = attempt(lambda: str(build.readlink()))
        return bool(target) and (world.exists(str(target)) if str(target).startswith("/") else build.exists())
    return build.exists()


def _packages(world: World) -> dict[str, str] | None:
    """Installed packages of the driver, from dpkg's or rpm's list."""
    status = world.at("/var/lib/dpkg/status")
    if status.exists():
        text = attempt(lambda: status.read_text("utf-8", "replace"))
        rows = [] if text is None else _INSTALLED.findall(text)
        return None if text is None else {name: v for name, v in rows if _PACKAGE.fullmatch(name)}
    listed = world.ask(["rpm", "-qa", "--qf", "%{NAME} %{VERSION}\n"], 2.5)
    if listed is None:
        return None
    pairs = (line.split() for line in listed.splitlines())
    return {p[0]: p[1] for p in pairs if len(p) == 2 and _PACKAGE.fullmatch(p[0])}


def _messages(world: World) -> tuple[str, ...] | None:
    """Kernel messages about GPUs, oldest first, without time stamps and repetitions.

    Many systems show them to root only; the journal has them for members of its group.
    """
    text = world.ask(["dmesg"], 2.0) or world.ask(
        ["journalctl", "-k", "-b", "-q", "-n", "20000", "--no-pager", "-o", "cat"], 2.5
    )
    if not text:  # a kernel always has something to say: nothing means that we may not read it
        return None
    lines = (_STAMP.sub("", line).strip()[:300] for line in text.splitlines() if _SPEAKS_OF_GPU.search(line))
    return tuple(dict.fromkeys(lines))[-_MESSAGES:]
