"""The same request streams: tokens come one after the other, and the stream ends properly.

A proxy that collects answers before it sends them on makes the time to the first token that of the last.
"""

from model_optimizer.core import Finding
from model_optimizer.core.endpoint import Endpoint

LAYER = "answers"
AFTER = ("plain_request",)
SOURCE = (
    "OpenAI API reference, streaming",
    "nginx docs, proxy_buffering",
    "HTML standard, server-sent events",
)


def check(endpoint: Endpoint) -> Finding:
    reply = endpoint.reply("stream")
    if "stream" not in endpoint.replies:
        why = (
            "vectors are not streamed"
            if endpoint.reply("embedding").status == 200
            else "nothing could be streamed"
        )
        return Finding(status="skipped", message=why)
    if reply.failure == "silent":
        return Finding(
            status="warn",
            message="the stream did not end in time",
            evidence=reply.detail,
            hint="a busy server is slow: ask again\n"
            "when the plain request was quick, a proxy holds the stream back",
        )
    if reply.failure or reply.status != 200:
        return Finding(
            status="fail",
            message="plain requests work and streamed ones do not",
            evidence=f"HTTP {reply.status}" if reply.status else reply.detail,
            hint="something between here and the server cuts streams: ask the server itself",
        )
    if reply.events == 0:
        return Finding(
            status="fail",
            message="the answer to a streamed request is not a stream",
            evidence=f"{reply.kind or 'no type'} instead of text/event-stream",
            hint="a proxy collects it: nginx: proxy_buffering off; or the server does not stream at all",
        )
    if not reply.ended:
        return Finding(
            status="warn",
            message="the stream ends without [DONE]",
            evidence=f"{reply.events} events",
            hint="clients that wait for it hang: look for a limit of time or size in the proxy",
        )
    return Finding(
        status="ok", message=f"a stream of {reply.events} events", evidence="text/event-stream, [DONE]"
    )
