"""A chat can be asked for: the model has a chat template.

Base models have none, and their servers refuse /v1/chat/completions or answer nonsense; the plain
/v1/completions still works.
"""

import re

from model_optimizer.core import Finding
from model_optimizer.core.endpoint import Endpoint

LAYER = "answers"
AFTER = ("served_model",)
SOURCE = ("vLLM docs, chat template", "transformers docs, chat templates (none by default from 4.44 on)")
_SAYS = re.compile(r"chat.?template", re.IGNORECASE)


def check(endpoint: Endpoint) -> Finding:
    reply = endpoint.reply("chat")
    if reply.status == 200:
        return Finding(status="ok", message="chats work", evidence="POST /v1/chat/completions: HTTP 200")
    if reply.status is None:
        return Finding(status="unknown", message="no chat could be asked for")
    if endpoint.reply("embedding").status == 200:
        return Finding(status="skipped", message="the model makes vectors, not text")
    if not _SAYS.search(reply.text) and reply.status not in (404, 405):
        return Finding(status="unknown", message=f"a chat was refused with HTTP {reply.status}")
    return Finding(
        status="warn",
        message="chats do not work: the model has no chat template",
        evidence=f"POST /v1/chat/completions: HTTP {reply.status}",
        hint="a base model: use /v1/completions, or serve the -Instruct version of it\n"
        "or start the server with --chat-template FILE.jinja (vLLM, SGLang), --jinja (llama.cpp)",
    )
