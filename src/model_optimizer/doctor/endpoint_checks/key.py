"""The key is right: the server takes it, or asks for none.

It is read from the environment alone (MOPT_API_KEY, OPENAI_API_KEY, VLLM_API_KEY), because a command line
stands in the shell's history and in the list of processes.
"""

from model_optimizer.core import Finding
from model_optimizer.core.endpoint import Endpoint

LAYER = "access"
AFTER = ("model_server",)
KEY = "MOPT_API_KEY"
SOURCE = (
    "vLLM docs, security (--api-key guards the paths below /v1 alone)",
    "OpenAI API reference, authentication",
)


def check(endpoint: Endpoint) -> Finding:
    status = endpoint.reply("models").status
    if status in (401, 403):
        given = endpoint.key_from
        name = given or KEY
        return Finding(
            status="fail",
            message=f"the server refuses the key in {given}" if given else "the server asks for a key",
            evidence=f"GET {endpoint.prefix}/v1/models: HTTP {status}",
            hint=f"{'put the right one there' if given else 'set it'}: read -rs {name} && export {name}"
            + ("\na proxy in front may want another header than Authorization: Bearer" if given else ""),
        )
    if asks_for_key(endpoint) is None:
        return Finding(status="unknown", message="whether it asks for a key could not be told")
    if asks_for_key(endpoint):
        return Finding(
            status="ok", message=f"it takes the key in {endpoint.key_from}", evidence="HTTP 401 without it"
        )
    unused = f"; the one in {endpoint.key_from} is not looked at" if endpoint.key_from else ""
    return Finding(status="ok", message=f"it asks for no key{unused}", evidence="HTTP 200 without one")


def asks_for_key(endpoint: Endpoint) -> bool | None:
    """None when it cannot be told."""
    status = endpoint.reply("models").status
    if status in (401, 403):
        return True
    if status != 200:
        return None
    if endpoint.key_from is None:
        return False
    without = endpoint.reply("keyless_models")
    return None if without.status is None else without.status in (401, 403)
