"""Something listens there and takes the connection.

A refused connection means that the machine is there and nothing listens on that port; silence, that a
firewall drops it or the server hangs.
"""

from model_optimizer.core import Finding
from model_optimizer.core.endpoint import Endpoint

LAYER = "reach"
AFTER: tuple[str, ...] = ()
SOURCE = ("connect(2)", "RFC 5280 (certificates)")


def check(endpoint: Endpoint) -> Finding:
    reply = endpoint.reply("models")
    if reply.failure is None:
        took = f" in {reply.took_ms:.0f} ms" if reply.took_ms is not None else ""
        return Finding(status="ok", message=f"{endpoint.url} answers{took}", evidence=f"HTTP {reply.status}")
    message, hint = _SAYS[reply.failure]
    near = [f"{program} listens on port {port}" for program, port in endpoint.neighbours]
    return Finding(
        status="fail",
        message=message.format(url=endpoint.url),
        evidence=reply.detail or reply.failure,
        hint="\n".join([*(f"{one}: ask that one" for one in near), *hint]),
    )


_START = "start a server (mopt serve MODEL), or correct the port"
_SAYS: dict[str, tuple[str, tuple[str, ...]]] = {
    "refused": (
        "nothing listens at {url}",
        (_START, "in a container: docker run -p 127.0.0.1:8000:8000, and --host 0.0.0.0 inside it"),
    ),
    "silent": (
        "{url} does not answer in time",
        (
            "while a server loads its model it may not answer yet: look at its log",
            "a firewall that drops packets looks the same: ask from the server's own machine",
            "when its log stands still: mopt diagnose --pid PID",
        ),
    ),
    "no name": ("the name in {url} is not known", ("check the spelling, or use the address",)),
    "unreachable": (
        "there is no way to {url}",
        ("check the network, VPN and firewall between here and there",),
    ),
    "closed": (
        "{url} takes the connection and closes it without an answer",
        (
            "a published port whose container listens on 127.0.0.1 does this: start the server inside "
            "with --host 0.0.0.0",
            "a server that speaks https does it, too: write https:// instead of http://",
        ),
    ),
    "certificate": (
        "the certificate of {url} is not trusted here",
        (
            "a self-signed one: export SSL_CERT_FILE=ca.pem with the certificate that signed it",
            "or ask the server behind the proxy over http on its own machine",
        ),
    ),
    "no tls": ("{url} does not speak https", ("write http:// instead of https://",)),
    "no http": (
        "what listens at {url} does not speak HTTP",
        ("it is another service (a gRPC port, a database, ssh): correct the port",),
    ),
}
