"""`mopt doctor --script`: what it prints for every recorded host, and what that does on a machine that is played.

MOPT_WRITE_SCRIPTS=1 writes tests/doctor/scripts anew: read the difference before it is committed.
"""

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from model_optimizer.cli.commands.doctor import COMMAND
from model_optimizer.core import Host, HostError, codec, plugins
from model_optimizer.core.host import Modules, Platform
from model_optimizer.doctor import examine
from model_optimizer.doctor.script import compose
from model_optimizer.doctor.script.step import shell, steps

sys.path.insert(0, str(Path(__file__).parent))
from played_machine import Machine

CHECKS = plugins.load_all("model_optimizer.doctor.checks")
HOSTS = Path(__file__).parents[1] / "hosts"
SCRIPTS = Path(__file__).parent / "scripts"
NAMES = sorted(path.stem for path in HOSTS.glob("*.json"))
ELSEWHERE = {"windows", "h200", "no-gpu", "daemon-reload", "compat-on-a100", "compat-shadows-driver"} | {
    name for name in NAMES if name.startswith("container-")
}
COVERED = [name for name in NAMES if name not in ELSEWHERE]


def host(name: str) -> Host:
    return codec.load(HOSTS / f"{name}.json", Host)


def made(machine: Host) -> str:
    return compose(machine, examine(machine, CHECKS))


def script(name: str) -> str:
    return made(host(name))


def called(text: str) -> list[str]:
    return [line.split()[1] for line in text.splitlines() if line.startswith("step ")]


# -- every recorded host


@pytest.mark.parametrize("name", COVERED)
def test_the_script_of_a_recorded_host(name: str) -> None:
    """Without what all have in common. Those with no step are alike but for their names."""
    text = script(name)
    if not called(text) and "left=$((left + 1))\n\n" not in text:
        return
    short = text.replace(shell("prelude"), "# ... prelude").replace(shell("finish"), "# ... finish")
    for part in ("apt", "dnf"):
        short = short.replace(shell(part), f"# ... {part}")
    place = SCRIPTS / f"{name}.sh"
    if os.environ.get("MOPT_WRITE_SCRIPTS"):
        place.write_text(short)
    assert place.read_text() == short


def test_every_snapshot_is_of_a_host() -> None:
    assert {path.stem for path in SCRIPTS.glob("*.sh")} <= set(COVERED)


def test_every_script_is_clean_shell(tmp_path: Path) -> None:
    files = []
    for name in [n for n in COVERED if called(script(n)) or n in ("t4", "full-disk", "cdi-stale")]:
        files.append(tmp_path / f"{name}.sh")
        files[-1].write_text(script(name))
        assert subprocess.run(["bash", "-n", files[-1]], check=False).returncode == 0, name
    checker = shutil.which("shellcheck") or Path(sys.executable).with_name("shellcheck")
    if not Path(checker).exists():
        pytest.skip("shellcheck is not installed")
    done = subprocess.run([checker, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[:3000]


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_other_systems_get_no_script_and_are_told_what_is_covered(name: str) -> None:
    with pytest.raises(HostError, match="no script") as caught:
        script(name)
    assert "Rocky" in caught.value.cause[0]


@pytest.mark.parametrize("name", ["h100-healthy", "rtx4060-laptop", "podman-only", "dgx-healthy", "t4"])
def test_a_healthy_host_needs_no_step(name: str) -> None:
    text = script(name)
    assert called(text) == [] and "nothing: a script has nothing to do" in text


def test_each_step_is_wanted_by_a_host_and_names_checks_that_exist() -> None:
    made_up = {"target_driver", "driver_library"} | set(CHECKS)
    for step in steps():
        assert step.calls | step.warns <= made_up, step.name
        assert f"have_{step.name}()" in step.body and f"do_{step.name}()" in step.body


def test_hostile_words_of_a_host_stay_words() -> None:
    evil = "$(touch /tmp/owned)`id`'; rm -rf / #\n\x1b[2J"
    machine = dataclasses.replace(
        host("no-driver"), distribution=evil, taken="2026-11-30", driver_version=None
    )
    assert evil not in made(machine)
    odd = dataclasses.replace(machine, platform=dataclasses.replace(machine.platform, version_id=evil))
    with pytest.raises(HostError):
        made(odd)


def test_a_branch_that_is_newer_and_still_served_stays() -> None:
    machine = dataclasses.replace(host("blackwell-proprietary"), taken="2026-11-30")
    newer = dataclasses.replace(machine.modules, nvidia_version="620.10")
    at_620 = dataclasses.replace(machine, modules=newer, driver_version="620.10")
    assert "nvidia-driver-620-server-open" in made(at_620)
    assert "nvidia-driver-580-server-open" in made(machine)


# -- a machine that is played

NO_DRIVER = Modules(
    loaded=(), dkms=(), dkms_added=(), headers=True, packages={}, messages=(), device_nodes=()
)


def without_driver(name: str, **platform: Any) -> Host:
    """The same machine before anybody installed a driver."""
    old = host(name)
    return dataclasses.replace(
        old,
        driver_version=None,
        driver_cuda=None,
        gpus=(),
        nvml="no library",
        modules=NO_DRIVER,
        adapters=tuple(dataclasses.replace(a, driver=None) for a in old.adapters or ()),
        linker=dataclasses.replace(old.linker, libraries={}),
        containers=dataclasses.replace(old.containers, toolkit="", cdi={}, runtimes=()),
        platform=dataclasses.replace(old.platform, **platform),
    )


def carry_through(machine: Machine, text: str, folder: Path) -> tuple[list[str], int]:
    """Run it, and start the machine again when it asks: what was changed, and how many reboots it took."""
    file = folder / "ready.sh"
    file.write_text(text)
    changes: list[str] = []
    for reboots in range(5):
        done = machine.run(file)
        changes += machine.changes()
        if done.returncode == 0:
            return changes, reboots
        assert done.returncode == 3 and "REBOOT" in done.stderr, done.stdout + done.stderr
        machine.restart()
    raise AssertionError("it goes in circles")


def place_of(changes: list[str], words: str) -> int:
    return next(i for i, line in enumerate(changes) if words in line)


def in_order(changes: list[str], *wanted: str) -> bool:
    places = [place_of(changes, words) for words in wanted]
    return places == sorted(places)


def test_ubuntu_with_secure_boot_from_nothing_to_ready(tmp_path: Path) -> None:
    text = made(without_driver("no-driver"))
    machine = Machine(
        tmp_path, "ubuntu 24.04", {"nvidia-kernel-common-535": "535.1"}, secure_boot=True, nouveau=True
    )
    changes, reboots = carry_through(machine, text, tmp_path)
    assert in_order(
        changes,
        "purge nvidia-kernel-common-535",
        "update-initramfs",
        "install linux-headers",
        "install nvidia-driver-580-open",
        "apt-mark hold nvidia-driver-580-open",
        "mokutil --import",
        "install nvidia-container-toolkit",
        "nvidia-ctk runtime configure",
    )
    assert reboots == 1 and machine.state["loaded"] == "580.95.05"
    nothing_left(machine, text, tmp_path)


def nothing_left(machine: Machine, text: str, folder: Path) -> None:
    """A second run changes nothing, and neither does --check."""
    for arguments in ((), ("--check",)):
        done = machine.run(folder / "ready.sh", *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        assert machine.changes() == []
        assert "doing" not in done.stdout


def test_ubuntu_gets_the_module_of_its_kernel(tmp_path: Path) -> None:
    old = host("headers-missing")
    modules = dataclasses.replace(old.modules, dkms=(), dkms_added=(), headers=True)
    machine_read = dataclasses.replace(
        old, modules=modules, platform=dataclasses.replace(old.platform, secure_boot=False)
    )
    text = made(machine_read)
    assert called(text)[:2] == ["prebuilt", "module"]
    machine = Machine(tmp_path, "ubuntu 24.04", {"nvidia-driver-580-server-open": "580.95.05"})
    (machine.root / "proc/driver/nvidia/version").unlink()
    machine.has("nvidia-ctk")
    changes, reboots = carry_through(machine, text, tmp_path)
    assert in_order(
        changes, "install linux-modules-nvidia-580-server-open-6.14.0-33-generic", "modprobe nvidia"
    )
    assert reboots == 0
    nothing_left(machine, text, tmp_path)


def test_debian_takes_the_proprietary_modules_for_pascal(tmp_path: Path) -> None:
    text = script("pascal-open-modules")
    assert "driver_package=cuda-drivers" in text
    machine = Machine(tmp_path, "debian 12", {"nvidia-open": "570.172.08"})
    machine.has("nvidia-ctk")
    changes, reboots = carry_through(machine, text, tmp_path)
    assert in_order(
        changes, "3bf863cc.pub", "install nvidia-driver-pinning-580", "install cuda-drivers", "apt-mark hold"
    )
    assert reboots == 1
    listed = (machine.root / "etc/apt/sources.list.d/nvidia-cuda.list").read_text()
    assert listed.startswith("deb [signed-by=/usr/share/keyrings/nvidia-cuda.asc] https://")
    nothing_left(machine, text, tmp_path)


def test_rocky_from_nothing_to_ready(tmp_path: Path) -> None:
    text = made(without_driver("rocky9-selinux-denial"))
    machine = Machine(tmp_path, "rocky 9.6")
    changes, _ = carry_through(machine, text, tmp_path)
    assert in_order(
        changes,
        "D42D0685.pub",
        "rpm --import",
        "install kernel-devel",
        "install dnf-plugins-core epel-release",
        "module reset",
        "module enable nvidia-driver:580-open",
        "install --allowerasing nvidia-open",
        "versionlock",
        "install nvidia-container-toolkit",
        "cdi generate",
        "setsebool -P container_use_devices 1",
    )
    nothing_left(machine, text, tmp_path)


def test_red_hat_has_no_dkms_and_says_so(tmp_path: Path) -> None:
    text = made(without_driver("podman-only"))
    file = tmp_path / "ready.sh"
    file.write_text(text.replace("sha256:afbea87d", "sha256:0fbea87d"))
    done = Machine(tmp_path / "a", "rhel 10.0").run(file)
    assert done.returncode == 3 and "is not the one that is known" in done.stderr


def test_a_wrong_key_stops_everything(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "ubuntu 24.04", {"nvidia-driver-580": "580.95.05"}, wrong_key=True)
    file = tmp_path / "ready.sh"
    file.write_text(script("toolkit-missing"))
    done = machine.run(file)
    assert done.returncode == 3 and "is not the one that is known" in done.stderr
    assert not any("nvidia-container-toolkit" in line for line in machine.changes() if "install" in line)
    assert not (machine.root / "usr/share/keyrings").exists()


def test_a_reboot_that_did_not_help_does_not_ask_for_another(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "ubuntu 24.04", {"nvidia-driver-580-server-open": "580.95.05"}, broken=True)
    machine.change(loaded=None)
    file = tmp_path / "ready.sh"
    file.write_text(script("driver-hangs"))
    (machine.root / "proc/driver/nvidia").mkdir(parents=True)
    (machine.root / "proc/driver/nvidia/version").write_text("535.1")
    assert "REBOOT" in machine.run(file).stderr
    assert "REBOOT" in machine.run(file).stderr, "it was not started again"
    machine.restart()
    (machine.root / "proc/driver/nvidia/version").parent.mkdir(parents=True, exist_ok=True)
    (machine.root / "proc/driver/nvidia/version").write_text("535.1")
    done = machine.run(file)
    assert done.returncode == 3 and "REBOOT" not in done.stderr and "dmesg" in done.stderr


def test_an_upgrade_that_was_not_loaded_needs_a_hold_and_a_reboot(tmp_path: Path) -> None:
    text = script("api-mismatch")
    machine = Machine(tmp_path, "ubuntu 24.04", {"nvidia-driver-580-server-open": "580.95.05"})
    machine.has("nvidia-ctk")
    machine.change(loaded="570.172.08")
    changes, reboots = carry_through(machine, text, tmp_path)
    assert in_order(changes, "apt-mark hold", "cdi generate") and reboots == 1
    assert not any("install" in line for line in changes)
    nothing_left(machine, text, tmp_path)


def test_wsl2_is_purged_and_windows_is_asked_for_its_part(tmp_path: Path) -> None:
    machine = Machine(
        tmp_path, "ubuntu 24.04", {"nvidia-driver-550": "550.54", "libnvidia-compute-550": "550.54"}
    )
    file = tmp_path / "ready.sh"
    file.write_text(script("wsl2-linux-driver"))
    done = machine.run(file)
    assert done.returncode == 3 and "wsl --shutdown" in done.stderr
    assert any("purge" in line and "libnvidia-compute-550" in line for line in machine.changes())
    (machine.root / "usr/lib/wsl/lib").mkdir(parents=True)
    (machine.root / "usr/lib/wsl/lib/libcuda.so.1").write_text("")
    assert machine.run(file).returncode == 0


def test_check_changes_nothing_and_says_what_is_missing(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "ubuntu 24.04", {"nvidia-driver-580-server-open": "580.95.05"})
    file = tmp_path / "ready.sh"
    file.write_text(script("toolkit-missing"))
    done = machine.run(file, "--check")
    assert done.returncode == 1 and "to do NVIDIA's container toolkit" in done.stdout
    assert machine.changes() == []
    assert machine.run(file, "--nonsense").returncode == 2


def test_another_machine_is_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "debian 13")
    file = tmp_path / "ready.sh"
    file.write_text(script("toolkit-missing"))
    done = machine.run(file)
    assert done.returncode == 3 and "this script is for ubuntu 24.04" in done.stderr
    assert machine.changes() == []


# -- the command


def test_the_command_prints_it_and_runs_nothing() -> None:
    done = CliRunner().invoke(COMMAND, ["--script", "--host", str(HOSTS / "toolkit-missing.json")])
    assert done.exit_code == 0 and done.stdout == script("toolkit-missing")


def test_a_target_takes_part() -> None:
    arguments = ["--script", "--host", str(HOSTS / "driver-570.json"), "--for", "vllm/vllm-openai:v0.27.1"]
    done = CliRunner().invoke(COMMAND, arguments)
    assert "install" in done.stdout and "driver_package=nvidia-driver-580" in done.stdout


@pytest.mark.parametrize("other", ["--json", "--all", "--strict"])
def test_the_script_goes_with_no_other_screen(other: str) -> None:
    done = CliRunner().invoke(COMMAND, ["--script", other, "--host", str(HOSTS / "t4.json")])
    assert done.exit_code != 0 and not done.stdout


def test_a_platform_that_is_unknown_gets_none() -> None:
    with pytest.raises(HostError):
        made(dataclasses.replace(host("h100-healthy"), platform=Platform()))
