"""Not everybody who reaches the machine may use the server.

vLLM and SGLang listen on every interface unless --host says otherwise, Docker's -p 8000:8000 publishes on
every interface, too, and past most firewalls of the machine.
"""

from model_optimizer.core import Finding
from model_optimizer.core.endpoint import Endpoint
from model_optimizer.doctor.endpoint_checks.key import asks_for_key

LAYER = "access"
AFTER = ("key",)
SOURCE = ("vLLM docs, security", "docs.docker.com, packet filtering and firewalls (published ports)")


def check(endpoint: Endpoint) -> Finding:
    keyed = asks_for_key(endpoint)
    if endpoint.local is None or (endpoint.local and endpoint.everywhere is None):
        return Finding(status="unknown", message="the address that it listens on could not be read")
    port = endpoint.url.rpartition(":")[2]
    where = f"port {port} of all interfaces" if endpoint.local else "another machine's address"
    where += f", published by container {endpoint.published}" if endpoint.published else ""
    if endpoint.local and not endpoint.everywhere:
        return Finding(
            status="ok", message="only this machine reaches it", evidence=f"port {port} of one address"
        )
    if keyed:
        return Finding(
            status="ok", message=f"it listens on {where} and asks for a key", evidence="HTTP 401 without"
        )
    if keyed is None:
        return Finding(
            status="unknown", message=f"it listens on {where}; whether with a key could not be told"
        )
    fix = (
        f"publish it on this machine alone: docker run -p 127.0.0.1:{port}:{port} ..."
        if endpoint.published
        else "start it with --host 127.0.0.1 behind a proxy that asks who is there"
    )
    return Finding(
        status="warn",
        message="it listens on all interfaces without a key: whoever reaches this machine uses the model"
        if endpoint.local
        else "it answers anybody who reaches it: no key is asked for",
        evidence=f"{where}; HTTP 200 without a key",
        hint=f"{fix}\nor give it a key (vLLM: VLLM_API_KEY in its environment, llama.cpp: LLAMA_API_KEY)",
    )
