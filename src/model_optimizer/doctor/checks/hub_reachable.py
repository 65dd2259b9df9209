"""The model hub can be reached.

Without it, models come from a folder, a mirror or a cache that was filled before.
"""

from model_optimizer.core import Finding, Host

LAYER = "network"
AFTER: tuple[str, ...] = ()
SOURCE = ("huggingface_hub documentation, HF_ENDPOINT and HF_HUB_OFFLINE",)


def check(host: Host) -> Finding:
    reachable = host.network.hub_reachable
    if reachable is None:
        return Finding(
            status="unknown",
            message="whether the hub can be reached was not asked (offline, or through a proxy)",
        )
    if reachable:
        return Finding(status="ok", message="the model hub can be reached", evidence="its port opens")
    return Finding(
        status="warn",
        message="the model hub cannot be reached from here",
        evidence="no connection to its port within 1.5 s",
        hint="set HF_ENDPOINT to a mirror, or HTTPS_PROXY; or copy the model here and name its folder\n"
        "with a filled cache: HF_HUB_OFFLINE=1 ends the waiting",
    )
