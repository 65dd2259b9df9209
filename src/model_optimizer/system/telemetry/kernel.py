"""Messages of the kernel about GPUs (Xids), with the kernel's own times."""

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from model_optimizer.facts import metrics

from .timeline import Event

KMSG = Path("/dev/kmsg")
_XID = re.compile(r"NVRM: Xid \(([^)]{1,60})\): (\d{1,4})\b(.{0,200})")
_RECORD = re.compile(r"\d+,\d+,(\d+),[^;]*;(.*)", re.DOTALL)
_MOST_RECORDS = 500


class KernelLog:
    """Reads `/dev/kmsg` from now on; not available where the kernel keeps it for root."""

    name = "kernel log"
    interval_s = 1.0

    def __init__(self, path: Path = KMSG) -> None:
        self._events: list[Event] = []
        self._missing: dict[str, str] = {}
        self._file: int | None = None
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._file, 0, os.SEEK_END)
        except OSError as error:
            self._missing["kernel log"] = f"not available: {path}: {error.strerror}"

    def read(self, now_ns: int) -> Mapping[str, float]:
        if self._file is None:
            return {}
        for _ in range(_MOST_RECORDS):
            try:
                raw = os.read(self._file, 8192)
            except BrokenPipeError:  # records were overwritten before we came to them
                continue
            except OSError:
                break
            if not raw:
                break
            for record in raw.decode("utf-8", errors="replace").split("\n"):
                if event := xid(record, now_ns):
                    self._events.append(event)
        return {}

    def events(self) -> Sequence[Event]:
        events, self._events = self._events, []
        return events

    def missing(self) -> Mapping[str, str]:
        return self._missing

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None


def xid(record: str, now_ns: int) -> Event | None:
    """A record of the kernel log as an event, None when it is no Xid.

    The kernel counts microseconds since it started; its distance to now is taken from CLOCK_MONOTONIC.
    """
    found = _XID.search(record)
    if not found:
        return None
    number = int(found[2])
    fact = metrics.xids().get(number)
    means = fact.means if fact else "a message that is not in the facts"
    head = _RECORD.match(record)
    time_ns = now_ns
    if head:
        ago_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - int(head[1]) * 1000
        time_ns = now_ns - ago_ns if 0 <= ago_ns < 3_600_000_000_000 else now_ns
    text = f"Xid {number} on {found[1]}: {means}"
    return Event(time_ns=time_ns, kind="xid", text=text, fatal=bool(fact and fact.fatal))
