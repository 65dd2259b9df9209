"""`mopt doctor` as it is typed, and its screens."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from inline_snapshot import snapshot

from model_optimizer.cli.commands.doctor import COMMAND
from model_optimizer.cli.render_doctor import report
from model_optimizer.core import Finding, Host, UsageError, codec

HOSTS = Path(__file__).parents[1] / "hosts"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(COMMAND, list(arguments))


def on(name: str, *arguments: str) -> Result:
    return run("--host", str(HOSTS / f"{name}.json"), *arguments)


def screen(done: Result) -> str:
    """Without the count of checks, which a new check changes."""
    text, _, count = done.stdout.rpartition("\n\n")
    assert count.endswith("--all lists each check\n")
    return text


def test_the_screen_of_a_healthy_laptop() -> None:
    done = on("rtx4060-laptop")
    assert done.exit_code == 0
    assert screen(done) == snapshot("""\
Ubuntu 24.04.3 LTS, kernel 6.14.0-33-generic, NVIDIA GeForce RTX 4060 Laptop GPU (8 GiB), driver 580.95.05

ok    machine     11 GiB of memory available; 200 GiB of disk free; the CPU has integer dot ...
ok    hardware    hybrid graphics, the NVIDIA GPU is on (on-demand); 1 NVIDIA GPU in the machine
ok    kernel      module 580.95.05 is loaded; driver 580.95.05 answers; headers of ...
ok    driver      1 GPU: NVIDIA GeForce RTX 4060 Laptop GPU; branch R580 is served until ...
ok    gpu         computes bf16, fp8, int8; nvfp4 as small weights only; power limit 115 W; PCIe ...
ok    cuda        CUDA sees every GPU; libcuda is the driver's own
-     packages    no vLLM for GPUs in this environment
ok    containers  NVIDIA Container Toolkit 1.18.0; the GPU is described by CDI; 200 GiB free for ...
ok    network     the model hub can be reached; the usual ports are free; no model server ...""")


def test_the_screen_of_a_broken_layer() -> None:
    done = on("secure-boot-rejection")
    assert done.exit_code == 1
    assert screen(done) == snapshot("""\
Ubuntu 24.04.3 LTS, kernel 6.14.0-33-generic, an NVIDIA GPU that no driver shows

ok    machine     11 GiB of memory available; 200 GiB of disk free; the CPU has integer dot ...
ok    hardware    hybrid graphics, the NVIDIA GPU is on (on-demand); 1 NVIDIA GPU in the machine
FAIL  kernel      Secure Boot refuses the driver's module: its key is not enrolled
-     driver      waits for secure_boot
-     gpu         waits for secure_boot
-     cuda        waits for secure_boot
-     packages    waits for secure_boot
ok    containers  200 GiB free for images; Docker is an ordinary package; Docker answers
ok    network     the model hub can be reached; the usual ports are free; no model server ...

BROKEN: Secure Boot refuses the driver's module: its key is not enrolled
  check   secure_boot (kernel)
  read    nvidia: module verification failed: key was rejected by service
  do      sudo apt install mokutil && sudo mokutil --import /var/lib/shim-signed/mok/MOK.der   # a password for one use
          sudo reboot, and in the blue screen: Enroll MOK, Continue, that password
          afterwards: nvidia-smi
  source  mokutil(1); linux-surface/linux-surface#906; lcp/mokutil#69""")


def test_the_screen_of_an_image_that_will_not_run() -> None:
    done = on("driver-535", "--for", "vllm/vllm-openai:v0.27.1")
    assert done.exit_code == 1
    assert screen(done) == snapshot("""\
Ubuntu 22.04.5 LTS, kernel 5.15.0-157-generic, NVIDIA GeForce RTX 4090 (24 GiB), driver 535.183.01

ok    machine     52 GiB of memory available; 400 GiB of disk free; the CPU has integer dot ...
ok    hardware    1 NVIDIA GPU in the machine
ok    kernel      module 535.183.01 is loaded; driver 535.183.01 answers; headers of ...
warn  driver      branch R535 is past its end of life (2026-06): no more security updates
ok    gpu         computes bf16, fp8, int8; nvfp4 as small weights only; power limit 450 W; PCIe ...
ok    cuda        CUDA sees every GPU; libcuda is the driver's own
-     packages    no vLLM for GPUs in this environment
ok    containers  NVIDIA Container Toolkit 1.18.0; the GPU is described by CDI; 400 GiB free for ...
ok    network     the model hub can be reached; the usual ports are free; no model server ...
FAIL  target      vllm/vllm-openai:v0.27.1 is built with CUDA 13.0.3, which needs driver 580 or ...

BROKEN: vllm/vllm-openai:v0.27.1 is built with CUDA 13.0.3, which needs driver 580 or newer; here is 535.183.01
  check   target_driver (target)
  read    vllm/vllm-openai:v0.27.1: CUDA 13.0.3, driver >= 580; driver 535.183.01, its CUDA 12.2;
          forward compatibility does not exist for this GPU
  do      sudo apt install linux-headers-$(uname -r) nvidia-driver-580-open
          sudo reboot
          or take the build for CUDA 12: vllm/vllm-openai:v0.27.1-cu129
  source  docs.nvidia.com/deploy/cuda-compatibility, minor version and forward compatibility; vLLM
          0.33.0 docs, installation: VLLM_ENABLE_CUDA_COMPATIBILITY

To look at: branch R535 is past its end of life (2026-06): no more security updates
  check   driver_branch (driver)
  read    driver 535.183.01, branch R535 (long-term), served until 2026-06
  do      sudo apt install linux-headers-$(uname -r) nvidia-driver-580-open
          sudo reboot""")


def test_all_lists_each_check_under_its_layer() -> None:
    text = on("nouveau", "--all").stdout
    assert "kernel\n" in text and "  FAIL  nouveau_off" in text
    assert "waits for `nouveau_off`" in text


def test_a_script_is_offered_where_it_mends_what_failed() -> None:
    assert "mopt doctor --script --host" in on("nouveau").stderr
    for name in ("h100-healthy", "full-disk", "container-without-devices", "windows"):
        assert "--script" not in on(name).stderr, name


def test_json_has_the_promised_fields() -> None:
    done = on("nouveau", "--json")
    found = json.loads(done.stdout)
    assert {"findings", "host"} <= set(found)
    for row in found["findings"]:
        assert {"check", "status", "message", "evidence", "hint"} <= set(row)
    assert [r["check"] for r in found["findings"] if r["status"] == "fail"] == ["nouveau_off"]
    assert found["host"]["schema"] == "host/1" and done.exit_code == 1


def test_strict_counts_warnings() -> None:
    assert on("cgroup-systemd").exit_code == 0
    assert on("cgroup-systemd", "--strict").exit_code == 1
    assert on("h100-healthy", "--strict").exit_code == 0


def test_this_machine_is_examined_and_saved_without_names(tmp_path: Path) -> None:
    import getpass
    import platform

    path = tmp_path / "host.json"
    done = run("--save", str(path))
    assert done.exit_code in (0, 1)
    text = path.read_text()
    for name in (platform.node(), getpass.getuser()):
        assert len(name) < 3 or name == "root" or f'"{name}"' not in text
    again = run("--host", str(path))
    assert again.exit_code in (0, 1) and again.stdout == done.stdout


def test_save_makes_no_folder_and_leaves_nothing(tmp_path: Path) -> None:
    done = run("--save", str(tmp_path / "new" / "host.json"))
    assert isinstance(done.exception, UsageError) and "there is no folder" in done.exception.message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content", ["", "{}", '{"schema": "plan/1"}', '{"schema": "host/1", "gpus": 7}', "\x00"]
)
def test_a_file_that_holds_no_host_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "host.json"
    path.write_text(content)
    assert isinstance(run("--host", str(path)).exception, UsageError)


def test_an_unknown_target_is_refused() -> None:
    done = on("h100-healthy", "--for", "nonsense")
    assert isinstance(done.exception, UsageError) and done.exception.hint


def test_what_a_host_file_says_cannot_command_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    evil = Host(distribution="\x1b[2Jgone", os="Linux", kernel="\x07", unread=("\x1b]0;x\x07",))
    path.write_text(codec.dumps(evil))
    assert "\x1b" not in run("--host", str(path)).stdout


def test_every_failure_is_shown_in_full() -> None:
    findings = [
        Finding(status="fail", message=f"broken {n}", evidence="e", hint="h", check=f"c{n}", layer="machine")
        for n in (1, 2)
    ]
    text = report(Host(), findings)
    assert text.index("BROKEN: broken 1") < text.index("ALSO BROKEN: broken 2")


@pytest.mark.parametrize(
    ("place", "command"),
    [
        (
            {"distribution_id": "ubuntu", "version_id": "24.04"},
            "apt install linux-headers-$(uname -r) nvidia-driver-580-open",
        ),
        (
            {"distribution_id": "debian", "version_id": "12"},
            "apt install linux-headers-$(uname -r) nvidia-driver-pinning-580",
        ),
        ({"distribution_id": "rocky", "version_id": "9.6"}, "dnf module enable nvidia-driver:580-open"),
        ({"distribution_id": "rhel", "version_id": "10.0"}, "dnf versionlock '*nvidia*580*'"),
        ({"distribution_id": "arch", "version_id": None}, "with the package manager of this system"),
    ],
)
def test_the_fix_is_that_of_the_distribution(place: dict[str, str | None], command: str) -> None:
    import dataclasses

    from model_optimizer import api

    host = codec.load(HOSTS / "no-driver.json", Host)
    there = dataclasses.replace(host.platform, **place)  # pyright: ignore[reportArgumentType]
    host = dataclasses.replace(host, platform=there, distribution=None)
    (broken,) = [f for f in api.doctor(host) if f.status == "fail"]
    assert command in (broken.hint or "")
