"""Start a server of model_optimizer.testing as a process of its own, and stop it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def serving(module: str, *options: object) -> Iterator[tuple[str, int]]:
    """Yield its URL and process id."""
    command = [sys.executable, "-m", f"model_optimizer.testing.{module}", *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[-1], process.pid
        finally:
            process.terminate()
            process.wait()
