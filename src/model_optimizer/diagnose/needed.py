"""What to send when the evidence is thin."""

from model_optimizer.core.diagnosis import Recognized

from .match import Matcher

_LOUDER = {
    "uses vllm": "start it again with VLLM_LOGGING_LEVEL=DEBUG, and once with --enforce-eager to compare",
    "uses nccl": "start it again with NCCL_DEBUG=INFO; the first NCCL WARN of each rank names the reason",
    "uses tensorrt": "run it again with --verbose (trtexec) or a logger of severity VERBOSE",
    "uses onnxruntime": "create the session with log_severity_level=0",
    "uses kubernetes": "add `kubectl describe pod` and `kubectl logs --previous`",
}


def needed(seen: Matcher, primary: Recognized | None) -> tuple[str, ...]:
    """Requests, the most useful first; () when the cause is clear."""
    if primary is not None and primary.confidence != "low":
        return ()
    found: list[str] = []
    if not seen.bytes:
        return (
            "the log is empty: read it after the program has ended, or where it really writes "
            "(`docker logs`, `journalctl -u NAME`, `kubectl logs --previous`)",
        )
    wrappers = [h for h in seen.hits if h.count and h.signature.head.kind == "wrapper"]
    if wrappers and not seen.unexplained:
        line = min(h.first for h in wrappers)
        found.append(
            f"line {line} only says that something failed; send the log from the start of the program, with "
            "the first ERROR or Traceback above that line"
        )
    if seen.unexplained:
        lines = ", ".join(str(e.line) for e in seen.unexplained)
        found.append(f"the errors that are not known here (line {lines}), with the 40 lines before them")
    if not wrappers and not seen.unexplained and primary is None and seen.first_ready:
        found.append(
            f"line {seen.first_ready} says that the program is ready, and no known error follows: send what "
            "failed (the request and its answer, or the log of the later failure) with its time"
        )
    elif not wrappers and not seen.unexplained and primary is None:
        found.append(
            "no line of it is a known error: send the whole log, from the start of the program to its end"
        )
    found += [text for name, text in _LOUDER.items() if name in seen.landmarks]
    found.append("`mopt doctor --save host.json`, and diagnose again with --host host.json")
    return tuple(found)
