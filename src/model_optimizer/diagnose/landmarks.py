"""What logs share whatever program wrote them: starts, readiness, levels, exceptions, platforms."""

import re

from .tried import TRIED

LANDMARKS: dict[str, tuple[str, ...]] = {
    "start": ("vLLM API server version", "&&&& RUNNING TensorRT.trtexec", "server_args=ServerArgs("),
    "ready": (
        "Application startup complete", "&&&& PASSED TensorRT", "The server is fired up and ready",
        "Started GRPCInferenceService",
    ),
    "error": (
        "error: ", "exception: ", "error code ", "[e] ", "error[", "critical", "fatal:", "exit: ", "error ",
    ),
    "uses vllm": ("vllm",),
    "uses nccl": ("nccl info", "nccl warn", "nccl error"),
    "uses tensorrt": ("[trt]", "trtexec", "tensorrt"),
    "uses onnxruntime": ("onnxruntime",),
    "uses kubernetes": ("kubelet", "crashloopbackoff", "failedscheduling"),
    "on wsl2": ("-microsoft-standard-wsl2", "/usr/lib/wsl/"),
    "on rhel": (".el8_", ".el9_", ".el9.", ".el10", "rocky linux", "red hat enterprise"),
    "on ubuntu": ("ubuntu 2", "ubuntu2", "-ubuntu smp"),
    "on debian": ("debian gnu/linux",),
    "on windows": ("c:\\", "windows-10-10", "windows-11"),
}  # fmt: skip
"""Fragments by what they show. Those of `error` only make a line worth a look."""

LANDMARKS.update(TRIED)
ONCE = ("uses ", "on ", "tried ")
"""Landmarks of which only the first line matters."""

SERVED = "served"
LANDMARKS[SERVED] = tuple(
    f'{path} http/1.1" 200'
    for path in (
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/generate",
        "/infer",
        "/api/chat",
    )
)
"""A request of a user was answered; looked for once after each known error."""

ERROR, UNSAID, WARNING, INFORMATION = range(4)
"""How bad a line says it is."""

_LEVEL = re.compile(
    r"(?<![=\w])(?:(?P<error>ERROR|CRITICAL|FATAL|FAILED|panic)|(?P<warning>WARNING|WARN)|(?P<info>INFO|DEBUG|TRACE|NOTICE))\b"
    r"|\[(?:(?P<e>[EF])|(?P<w>W)|(?P<i>[IVD]))(?:\]|:| )|^(?:(?P<ke>[EF])|(?P<kw>W)|(?P<ki>I))\d{4} \d\d:"
)
_JSON_LEVEL = re.compile(
    r'"(?:level|severity|levelname|lvl)": ?"(error|critical|fatal|warn|warning|info|debug)"', re.I
)
_RAISED = re.compile(
    r"(?:^|[\s\])|:\"])((?:\w{1,60}\.){0,8}\w{0,80}(?:Error|Exception|Exit|Interrupt|Fault)): (\S.*)"
)


_NATIVE = re.compile(
    r"\[E\] |\[E:|Error Code \d|\bfatal(?: error)?: |(?:^|[:\])] )error: |(?:^|\] )ERROR: |\[ERROR\] "
)


def is_error(text: str) -> bool:
    """An exception, or a line that a program outside of Python marks as an error.

    A logger's word ERROR is not enough: it stands before every line of a traceback.
    """
    return raised(text) is not None or _NATIVE.search(text[:300]) is not None


def level_of(text: str) -> int:
    """One of the levels above."""
    if found := _JSON_LEVEL.search(text[:200]):
        word = found[1].lower()
        return ERROR if word in ("error", "critical", "fatal") else WARNING if word[0] == "w" else INFORMATION
    match = _LEVEL.search(text[:100])
    kind = match.lastgroup if match else None
    if kind is None:
        return UNSAID if raised(text) is None else ERROR
    return (
        ERROR if kind in ("error", "e", "ke") else WARNING if kind in ("warning", "w", "kw") else INFORMATION
    )


def raised(text: str) -> str | None:
    """The exception that a line shows, as `Name: message`."""
    found = _RAISED.search(text)
    return f"{found[1]}: {found[2]}"[:400] if found else None
