"""A machine that is played: commands that only write down what they were asked, and what it would change.

Run as one of those commands (by its name), this file plays it; imported, `Machine` sets one up. PATH holds
nothing else than these and a few tools that read and write text, so nothing real can be reached.
"""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subprocess import CompletedProcess

REAL = (
    "bash", "cat", "sed", "awk", "grep", "tr", "mkdir", "rm", "tee", "mktemp", "dirname", "cut", "sha256sum",
    "env", "timeout", "ls", "head", "tail",
)  # fmt: skip
DEB = (
    "apt-get",
    "apt-cache",
    "apt-mark",
    "dpkg-query",
    "update-initramfs",
    "update-secureboot-policy",
    "prime-select",
)
RPM = ("dnf", "rpm", "dracut", "getsebool", "setsebool")
ALWAYS = (
    "modinfo",
    "modprobe",
    "systemctl",
    "docker",
    "mokutil",
    "curl",
    "gpg",
    "dkms",
    "ldconfig",
)
KERNEL = "6.14.0-33-generic"
# These are asked so often that starting Python for each would take most of a test's time.
SHELL = {
    "sudo": 'if [ "$1" = -- ]; then shift; fi; exec "$@"',
    "id": "echo 1000",
    "uname": f'if [ "$1" = -m ]; then echo x86_64; else echo {KERNEL}; fi',
}
VERSION = {"580": "580.95.05", "570": "570.172.08", "535": "535.183.01", "550": "550.54"}
BRANCHES = tuple(VERSION)


class Machine:
    """`packages` maps names to version and whether they are held. `loaded` is the module's version."""

    def __init__(
        self, folder: Path, system: str, packages: dict[str, str] | None = None, **state: object
    ) -> None:
        self.root, self.commands, self._file = folder / "root", folder / "bin", folder / "state.json"
        self.log = folder / "log"
        name, version = system.split()
        for place in ("etc", "proc/sys/kernel/random", f"lib/modules/{KERNEL}", "etc/modprobe.d", "usr/bin"):
            (self.root / place).mkdir(parents=True)
        (self.root / "etc/os-release").write_text(f'ID={name}\nVERSION_ID="{version}"\n')
        (self.root / "proc/modules").write_text("")
        self.commands.mkdir()
        import shutil  # slow, and not needed by a command

        for tool in REAL:
            (self.commands / tool).symlink_to(shutil.which(tool) or f"/bin/{tool}")
        known = {"packages": packages or {}, "held": [], "loaded": None, "boots": 0, "services": [], **state}
        self._file.write_text(json.dumps(known))
        self.log.write_text("")
        for name_, body in SHELL.items():
            (self.commands / name_).write_text(f"#!{self.commands}/bash\n{body}\n")
            (self.commands / name_).chmod(0o755)
        play = self.commands / "play"
        play.write_text(f"#!{sys.executable} -SE\n" + Path(__file__).read_text())
        play.chmod(0o755)
        for command in (*ALWAYS, *(DEB if name in ("ubuntu", "debian") else RPM)):
            self.has(command)
        if any("nvidia-driver" in p or p in ("nvidia-open", "cuda-drivers") for p in known["packages"]):
            self.has("nvidia-smi")
        self.restart()

    def has(self, command: str) -> None:
        place = self.commands / command
        if not place.exists():
            place.symlink_to("play")

    @property
    def state(self) -> dict:
        return json.loads(self._file.read_text())

    def change(self, **values: object) -> None:
        self._file.write_text(json.dumps({**self.state, **values}))

    def restart(self) -> None:
        """A new kernel: the module is the one that is installed, when nothing keeps it out."""
        state = self.state
        boots = state["boots"] + 1
        (self.root / "proc/sys/kernel/random/boot_id").write_text(f"boot-{boots}\n")
        blocked = any("blacklist nouveau" in p.read_text() for p in (self.root / "etc/modprobe.d").iterdir())
        nouveau = bool(state.get("nouveau")) and not blocked
        (self.root / "proc/modules").write_text("nouveau 1 0 - Live 0x0\n" if nouveau else "")
        self.change(boots=boots, enrolled=state.get("enrolled") or bool(state.get("asked_to_enrol")))
        refused = bool(state.get("secure_boot")) and not self.state["enrolled"]
        version = None if nouveau or refused or state.get("broken") else driver_of(state["packages"])
        self.change(loaded=version)
        show(self.root, version)

    def run(self, script: Path, *arguments: str) -> "CompletedProcess[str]":
        import subprocess

        home = self.root.parent / "home"
        return subprocess.run(
            [str(self.commands / "bash"), str(script), *arguments],
            env={"PATH": str(self.commands), "HOME": str(home), "MOPT_READY_ROOT": str(self.root), "PLAYED": str(self._file)},
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    def changes(self) -> list[str]:
        """What was changed since the last time this was asked."""
        lines = self.log.read_text().splitlines()
        self.log.write_text("")
        return lines


def show(root: Path, version: str | None) -> None:
    place = root / "proc/driver/nvidia/version"
    if version:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"NVRM version: NVIDIA UNIX Open Kernel Module  {version}  Release\n")
    elif place.exists():
        place.unlink()


def driver_of(packages: dict[str, str]) -> str | None:
    found = [
        v
        for n, v in packages.items()
        if n.startswith("nvidia-driver-") or n in ("nvidia-open", "cuda-drivers")
    ]
    return max(found, default=None)


# -- as a command


def main() -> int:
    file = Path(os.environ["PLAYED"])
    root = file.parent / "root"
    name, words = Path(sys.argv[0]).name, sys.argv[1:]
    state = json.loads(file.read_text())
    answer, changed = play(name, words, state, root, file.parent / "bin")
    if changed:
        with (file.parent / "log").open("a") as log:
            log.write(" ".join([name, *words]).replace(str(root), "") + "\n")
        file.write_text(json.dumps(state))
    if isinstance(answer, int):
        return answer
    sys.stdout.write(answer)
    return 0


def play(name: str, words: list[str], state: dict, root: Path, commands: Path) -> tuple[int | str, bool]:
    packages = state["packages"]
    plain = [w for w in words if not w.startswith("-")]
    if name in ("apt-get", "dnf") and plain[:1] in (["install"], ["purge"], ["remove"]):
        for package in plain[1:]:
            if plain[0] == "install":
                install(package, state, root, commands)
            else:
                packages.pop(package, None)
        return 0, True
    if name == "apt-get":
        return 0, plain[0] != "update"
    if name == "dnf":
        if plain[0] == "repoquery":
            return ("dkms\n" if "epel-release" in packages else ""), False
        if plain[0] == "module" and "enable" in plain:
            state["stream"] = plain[-1].split(":")[1].split("-")[0]
        if plain[0] == "versionlock":
            lock = root / "etc/dnf/plugins/versionlock.list"
            lock.parent.mkdir(parents=True, exist_ok=True)
            lock.write_text(f"{plain[-1]}\n")
        return 0, True
    if name == "dpkg-query":
        star = [w.rstrip("*") for w in words if not w.startswith("-")]
        rows = [
            (n, v) for n, v in packages.items() if any(n == s or n.startswith(s.split("*")[0]) for s in star)
        ]
        version = "${Version}" in words[1]
        rows = [(n, v) for n, v in rows if not version or n in star]
        return "".join(
            f"{'hi' if n in state['held'] else 'ii'}  {v + '-1' if version else n}\n" for n, v in rows
        ), False
    if name == "rpm":
        if "--import" in words:
            return 0, True
        found = [n for n in packages if n in plain]
        return ("".join(f"{packages[n]}\n" for n in found) or 1), False
    if name == "apt-mark":
        state["held"] = (
            [*state["held"], *plain[1:]]
            if plain[0] == "hold"
            else [h for h in state["held"] if h not in plain]
        )
        return 0, True
    if name == "modinfo":
        return (0 if any(p.startswith("linux-modules-nvidia") for p in packages) else 1), False
    if name == "modprobe":
        refused = state.get("secure_boot") and not state.get("enrolled")
        version = None if refused or "nouveau" in (root / "proc/modules").read_text() else driver_of(packages)
        state["loaded"] = version
        show(root, version)
        return (0 if version else 1), True
    if name == "nvidia-smi":
        if not state["loaded"] or state["loaded"] != driver_of(packages):
            return 9, False
        return (f"{state['loaded']}\n" if "--query-gpu=driver_version" in words else "GPU 0: NVIDIA\n"), False
    if name == "nvidia-ctk":
        output = next((Path(w.removeprefix("--output=")) for w in words if w.startswith("--output=")), None)
        if output:
            output.write_text(f"kind: nvidia.com/gpu\nlibcuda.so.{state['loaded']}\n")
        else:
            daemon = root / "etc/docker/daemon.json"
            daemon.parent.mkdir(exist_ok=True)
            cdi = '"features": {"cdi": true}, ' if "--cdi.enabled" in words else ""
            daemon.write_text(f'{{{cdi}"runtimes": {{"nvidia": {{"path": "nvidia-container-runtime"}}}}}}\n')
        return 0, True
    if name == "systemctl":
        if plain[0] == "is-active":
            return (0 if plain[-1] in state["services"] else 3), False
        state["services"] += [plain[-1]] if plain[0] == "enable" else []
        return 0, True
    if name == "mokutil":
        if "--import" in words:
            state["asked_to_enrol"] = True
            return 0, True
        if "--sb-state" in words:
            return f"SecureBoot {'enabled' if state.get('secure_boot') else 'disabled'}\n", False
        if "--test-key" in words:
            return f"{words[-1]} is {'already' if state.get('enrolled') else 'not'} enrolled\n", False
        return ("key\n" if state.get("asked_to_enrol") and not state.get("enrolled") else ""), False
    if name == "update-secureboot-policy" or (name == "dkms" and words == ["generate_mok"]):
        key = root / ("var/lib/shim-signed/mok/MOK.der" if name != "dkms" else "var/lib/dkms/mok.pub")
        key.parent.mkdir(parents=True, exist_ok=True)
        key.write_text("key")
        return 0, True
    if name == "curl":
        Path(words[words.index("--output") + 1]).write_text(words[-1])
        return 0, True
    if name == "gpg":
        keys = {"3bf863cc": "EB693B3035CD5710E231E123A4B469963BF863CC", "gpgkey": "C95B321B61E88C1809C4F759DDCAE044F796ECB0",
                "D42D0685": "610C7B14E068A878070DA4E99CD0A493D42D0685"}  # fmt: skip
        url = Path(words[-1]).read_text()
        print_ = "0" * 40 if state.get("wrong_key") else next(v for k, v in keys.items() if k in url)
        return f"pub:::\nfpr:::::::::{print_}:\n", False
    if name == "docker":
        return ("" if "ps" in words or state.get("desktop") is None else "Docker Desktop\n"), False
    if name == "getsebool":
        return (f"container_use_devices --> {'on' if state.get('boolean') else 'off'}\n"), False
    if name == "setsebool":
        state["boolean"] = True
        return 0, True
    if name == "prime-select":
        (root / "etc/prime-discrete").write_text(f"{plain[0]}\n")
        return 0, True
    if name == "apt-cache":
        return (0 if plain[-1] not in state.get("absent", []) else 100), False
    return 0, name not in ("ldconfig",)


def install(package: str, state: dict, root: Path, commands: Path) -> None:
    version = "1.0"
    branch = next(
        (b for b in BRANCHES if f"-{b}" in package), state.get("stream") or state.get("branch", "580")
    )
    if "nvidia-driver-pinning" in package:
        state["branch"] = branch
        return
    if "nvidia-driver" in package or package in ("nvidia-open", "cuda-drivers"):
        version = VERSION[branch]
        for other in ("nvidia-open", "cuda-drivers"):
            state["packages"].pop(other, None)
        if not (commands / "nvidia-smi").exists():
            (commands / "nvidia-smi").symlink_to("play")
    if package == "nvidia-container-toolkit" and not (commands / "nvidia-ctk").exists():
        (commands / "nvidia-ctk").symlink_to("play")
    if package.startswith(("linux-headers-", "kernel-devel-")):
        (root / f"lib/modules/{KERNEL}/build").mkdir()
    state["packages"][package] = version


if __name__ == "__main__":
    sys.exit(main())
