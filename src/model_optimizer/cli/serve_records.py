"""What `mopt serve` is asked, and what it keeps of its servers so that other terminals find them."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model_optimizer.flow.serve import How, Started
    from model_optimizer.serve import Order, Restart, Served
    from model_optimizer.system.processes import Running


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How a server is run and watched, as the options say."""

    how: "How"
    restart: "Restart"
    detach: bool
    own_log: bool
    as_json: bool


def folder() -> Path:
    from model_optimizer.system import files

    return files.data_home() / "servers"


def place(model: str) -> Path:
    """A new folder for the log of one server."""
    from pathlib import PurePath

    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in PurePath(model).name) or "model"
    return folder() / f"{name}-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{os.getpid()}"


class Began:
    """Keeps a container as soon as there is one: unlike a process it goes on when this program is killed."""

    def __init__(self, order: "Order", asked: Asked) -> None:
        self._order, self._asked = order, asked
        self._kept: Served | None = None

    def __call__(self, running: "Running") -> None:
        from model_optimizer.serve import Served, remember
        from model_optimizer.system.containers import Contained

        if isinstance(running, Contained):
            plan = self._order.plan
            watcher, since = watched_by(self._asked)
            self._kept = Served(
                served_name=Path(plan.model).name,
                url="",
                pid=running.pid,
                started_at=running.started_at,
                engine=plan.engine,
                scheme=plan.scheme,
                model=self._order.artifact.path,
                log=str(self._asked.how.log.absolute()),
                runtime=running.runtime,
                container=running.container,
                supervisor=watcher,
                supervisor_started_at=since,
            )
            remember(folder(), self._kept)

    def forget(self) -> None:
        from model_optimizer.serve import forget

        if self._kept is not None:
            forget(folder(), self._kept)


def record_of(started: "Started", asked: Asked, starts: int) -> "Served":
    """A server that answers, after so many starts."""
    from model_optimizer.serve import Served
    from model_optimizer.system.containers import Contained

    server, plan = started.server, started.order.plan
    running = server.running
    inside = running if isinstance(running, Contained) else None
    found = {one.quantity: one for one in started.compared}
    tokens, most = found.get("kv_cache_tokens"), found.get("max_concurrency")
    watcher, since = watched_by(asked)
    return Served(
        served_name=server.served_name,
        url=server.url,
        pid=server.pid,
        started_at=server.started_at,
        engine=plan.engine,
        scheme=plan.scheme,
        model=started.order.artifact.path,
        log=str(server.log.absolute()),
        supervisor=watcher,
        supervisor_started_at=since,
        runtime=inside.runtime if inside else None,
        container=inside.container if inside else None,
        starts=starts,
        kv_cache_tokens=round(tokens.printed) if tokens else None,
        kv_cache_tokens_predicted=round(tokens.predicted) if tokens and tokens.predicted else None,
        max_concurrency=most.printed if most else None,
        max_concurrency_predicted=most.predicted if most else None,
    )


def watched_by(asked: Asked) -> tuple[int | None, float]:
    """Who watches a server, and since when: this process, or nobody when it is left alone."""
    from model_optimizer.system import processes

    return (None, 0.0) if asked.detach else (os.getpid(), processes.own_start())
