"""Start a server, wait until it really answers, watch it, stop it with all that it started.

with start(plan, artifact, engine=engine, log=log, progress=print) as server:
    ... server.url, server.served_name, server.memory_bytes() ...
"""

from .handle import ServerHandle
from .plain import Wish, plain_plan
from .run import StartProcess, start, start_launch
from .state import Served, attach, forget, list_served, remember
from .target import Order, resolve

__all__ = [
    "Order", "Served", "ServerHandle", "StartProcess", "Wish", "attach", "forget", "list_served",
    "plain_plan", "remember", "resolve", "start", "start_launch",
]  # fmt: skip
