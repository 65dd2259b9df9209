"""Wake up at an absolute time. The clock is `perf_counter_ns`.

asyncio rounds its timers up to whole milliseconds, because epoll does. On Linux a timerfd wakes the loop
to within some 50 microseconds, without spinning; elsewhere asyncio's own timer is used.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Nanoseconds now. A clock that is not the machine's own (in tests) is the event loop's time."""

    now: Callable[[], int] = perf_counter_ns

    @property
    def is_real(self) -> bool:
        return self.now is perf_counter_ns


class Alarm:
    """One alarm of one event loop; only one caller may wait on it at a time."""

    def __init__(self, clock: Clock | None = None) -> None:
        clock = clock or Clock()
        self._loop = asyncio.get_running_loop()
        self._now = clock.now
        self._waiter: asyncio.Future[None] | None = None
        self._timer = _timer() if clock.is_real else None
        if self._timer is not None:
            self._loop.add_reader(self._timer.descriptor, self._ring)

    async def until(self, time_ns: int) -> None:
        """Return at `time_ns`; when that has passed, after the loop has had one turn."""
        left = time_ns - self._now()
        if left <= 0:
            await asyncio.sleep(0)
            return
        self._waiter = self._loop.create_future()
        if self._timer is not None:
            self._timer.set(time_ns)
        else:
            self._loop.call_later(left / 1e9, self._wake)
        await self._waiter

    def close(self) -> None:
        if self._timer is not None:
            self._loop.remove_reader(self._timer.descriptor)
            os.close(self._timer.descriptor)
            self._timer = None

    def _ring(self) -> None:
        if self._timer is not None:
            with suppress(BlockingIOError):
                os.read(self._timer.descriptor, 8)
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Timer:
    def __init__(self, descriptor: int, arm: Callable[[int, int], None]) -> None:
        self.descriptor = descriptor
        self._arm = arm

    def set(self, time_ns: int) -> None:
        self._arm(self.descriptor, time_ns)


def _timer() -> _Timer | None:
    """A timerfd on the clock of `perf_counter_ns`, or None where the system has none."""
    if sys.platform != "linux":
        return None
    import ctypes

    class Spec(ctypes.Structure):
        """struct itimerspec: interval and value, each in seconds and nanoseconds."""

        _fields_ = (
            ("interval_s", ctypes.c_long),
            ("interval_ns", ctypes.c_long),
            ("value_s", ctypes.c_long),
            ("value_ns", ctypes.c_long),
        )

    try:
        library = ctypes.CDLL(None, use_errno=True)
        create, settime = library.timerfd_create, library.timerfd_settime
    except (OSError, AttributeError):
        return None
    descriptor = create(1, os.O_NONBLOCK | os.O_CLOEXEC)  # 1 is CLOCK_MONOTONIC
    if descriptor < 0:
        return None

    def arm(timer: int, time_ns: int) -> None:
        spec = Spec(0, 0, *divmod(time_ns, 10**9))
        settime(timer, 1, ctypes.byref(spec), None)  # 1 is TFD_TIMER_ABSTIME

    return _Timer(descriptor, arm)
