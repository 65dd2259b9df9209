"""Run a job inside an environment. This is the only caller of workers/."""

import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from model_optimizer.core import HostError, MoptError, NoFeasiblePlan, Progress, ToolError, UsageError, units
from model_optimizer.core.plugins import canonical
from model_optimizer.system import files, processes
from model_optimizer.system.processes import Rotation, Running

from . import recipe as recipes
from .pythons import interpreter

WORKERS = Path(__file__).parents[2] / "workers"
TAIL_LINES = 12
PARENT_VARIABLE = "MOPT_PARENT_PID"
"""Set for what shall end with the process of this number; our workers watch it, the kernel the others."""
COMPILED = "TORCHINDUCTOR_CACHE_DIR"
_SECRET = re.compile(
    r"(^|_)(TOKENS?|SECRETS?|PASSWORD|PASSWD|PASSPHRASE|API_?KEYS?|ACCESS_KEY|PRIVATE_KEY|CREDENTIALS?|AUTH)(_|$)"
)
_INSTALLER = re.compile(r"(PIP|UV)_")  # may hold the password of an index
_PROXY = re.compile(r"(HTTPS?|ALL|FTP)_PROXY")  # may hold a password, and no offline job needs one
_DROPPED = {"PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONSAFEPATH", "PYTHONINSPECT", "PYTHONWARNINGS"}
_KINDS: dict[str, type[MoptError]] = {
    **dict.fromkeys(  # what is wrong with what the user handed over
        (
            "already-quantized",
            "broken-artifact",
            "broken-checkpoint",
            "calibration-data",
            "group-size",
            "no-tokenizer",
            "no-weights",
            "nothing-to-quantize",
            "remote-code",
            "tokenizer",
            "unknown-architecture",
            "unsupported-architecture",
            "unsupported-model",
        ),
        UsageError,
    ),
    **{kind.default_reference: kind for kind in (UsageError, HostError, NoFeasiblePlan, ToolError)},
    **dict.fromkeys(
        ("out-of-memory", "disk-full", "not-writable", "environment-misfit", "import-failed"), HostError
    ),
}
_SIGNAL_HINTS = {
    signal.SIGKILL: "the system ends a process this way when memory is short: free some, or take less",
    signal.SIGILL: "a package uses instructions that this processor lacks",
    signal.SIGBUS: "shared memory or a disk ran full: look at the room in /dev/shm and /tmp",
    signal.SIGSEGV: "a native library crashed: keep the log for a report",
    signal.SIGABRT: "a native library gave up: its last words are in the log",
}  # fmt: skip


def run_worker(
    environment: str,
    job: str,
    request: Mapping[str, Any],
    progress: Progress,
    *,
    python: Path | None = None,
    timeout_s: float | None = None,
    log: Path | None = None,
    hub: bool = False,
    env: Mapping[str, str] | None = None,
) -> Mapping[str, Any]:
    """Run workers/<job>.py to its end and return its result.

    `hub` lets it reach the model hub (and hands down its token). `env` adds variables. What it prints is
    added to `log`. Raises the error that the worker wrote, and ToolError when it crashed or took too long.
    """
    chosen = interpreter(environment, python=python)
    given = variables(environment, chosen.path, hub=hub, extra=env)
    return run_job(chosen.path, job, request, progress, env=given, timeout_s=timeout_s, log=log)


def start_worker(
    environment: str,
    job: str,
    request: Mapping[str, Any],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    python: Path | None = None,
    rotation: Rotation | None = None,
) -> Running:
    """Start workers/<job>.py as a server. Its request and result lie beside `log`; see `why_ended`."""
    script = script_of(job)
    chosen = interpreter(environment, python=python)
    asked, answer = _beside(log, "request"), _beside(log, "result")
    files.write_atomic(asked, _encode(request))
    answer.unlink(missing_ok=True)
    given = variables(environment, chosen.path, extra=env)
    running = _serve([chosen.path, "-P", script, asked, answer], given, log, rotation)
    running.result = answer
    return running


def start_module(
    environment: str,
    arguments: tuple[str, ...] | list[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    python: Path | None = None,
    rotation: Rotation | None = None,
) -> Running:
    """Start `ENV_PYTHON -P -m ARGUMENTS` as a server, for engines with a command of their own."""
    chosen = interpreter(environment, python=python)
    words = arguments[1:] if arguments[:1] in (("-m",), ["-m"]) else arguments
    given = variables(environment, chosen.path, extra=env)
    command = [chosen.path, "-P", "-m", *words]
    return _serve(command, given, log, rotation, with_us=PARENT_VARIABLE in given)


def start_program(
    program: str,
    arguments: tuple[str, ...] | list[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    rotation: Rotation | None = None,
) -> Running:
    """Start a program of its own as a server. It inherits no secrets and no Python settings of ours.

    Raises HostError when there is none of this name.
    """
    given = {**_inherited(hub=False), **(env or {})}
    return _serve([program, *arguments], given, log, rotation, with_us=PARENT_VARIABLE in given)


def _serve(
    command: Sequence[str | Path],
    env: Mapping[str, str],
    log: Path,
    rotation: Rotation | None,
    *,
    with_us: bool = False,
) -> Running:
    """A server has a temporary folder of its own, unless the plan names one."""
    own = env.get("TMPDIR") == os.environ.get("TMPDIR")
    given = {**_compiled(), **env} if own else env
    return processes.start(command, log=log, env=given, with_us=with_us, rotation=rotation, own_temporary=own)


def why_ended(running: Running, what: str) -> MoptError:
    """The error for a server that ended by itself: what its worker wrote, else the end of its log."""
    if running.result and (error := _written_error(_read(running.result))):
        return error
    code = running.poll()
    return _crash(what, code if code is not None else 0, running.log, from_byte=running.log_from)


def run_job(
    python: Path,
    job: str,
    request: Mapping[str, Any],
    progress: Progress,
    *,
    env: Mapping[str, str],
    timeout_s: float | None = None,
    log: Path | None = None,
) -> Mapping[str, Any]:
    """`run_worker` with an interpreter and variables that are already chosen."""
    script = script_of(job)
    with files.temporary() as place:
        asked, answer = place / "request.json", place / "result.json"
        files.write_atomic(asked, _encode(request))
        said = log or place / "log"
        begun = said.stat().st_size if said.exists() else 0
        code = processes.follow(
            [python, "-P", script, asked, answer],
            lambda line: _forward(line, progress),
            log=said,
            env={**env, "TMPDIR": str(place), **_compiled()},  # what libraries leave there goes with it
            timeout_s=timeout_s,
        )
        result = _read(answer)
        if error := _written_error(result):
            raise error
        if code != 0 or result is None:
            raise _crash(job.replace("_", " "), code, said, from_byte=begun, keep=log is not None)
        return result


def _compiled() -> dict[str, str]:
    """Where PyTorch keeps the kernels that it compiles: by default in the temporary folder, under a name that
    anybody on the machine can take before. Nothing where ours is another user's."""
    if named := os.environ.get(COMPILED):
        return {COMPILED: named}
    place = files.data_home() / "compiled"
    with suppress(OSError):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if place.stat().st_uid == os.geteuid():
            place.chmod(0o700)
            return {COMPILED: str(place)}
    return {}


def variables(
    environment: str,
    python: Path,
    *,
    hub: bool = False,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """What a process in an environment inherits: no secrets, no Python settings of ours, hubs offline.

    With `hub` the hub's token stays. `extra` wins over all else.
    """
    kept = _inherited(hub=hub)
    tools = str(python.parent)
    return {
        **kept,
        "PATH": f"{tools}{os.pathsep}{kept['PATH']}" if kept.get("PATH") else tools,
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "utf-8",
        **_variables_of(environment),
        **(extra or {}),
    }


def _variables_of(environment: str) -> Mapping[str, str]:
    """What its recipe sets; nothing for an engine that has none."""
    known = canonical(environment) in recipes.names()
    return recipes.load(environment).about.variables if known else {}


def _inherited(*, hub: bool) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if _may_inherit(k.upper(), hub=hub)}
    if not hub:
        kept |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    return kept


def _may_inherit(name: str, *, hub: bool) -> bool:
    if hub and (name == "HF_TOKEN" or _PROXY.fullmatch(name)):
        return True
    dropped = name in _DROPPED or _SECRET.search(name) or _INSTALLER.match(name) or _PROXY.fullmatch(name)
    return not dropped


def script_of(job: str) -> Path:
    """The file of a job. Raises UsageError."""
    script = WORKERS / f"{job}.py"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", job) or not script.is_file():
        raise UsageError(f"there is no worker `{job}`")
    return script


def _forward(line: str, progress: Progress) -> bool:
    """Hand a progress line on; False for any other line."""
    if not line.startswith("{"):
        return False
    try:
        said = json.loads(line)
    except ValueError:
        return False
    if not isinstance(said, dict) or not isinstance(said.get("progress"), str):
        return False
    progress(said["progress"][:300], _share(said.get("share")))
    return True


def _share(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= 1 else None


def _read(answer: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(answer.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _written_error(result: Mapping[str, Any] | None) -> MoptError | None:
    error = (result or {}).get("error")
    if not isinstance(error, dict):
        return None
    reference = str(error.get("reference") or ToolError.default_reference)
    return _KINDS.get(reference, ToolError)(
        str(error.get("message") or "the worker failed without a message"),
        cause=_texts(error.get("cause")),
        hint=_texts(error.get("hint")),
        reference=reference,
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _crash(what: str, code: int, log: Path | None, *, from_byte: int = 0, keep: bool = True) -> ToolError:
    """The error for a program that left no answer."""
    last = processes.tail(log, TAIL_LINES, from_byte=from_byte) if log else ()
    hints = [_SIGNAL_HINTS[n] for n in _SIGNAL_HINTS if code == -n]
    if code == -signal.SIGKILL:
        hints.append(f"this machine has {units.show_bytes(_memory_bytes())} of memory")
    if log and keep:
        hints.append(f"the whole log: {log}")
    message = f"`{what}` ended without an answer ({processes.how_it_ended(code)})"
    return ToolError(message, cause=last, hint=tuple(hints), reference="worker-crashed")


def _memory_bytes() -> int:
    import psutil

    return psutil.virtual_memory().total


def _encode(request: Mapping[str, Any]) -> str:
    """Paths are the one kind of value beyond JSON that a request may hold."""
    return json.dumps(request, default=_plain)


def _plain(value: object) -> object:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a request cannot hold a {type(value).__name__}")


def _beside(log: Path, what: str) -> Path:
    return log.with_name(f"{log.stem}.{what}.json")
