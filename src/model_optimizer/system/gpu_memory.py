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
