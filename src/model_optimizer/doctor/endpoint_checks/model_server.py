"""It is a model server with the OpenAI interface, and not something else on that port.

Web pages, sign-in pages and proxies answer with HTML or redirects; a proxy whose server is down with 502.
"""

from model_optimizer.core import Finding
from model_optimizer.core.endpoint import Endpoint

LAYER = "interface"
AFTER = ("reachable",)
SOURCE = ("OpenAI API reference, models", "RFC 9110 (status codes)")


def check(endpoint: Endpoint) -> Finding:
    reply = endpoint.reply("models")
    if reply.status in (401, 403):
        return Finding(status="ok", message="it asks for a key", evidence=f"HTTP {reply.status}")
    if endpoint.models is not None or (
        endpoint.reply("root_models").status == 200 and "json" in endpoint.reply("root_models").kind
    ):
        what = endpoint.engine or "a server of a kind that is not known here"
        version = f" {endpoint.version}" if endpoint.version else ""
        return Finding(status="ok", message=f"{what}{version}", evidence="GET /v1/models")
    near = [f"{name} listens on port {port}: ask that one" for name, port in endpoint.neighbours]
    message, hint = _what_it_is(endpoint)
    server = f"; Server: {reply.server}" if reply.server else ""
    return Finding(
        status="fail",
        message=message,
        evidence=f"GET {endpoint.prefix}/v1/models: HTTP {reply.status}, {reply.kind or 'no type'}{server}",
        hint="\n".join([*near, *hint]),
    )


def _what_it_is(endpoint: Endpoint) -> tuple[str, tuple[str, ...]]:
    reply = endpoint.reply("models")
    status = reply.status or 0
    if 300 <= status < 400:
        where = reply.location or "somewhere that it does not name"
        return f"it sends us on to {where}", (f"ask there: mopt doctor {reply.location or 'URL'}",)
    if status in (502, 503, 504):
        who = f" ({reply.server})" if reply.server else ""
        return (
            f"a proxy{who} answers, and the model server behind it does not",
            ("look at the server's log; while it loads its model this is normal",),
        )
    if status >= 500:
        return "the server fails at its list of models", ("mopt diagnose LOG names the cause in its log",)
    if "html" in reply.kind or reply.text.lstrip()[:1] == "<":
        return (
            "a web page answers there, no model server",
            ("correct the port: vLLM has 8000, SGLang 30000, llama.cpp 8080, Ollama 11434",),
        )
    if status == 404:
        return (
            "it has no /v1/models: no server with the OpenAI interface, or one behind another path",
            (
                "write the whole base address, as http://HOST:PORT/PATH",
                "TensorRT-LLM: start it with trtllm-serve",
            ),
        )
    return "what answers there is no list of models", ("correct the address: http://HOST:PORT",)
