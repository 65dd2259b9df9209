"""The usual ports of a model server are free.

vLLM, Triton and SGLang listen on 8000 to 8002 and 30000 unless told otherwise.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "network"
AFTER: tuple[str, ...] = ()
SOURCE = ("vLLM, entrypoints: default port 8000; Triton: 8000 to 8002; SGLang: 30000",)


def check(host: Host) -> Finding:
    busy = host.network.busy_ports
    if busy is None:
        return advice.unknown("the ports in use")
    if not busy:
        return Finding(status="ok", message="the usual ports are free", evidence="/proc/net/tcp")
    ours = {server.port: server.program for server in host.network.servers or ()}
    names = ", ".join(f"{port} ({ours.get(port, 'some program')})" for port in busy)
    return Finding(
        status="warn",
        message=f"somebody listens on {names}",
        evidence="/proc/net/tcp",
        hint=f"ss -ltnp 'sport = :{busy[0]}' shows who; start the new server with another --port",
    )
