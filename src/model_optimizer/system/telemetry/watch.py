"""Records beside a load: in a process of its own, so that the client's thread is not held up.

The child writes samples to a file and says fatal events on its standard output; it ends when its
standard input does, and so never outlives us.
"""

import os
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType

import msgspec

from . import timeline
from .recorder import Recorder, Source
from .timeline import Event, Timeline

_BEGIN_S = 10.0
_END_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class What:
    """What to record. `url` is the server's, for its metrics page; `pid` its process, if it runs here;
    `key_env` names the variable with the key for the page."""

    url: str | None = None
    pid: int | None = None
    engine_version: str | None = None
    key_env: str | None = None
    gpus: bool = True
    host: bool = True
    kernel: bool = True


def sources(what: What) -> list[Source]:
    """The sources that this machine has."""
    from .engine import EngineMetrics
    from .host import HostLoad, ServerProcess
    from .kernel import KernelLog
    from .nvml import QuickGpus, SlowGpus, open_nvml

    found: list[Source] = []
    nvml = open_nvml() if what.gpus else None
    if nvml is not None:
        found += [QuickGpus(nvml), SlowGpus(nvml)]
    elif what.gpus:
        found.append(Nothing("gpu", "not available: no NVIDIA driver answers"))
    if what.host:
        found.append(HostLoad())
    if what.pid is not None:
        found.append(ServerProcess(what.pid))
    if what.url is not None:
        key = os.environ.get(what.key_env) if what.key_env else None
        alone = what.pid is None
        found.append(EngineMetrics(what.url, version=what.engine_version, key=key, process=alone))
    if what.kernel:
        found.append(KernelLog())
    return found


class Nothing:
    """Stands for a source that this machine does not have."""

    interval_s = 3600.0

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self._why = why

    def read(self, now_ns: int) -> dict[str, float]:
        return {}

    def events(self) -> Sequence[Event]:
        return ()

    def missing(self) -> dict[str, str]:
        return {self.name: self._why}

    def close(self) -> None:
        pass


class Glance:
    """Reads all sources once, when asked: for long runs, which need a look now and then."""

    def __init__(self, what: What) -> None:
        self._sources = sources(what)

    def __call__(self) -> tuple[dict[str, float], list[Event]]:
        now = perf_counter_ns()
        values: dict[str, float] = {}
        events: list[Event] = []
        for source in self._sources:
            values |= source.read(now)
            events += source.events()
        return values, events

    def missing(self) -> dict[str, str]:
        return {name: why for source in self._sources for name, why in source.missing().items()}

    def close(self) -> None:
        for source in self._sources:
            source.close()


class Watch:
    """Records while it is entered; `timeline` is what came of it.

    `on_fatal` is called from a thread when something happened that makes the measurement worthless.
    """

    def __init__(self, what: What, *, on_fatal: Callable[[Event], None] | None = None) -> None:
        self._what = what
        self._on_fatal = on_fatal
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._found = Timeline()
        self.fatal: Event | None = None

    def __enter__(self) -> "Watch":
        self._folder = tempfile.TemporaryDirectory(prefix="mopt-telemetry-", ignore_cleanup_errors=True)
        request = msgspec.json.encode(self._what).decode()
        command = [sys.executable, "-m", __package__ or "", request, str(self._file())]
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self._child.stdout is not None
        # A driver that hangs must not hang the measurement: it then goes on without telemetry.
        ready, _, _ = select.select([self._child.stdout], [], [], _BEGIN_S)
        if ready and self._child.stdout.readline():
            self._reader = threading.Thread(target=self._listen, name="telemetry", daemon=True)
            self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        child, folder = self._child, self._folder
        if child is None or folder is None:
            return
        with suppress(OSError):
            assert child.stdin is not None
            child.stdin.close()
        try:
            child.wait(_END_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if self._reader is not None:
            self._reader.join(_END_S)
        if child.stdout is not None:
            child.stdout.close()
        try:
            self._found = timeline.load(self._file())
        except OSError as problem:
            why = f"not available: the recording process wrote nothing ({problem.strerror})"
            self._found = Timeline(missing={"telemetry": why})
        folder.cleanup()
        self._child = None

    @property
    def timeline(self) -> Timeline:
        """What was recorded until now; the whole of it once the watch has ended."""
        if self._child is None:
            return self._found
        try:
            return timeline.load(self._file())
        except OSError:
            return Timeline()

    def _file(self) -> Path:
        assert self._folder is not None
        return Path(self._folder.name) / "samples.jsonl"

    def _listen(self) -> None:
        assert self._child is not None and self._child.stdout is not None
        for line in self._child.stdout:
            with suppress(msgspec.DecodeError):
                event = msgspec.json.decode(line, type=Event)
                if self.fatal is None:
                    self.fatal = event
                    if self._on_fatal is not None:
                        self._on_fatal(event)


def record(what: What, path: Path, *, ended: Callable[[], object], tell: Callable[[bytes], None]) -> None:
    """What the child does: record to a file until `ended` returns."""
    stop = threading.Event()

    def wait() -> None:
        ended()
        stop.set()

    with path.open("wb", buffering=0) as out:

        def sample(time_ns: int, values: Mapping[str, float]) -> None:
            out.write(timeline.encode(time_ns, values))

        def event(found: Event) -> None:
            out.write(timeline.encode_event(found))
            if found.fatal:
                tell(msgspec.json.encode(found) + b"\n")

        recorder = Recorder(sources(what), sample=sample, event=event)
        threading.Thread(target=wait, daemon=True).start()
        tell(b"ready\n")
        recorder.run(stop)
        out.write(timeline.encode_missing(0, recorder.missing()))
        recorder.close()
