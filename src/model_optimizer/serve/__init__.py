"""Start a server, wait until it really answers, watch it, stop it with all that it started.

with start(plan, artifact, engine=engine, log=log, progress=print) as server:
    ... server.url, server.served_name, server.memory_bytes() ...
"""

from .handle import ServerHandle
from .plain import Wish, plain_plan
from .run import StartProcess, start, start_launch
from .state import Served, attach, end, forget, list_served, remember, watched
from .target import Order, resolve
from .watch import Outside, Restart, watch

__all__ = [
    "Order", "Outside", "Restart", "Served", "ServerHandle", "StartProcess", "Wish", "attach", "end",
    "forget", "list_served", "plain_plan", "remember", "resolve", "start", "start_launch", "watch", "watched",
]  # fmt: skip
