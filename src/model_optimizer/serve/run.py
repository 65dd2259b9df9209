"""From a plan and an artefact to a server that has answered one real request."""

import dataclasses
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_optimizer.core import (
    Artifact,
    Engine,
    Launch,
    MoptError,
    Plan,
    Progress,
    ToolError,
    Workload,
)
from model_optimizer.system import environments, local_http, processes
from model_optimizer.system.processes import Running

from .cause import raised
from .handle import LINES_FOR_CAUSE, ServerHandle

StartProcess = Callable[[Launch, Path], Running]
"""(launch, log) -> the running process; its environment variables are in the launch."""

LIMIT_S = 600.0
"""How long a start may take before it is called hung. ASSUMED."""

POLL_S = 0.1
SHOWN_EVERY_S = 5
PORT_TRIES = 3
KEY_VARIABLES = ("MOPT_API_KEY", "VLLM_API_KEY")
"""Where servers read the key that they ask for: ours, vLLM's."""

PARENT_VARIABLE = "MOPT_PARENT_PID"


def start_launch(launch: Launch, log: Path, *, python: Path | None = None) -> Running:
    """Start it in its environment, or with the interpreter that a user names."""
    if launch.job is not None:
        return environments.start_worker(
            launch.environment, launch.job, launch.request, log=log, env=launch.env, python=python
        )
    return environments.start_module(
        launch.environment, launch.arguments, log=log, env=launch.env, python=python
    )


def start(
    plan: Plan,
    artifact: Artifact,
    *,
    engine: Engine,
    log: Path,
    progress: Progress,
    start_process: StartProcess = start_launch,
    port: int | None = None,
    key: str | None = None,
    limit_s: float = LIMIT_S,
    outlive: bool = False,
) -> ServerHandle:
    """Serve `artifact` as `plan` says. `port` None takes a free one; `key` is asked of every client.

    `outlive` is for a server that will be detached: ours end otherwise with the program that started them,
    even if that one is killed.

    Raises HostError when a port that was named is in use or the environment is missing, ToolError when the
    server ends, hangs, or does not answer a real request. Whatever is raised, nothing is left running.
    """
    host = plan.setting("host") or "127.0.0.1"
    if port is not None:
        local_http.require_free(host, port)
    plan = dataclasses.replace(plan, checkpoint=artifact.path, format=artifact.format)
    for attempt in range(1, PORT_TRIES + 1):
        chosen = port if port is not None else processes.free_port()
        launch = _with(engine.launch(plan, chosen), key=key, outlive=outlive)
        server = ServerHandle(
            start_process(launch, log),
            url=f"http://{_reachable(host)}:{chosen}",
            served_name=launch.served_name,
            log=log,
        )
        try:
            _wait(server, launch, getattr(engine, "STAGES", ()), progress, limit_s)
            _first_answer(server, plan.workload, key, limit_s)
        except MoptError as error:
            server.stop()
            if port is None and attempt < PORT_TRIES and _was_taken(error):
                continue
            raise
        except BaseException:
            server.stop()
            raise
        return server
    raise AssertionError("the last attempt returns or raises")


def _was_taken(error: MoptError) -> bool:
    """Somebody else was quicker to take a port that was free a moment ago."""
    return error.reference == "port-in-use" or any("address already in use" in c.lower() for c in error.cause)


def _with(launch: Launch, *, key: str | None, outlive: bool) -> Launch:
    """What only the process may know, and no plan: the key, and whose process it is."""
    added: dict[str, str] = dict.fromkeys(KEY_VARIABLES, key) if key is not None else {}
    if not outlive:
        added[PARENT_VARIABLE] = str(os.getpid())
    return dataclasses.replace(launch, env={**launch.env, **added})


def _reachable(host: str) -> str:
    """Where a client on this machine finds a server that listens on all addresses."""
    return {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)


def _wait(
    server: ServerHandle,
    launch: Launch,
    stages: Sequence[tuple[str, str]],
    progress: Progress,
    limit_s: float,
) -> None:
    begun = time.monotonic()
    while True:
        seconds = time.monotonic() - begun
        if not server.alive():
            raise server.why_ended()
        reply = local_http.ask(server.url + launch.ready_path, timeout_s=2.0)
        if reply is not None and reply.status == 200:
            progress(f"{server.served_name} is ready after {seconds:.1f} s", None)
            return
        if seconds > limit_s:
            raise ToolError(
                f"the server of {server.served_name} was not ready after {limit_s:.0f} s, it was stopped",
                cause=server.log_tail(),
                hint=(f"the whole log: {server.log}",),
                reference="start-timed-out",
            )
        # In steps, so that a log of the progress does not get a line for every second.
        shown = int(seconds) // SHOWN_EVERY_S * SHOWN_EVERY_S
        progress(f"starting {server.served_name}: {_stage(server, stages)}, {shown} s", None)
        time.sleep(POLL_S)


def _stage(server: ServerHandle, stages: Sequence[tuple[str, str]]) -> str:
    """What the log says is being done: a worker's own words, or words of the engine that are known."""
    for line in reversed(server.log_tail(40)):
        if line.startswith('{"progress"'):
            try:
                return str(json.loads(line)["progress"])[:200]
            except (ValueError, KeyError):
                continue
        for words, meaning in stages:
            if words in line:
                return meaning
    return "loading"


def _first_answer(server: ServerHandle, work: Workload, key: str | None, limit_s: float) -> None:
    """One token or one vector; a server that is up but cannot compute is not ready."""
    if work.task == "vision":
        path, body = f"/v2/models/{server.served_name}/ready", None  # its worker computed before it listened
    else:
        path, body = _question(work, server.served_name)
    reply = local_http.ask(server.url + path, body=body, key=key, timeout_s=min(limit_s, 120.0))
    if reply is not None and reply.status == 200 and _is_answer(reply.body, work):
        return
    if not server.alive():
        raise server.why_ended()
    said = "nothing"
    if reply is not None:
        said = f"status {reply.status}: {reply.body[:500].decode(errors='replace')}"
    raise ToolError(
        f"the server of {server.served_name} is up but gave no answer to a first request",
        cause=(f"{path} gave {said}", *(raised(server.log_tail(LINES_FOR_CAUSE)) or server.log_tail(8))),
        hint=(f"the whole log: {server.log}",),
        reference="no-first-answer",
    )


def _question(work: Workload, name: str) -> tuple[str, Mapping[str, object]]:
    if work.task == "embed":
        return "/v1/embeddings", {"model": name, "input": "Hello"}
    if work.task == "rerank":
        return "/v1/rerank", {"model": name, "query": "Hello", "documents": ["Hello"]}
    return "/v1/completions", {"model": name, "prompt": "Hello", "max_tokens": 1, "temperature": 0}


def _is_answer(body: bytes, work: Workload) -> bool:
    """A vector of finite numbers, or a completion that counted a token."""
    import msgspec

    try:
        if work.task == "embed":
            vector = msgspec.json.decode(body, type=_Embeddings).data[0].embedding
            return bool(vector) and all(math.isfinite(x) for x in vector)
        if work.task == "rerank":
            return math.isfinite(msgspec.json.decode(body, type=_Scores).results[0].relevance_score)
        if work.task == "vision":
            return True
        return msgspec.json.decode(body, type=_Completion).usage.completion_tokens >= 1
    except (msgspec.MsgspecError, IndexError):
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vector:
    embedding: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Embeddings:
    data: tuple[_Vector, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Score:
    relevance_score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scores:
    results: tuple[_Score, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Usage:
    completion_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Completion:
    usage: _Usage
