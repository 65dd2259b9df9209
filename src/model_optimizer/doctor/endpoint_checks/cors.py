"""Web pages of others may not use the server through a visitor's browser.

vLLM allows every origin by default: any page that is open in a browser on this machine can send it work.
With a key the page lacks the key, and nothing is open.
"""

from model_optimizer.core import Finding
from model_optimizer.core.endpoint import Endpoint
from model_optimizer.doctor.endpoint_checks.key import asks_for_key

LAYER = "access"
AFTER = ("key",)
SOURCE = ("vLLM 0.33.0, --allowed-origins (default: all)", "fetch.spec.whatwg.org, CORS protocol")


def check(endpoint: Endpoint) -> Finding:
    reply = endpoint.reply("preflight")
    if reply.status is None:
        return Finding(status="unknown", message="whether pages of other sites may use it could not be asked")
    if not reply.origin:
        return Finding(
            status="ok",
            message="pages of other sites may not use it",
            evidence="no Access-Control-Allow-Origin",
        )
    evidence = f"Access-Control-Allow-Origin: {reply.origin}"
    if asks_for_key(endpoint) is not False:
        return Finding(
            status="ok", message="pages of other sites may ask, and need the key", evidence=evidence
        )
    return Finding(
        status="warn",
        message="any web page that is open in a browser here may use the model",
        evidence=f"{evidence}; no key is asked for",
        hint="vLLM: --allowed-origins '[\"http://localhost:3000\"]' with the pages that shall\n"
        "llama.cpp and SGLang have no such option: put a proxy in front, or give the server a key",
    )
