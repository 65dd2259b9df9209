"""What is held of a GPU's memory at this moment."""

from contextlib import suppress


def held(index: int = 0) -> tuple[int, int] | None:
    """(bytes in use, bytes in all) of a GPU; None without one or without a driver that answers."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        found = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(index))
        return int(found.used), int(found.total)
    except pynvml.NVMLError:
        return None
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def holders(index: int = 0) -> tuple[str, ...]:
    """Who holds memory of a GPU, as `process 4711 (python): 12.1 GiB`; () where that cannot be read."""
    import psutil
    import pynvml

    from model_optimizer.core.units import show_bytes

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    try:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByIndex(index))
        lines: list[str] = []
        for one in found:
            name = "of another container"
            with suppress(psutil.Error):
                name = psutil.Process(one.pid).name()
            size = show_bytes(int(one.usedGpuMemory)) if one.usedGpuMemory else "an unknown amount"
            lines.append(f"process {one.pid} ({name}): {size}")
        return tuple(lines)
    except pynvml.NVMLError:
        return ()
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
