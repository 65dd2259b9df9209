"""No model server here is open to every machine without a key.

vLLM listens on all interfaces unless --host says otherwise, and asks for no key unless --api-key is
given: whoever reaches the port uses the GPU.
"""

from model_optimizer.core import Finding, Host
from model_optimizer.doctor import advice

LAYER = "network"
AFTER: tuple[str, ...] = ()
SOURCE = ("vLLM, entrypoints: --host is unset by default, which is all interfaces", "vLLM docs, security")


def check(host: Host) -> Finding:
    if host.network.servers is None:
        return advice.unknown("the servers that listen")
    bare = [s for s in host.network.servers if s.everywhere and s.key is False]
    if bare:
        shown = ", ".join(f"{s.program} on port {s.port}" for s in bare)
        return Finding(
            status="warn",
            message=f"open to every machine, and without a key: {shown}",
            evidence="it listens on all interfaces; no --api-key on its command line or in its environment",
            hint="start it with --host 127.0.0.1 behind a proxy, or with --api-key (better: "
            "VLLM_API_KEY in its environment)\n"
            "until then close the port in the firewall",
        )
    if not host.network.servers:
        return Finding(
            status="ok", message="no model server listens here", evidence="/proc/net/tcp, own processes"
        )
    return Finding(
        status="ok",
        message="model servers listen here only locally or with a key",
        evidence=", ".join(f"{s.program}:{s.port}" for s in host.network.servers),
    )
