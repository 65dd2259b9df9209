"""The recording process: `python -m model_optimizer.system.telemetry REQUEST FILE`."""

import signal
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from .watch import What, record


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the client; we end with our input

    def tell(line: bytes) -> None:
        with suppress(OSError):
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    what = msgspec.json.decode(sys.argv[1], type=What)
    record(what, Path(sys.argv[2]), ended=sys.stdin.buffer.read, tell=tell)


if __name__ == "__main__":
    main()
