"""What a process that says nothing is doing: state, processor, GPU, and its stack where py-spy is installed.

Nothing is changed: the process is only looked at.
"""

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from model_optimizer.core import MoptError

from . import processes

if TYPE_CHECKING:
    import psutil

SAMPLE_S = 1.0
STACK_LIMIT_S = 8.0
FRAMES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """`cpu_percent` is of the process and all it started together. None is what could not be read."""

    pid: int
    alive: bool
    state: str | None = None
    running_s: float | None = None
    cpu_percent: float | None = None
    gpu_percent: float | None = None
    stack: tuple[str, ...] = ()


def look(pid: int) -> Look:
    """One look, a second long."""
    import psutil

    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        state = process.status()
        running_s = time.time() - process.create_time()
    except psutil.NoSuchProcess:
        return Look(pid=pid, alive=False)
    except psutil.Error:
        return Look(pid=pid, alive=True)
    if state == psutil.STATUS_ZOMBIE:
        return Look(pid=pid, alive=False, state=state, running_s=running_s)
    return Look(
        pid=pid,
        alive=True,
        state=state,
        running_s=running_s,
        cpu_percent=_cpu(family),
        gpu_percent=_gpu({p.pid for p in family}),
        stack=_stacks(family),
    )


def age_s(path: Path) -> float | None:
    """Seconds since a file was last written; None when that cannot be read or it is no regular file."""
    try:
        return max(0.0, time.time() - path.stat().st_mtime) if path.is_file() else None
    except OSError:
        return None


def _cpu(family: "Sequence[psutil.Process]") -> float | None:
    """Processor time of all of them over the sample, in percent of one core."""
    begun, before = time.monotonic(), _cpu_seconds(family)
    time.sleep(SAMPLE_S)
    after, seconds = _cpu_seconds(family), time.monotonic() - begun
    return None if before is None or after is None else max(0.0, (after - before) / seconds * 100)


def _cpu_seconds(family: "Sequence[psutil.Process]") -> float | None:
    import psutil

    total, seen = 0.0, False
    for process in family:
        with suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
            seen = True
    return total if seen else None


def _gpu(pids: set[int]) -> float | None:
    """Utilisation of the GPUs that these processes are on; None without NVML or without such a GPU."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        used: list[float] = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
            if pids & {p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)}:
                used.append(float(pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu))
        return max(used) if used else None
    except pynvml.NVMLError:
        return None
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _stacks(family: "Sequence[psutil.Process]") -> tuple[str, ...]:
    """Frames of up to four of the processes, by py-spy; () where it is missing or not allowed."""
    tool = shutil.which("py-spy")
    if tool is None:
        return ()
    frames: list[str] = []
    for process in family[:4]:
        pid = process.pid
        if pid == os.getpid():
            continue
        with suppress(MoptError):
            done = processes.run([tool, "dump", "--pid", str(pid)], timeout_s=STACK_LIMIT_S)
            frames += [line.strip() for line in done.stdout.splitlines() if line.startswith((" ", "Thread"))]
    return tuple(frames[:FRAMES])
