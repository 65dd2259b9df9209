"""The path that was written leads to /v1.

Clients add /chat/completions to a base address that ends in /v1; a prefix that the server does not have
gives 404 for everything.
"""

from model_optimizer.core import Finding
from model_optimizer.core.endpoint import Endpoint

LAYER = "interface"
AFTER = ("model_server", "key")
SOURCE = ("OpenAI API reference, models", "vLLM docs, --root-path")


def check(endpoint: Endpoint) -> Finding:
    if endpoint.models is None and endpoint.reply("root_models").status == 200:
        return Finding(
            status="fail",
            message=f"the server has no path `{endpoint.prefix}`; its interface is at /v1",
            evidence=f"{endpoint.prefix}/v1/models: HTTP {endpoint.reply('models').status}; /v1/models: 200",
            hint=f"use {endpoint.url}/v1 as base address\n"
            f"behind a proxy that adds the path, start vLLM with --root-path {endpoint.prefix}",
        )
    if endpoint.models is None:
        return Finding(status="unknown", message="the list of models could not be read")
    return Finding(
        status="ok",
        message=f"base address {endpoint.url}{endpoint.prefix}/v1",
        evidence="GET /v1/models",
    )
