"""Servers of several plans that stand by each other: started at the same time, loaded one at a time.

An idle server takes no time of a GPU, so that arms that are compared can be measured seconds apart. A server
that does not start, or dies, loses its own arm and no other.
"""

import queue
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from model_optimizer.core import Launch, MoptError, Plan, Progress
from model_optimizer.serve import ServerHandle, StartProcess
from model_optimizer.system import processes
from model_optimizer.system.processes import Running
from model_optimizer.tune import Order, Outcome, Shared
from model_optimizer.tune.turns import Measure

from .kept import GivenUp, Kept
from .sharing import Share, Shares
from .tune import WARM, Runner, one_by_one

TOGETHER = 4
"""So many starts at the same time, unless another number is given. ASSUMED."""

WARM_S, WARM_LEVEL = 1.0, 8.0
"""The load before the first that counts: long enough to have computed every kind of step once. ASSUMED."""

POLL_S = 0.1
SHOWN_EVERY_S = 5.0


@dataclass(slots=True)
class _Arm:
    """One server: its plan with its share, and how it fares."""

    plan: Plan
    beside: Mapping[str, str]
    runner: Runner
    log: Path
    server: ServerHandle | None = None
    start_s: float | None = None
    error: MoptError | None = None
    told: bool = False


class _Relay:
    """Processes that threads ask for are started by the thread that stays: where the kernel ends a process
    with the one that started it, it means the thread."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._asked: queue.Queue[tuple[StartProcess, Launch, Path, Future[Running]]] = queue.Queue()
        self._closed = False

    def watching(self, begin: StartProcess) -> StartProcess:
        def asked(launch: Launch, log: Path) -> Running:
            if self._closed:
                raise GivenUp
            answer: Future[Running] = Future()
            self._asked.put((self._kept.watching(begin), launch, log, answer))
            return answer.result()

        return asked

    def carry_out(self) -> None:
        with suppress(queue.Empty):
            while True:
                begin, launch, log, answer = self._asked.get_nowait()
                try:
                    answer.set_result(begin(launch, log))
                except MoptError as error:
                    answer.set_exception(error)

    def close(self) -> None:
        """Whoever waits, or asks later, gets nothing."""
        self._closed = True
        with suppress(queue.Empty):
            while True:
                self._asked.get_nowait()[3].set_exception(GivenUp())


@dataclass(frozen=True, slots=True, kw_only=True)
class Residents:
    """Starts and measures. `runner_of` gives the runner of an order (two engines can be compared)."""

    runner_of: Callable[[Order], Runner]
    share: Share
    progress: Progress
    together: int = TOGETHER
    warm: bool = True
    levels: tuple[float, ...] = ()
    clock: Callable[[], float] = field(default=time.monotonic)

    def shared(self, orders: Sequence[Order]) -> Shared | str:
        """A bench for these orders, or why their servers cannot stand by each other."""
        levels = sorted({level for o in orders for some in o.levels.values() for level in some})
        shares = self.share([order.plan for order in orders], levels or self.levels)
        if isinstance(shares, str):
            return shares
        found = {
            order.key: (plan, beside)
            for order, plan, beside in zip(orders, shares.plans, shares.beside, strict=True)
        }

        @contextmanager
        def opened(some: Sequence[Order]) -> Generator[Measure]:
            with self._opened(some, found, shares) as measure:
                yield measure

        return Shared(open=opened, because=shares.because)

    @contextmanager
    def _opened(
        self,
        orders: Sequence[Order],
        found: Mapping[tuple[tuple[str, str], ...], tuple[Plan, Mapping[str, str]]],
        shares: Shares,
    ) -> Generator[Measure]:
        runner = self.runner_of(orders[0])
        runner.require_quiet()
        arms: dict[tuple[tuple[str, str], ...], _Arm] = {}
        for place, order in enumerate(orders):
            plan, beside = found[order.key]
            own = self.runner_of(order)
            log = _new(own.logs, place, thorough=order.thorough)
            arms[order.key] = _Arm(plan=own.placed(plan), beside=beside, runner=own, log=log)
        with processes.interruptible(), runner.kept() as kept:
            self._start(list(arms.values()), kept, 1 if shares.one_by_one else self.together)
            if self.warm:
                self._warm(orders, arms)
            yield lambda order: self._measured(arms[order.key], order)

    # -- starts

    def _start(self, arms: Sequence[_Arm], kept: Kept, together: int) -> None:
        """Start them side by side; what fails is kept with its arm. Ctrl-C ends all of them."""
        given_up: list[bool] = []
        says: dict[int, str] = {}
        relay = _Relay(kept)

        def begin(place: int, arm: _Arm) -> None:
            def heard(text: str, share: float | None) -> None:
                del share
                if given_up:
                    raise GivenUp
                says[place] = text

            begun = self.clock()
            try:
                arm.server = arm.runner.started(arm.plan, arm.log, relay.watching, heard)
                arm.start_s = self.clock() - begun
            except MoptError as error:
                arm.error = error
            except GivenUp:
                pass

        begun = self.clock()
        pool = ThreadPoolExecutor(max_workers=max(1, together), thread_name_prefix="start")
        futures: list[Future[None]] = []
        try:
            futures = [pool.submit(begin, place, arm) for place, arm in enumerate(arms)]
            self._await(futures, arms, says, relay, begun)
        except BaseException:
            given_up.append(True)
            relay.close()
            kept.close()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        for future in futures:
            if not future.cancelled():
                future.result()  # a bug of ours is not hidden

    def _await(
        self,
        futures: Sequence[Future[None]],
        arms: Sequence[_Arm],
        says: Mapping[int, str],
        relay: "_Relay",
        begun: float,
    ) -> None:
        shown = -SHOWN_EVERY_S
        while True:
            relay.carry_out()
            _, left = wait(futures, timeout=POLL_S)
            if not left:
                return
            seconds = self.clock() - begun
            if seconds - shown >= SHOWN_EVERY_S:
                shown = seconds
                ready = sum(arm.server is not None for arm in arms)
                words = next((text for place, text in sorted(says.items()) if arms[place].server is None), "")
                self.progress(f"{ready} of {len(arms)} servers are ready; {words}", ready / len(arms))

    # -- loads

    def _warm(self, orders: Sequence[Order], arms: Mapping[tuple[tuple[str, str], ...], _Arm]) -> None:
        """A short load for each, so that nothing of a first request is measured."""
        for order in orders:
            arm = arms[order.key]
            if arm.server is None:
                continue
            self.progress("a first load that is not counted", None)
            loads = arm.runner.loads
            name, least = loads.workloads[0][0], min(WARM_LEVEL, *(loads.levels))
            try:
                first = replace(order, number=-1, levels={name: (least,)})
                arm.runner.load(arm.server, WARM_S, first, stage=WARM)
            except MoptError as error:
                arm.error = error if arm.server.alive() else arm.server.why_ended()
                arm.server.stop()
                arm.server = None

    def _measured(self, arm: _Arm, order: Order) -> Outcome | None:
        """One load; None when the server of this arm is gone, which was told once."""
        begun = self.clock()
        if arm.server is not None:
            found = arm.runner.measured(arm.server, arm.plan, order, begun, ready=begun)
            if not arm.server.alive():
                arm.server.stop()
                arm.server, arm.told = None, True
            seconds = (found.seconds or 0.0) + (0.0 if order.thorough else arm.start_s or 0.0)
            return replace(found, start_s=arm.start_s, beside=arm.beside, seconds=seconds)
        if arm.told:
            return None
        arm.told = True
        assert arm.error is not None
        return replace(arm.runner.failed(arm.error, begun), beside=arm.beside)

    # -- the search

    def execute(
        self, apart: Callable[[Plan], str | None], orders: Sequence[Order]
    ) -> Iterator[tuple[Order, Outcome]]:
        """Orders of a search: as many servers at a time as there is memory for, then the rest."""
        left = [order for order in orders if apart(order.plan) is None]
        while len(left) > 1:
            some = next((n for n in range(len(left), 1, -1) if not isinstance(self.shared(left[:n]), str)), 1)
            shared = self.shared(left[:some])
            if some == 1 or isinstance(shared, str):
                break
            with shared.open(left[:some]) as measure:
                for order in left[:some]:
                    if (outcome := measure(order)) is not None:
                        yield order, outcome
            left = left[some:]
        rest = [order for order in orders if order in left or apart(order.plan) is not None]
        for order in rest:
            yield from one_by_one(self.runner_of(order), [order])


def _new(logs: Path, place: int, *, thorough: bool) -> Path:
    """A log that no earlier start wrote."""
    kind = "resident" if thorough else "trial"
    number = 1
    while (path := logs / f"{kind}-{number:02d}-{place}.log").exists():
        number += 1
    return path
