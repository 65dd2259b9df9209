"""Nouns in a sentence, as every report and screen says them."""

from model_optimizer.core import ClientHealth, Host, Slo, Workload, units


def harmless(text: str) -> str:
    """Text from outside on one line, with control characters shown and not obeyed."""
    return "".join(c if c.isprintable() else " " if c in "\n\t" else repr(c)[1:-1] for c in text)


def clean(text: str) -> str:
    """Text from outside in Markdown: one line, no HTML, no end of a cell."""
    return harmless(text).replace("|", "\\|").replace("<", "&lt;")


def machine_words(host: Host) -> str:
    cpu = f"{host.cpu.name or 'unknown processor'}, {host.cpu.cores or '?'} cores"
    memory = f"{units.show_bytes(host.memory_bytes)} of memory"
    gpus = ", ".join(gpu.name for gpu in host.gpus or ()) or "no GPU"
    return f"{cpu}, {memory}, {gpus}, {host.distribution or host.os or 'unknown system'}"


def load_words(work: Workload) -> str:
    rate = (
        f"{work.qps:g} requests/s ({work.arrivals})"
        if work.qps is not None
        else f"up to {work.concurrency or 1} requests in flight"
    )
    if work.task == "generate":
        return f"{rate}, prompts of {work.prompt_tokens} tokens, outputs of {work.output_tokens} tokens"
    return f"{rate}, texts of {work.prompt_tokens} tokens"


def slo_words(slo: Slo) -> str:
    limits = [
        f"{name} at most {units.show_ms(limit)}"
        for name, limit in (("TTFT", slo.ttft_ms), ("TPOT", slo.tpot_ms), ("E2E", slo.e2e_ms))
        if limit is not None
    ]
    if not limits:
        return "none asked; the highest throughput wins"
    return f"{', '.join(limits)} at P{slo.percentile:g}"


def client_words(client: ClientHealth) -> str | None:
    """What is to be said of the load generator; None when it kept up, or nobody knows."""
    if client.healthy is not False:
        return None
    if client.verdict == "marked":
        return f"The load generator was near its limits: {client.because}"
    return f"The load generator could not keep up, these numbers are its own: {client.because}"
