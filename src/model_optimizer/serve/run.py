"""From a plan and an artefact to a server that has answered one real request."""

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
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
from model_optimizer.system.environments.worker import PARENT_VARIABLE
from model_optimizer.system.processes import Rotation, Running

from .cause import raised
from .first import question, wrong
from .handle import LINES_FOR_CAUSE, ServerHandle
from .phases import Reader, Start, left_s, shown

StartProcess = Callable[[Launch, Path], Running]
"""(launch, log) -> the running process; its environment variables are in the launch."""

LIMIT_S = 600.0
"""How long a start may take before it is called hung. ASSUMED."""

POLL_S = 0.1
SHOWN_EVERY_S = 5
PORT_TRIES = 3
KEY_VARIABLES = ("MOPT_API_KEY", "VLLM_API_KEY", "LLAMA_API_KEY")
"""Where servers read the key that they ask for: ours, vLLM's, llama.cpp's."""


def start_launch(
    launch: Launch, log: Path, *, python: Path | None = None, rotation: Rotation | None = None
) -> Running:
    """Start it in its environment, or with the interpreter that a user names."""
    if launch.program is not None:
        return environments.start_program(
            launch.program, launch.arguments, log=log, env=launch.env, rotation=rotation
        )
    if launch.job is not None:
        return environments.start_worker(
            launch.environment,
            launch.job,
            launch.request,
            log=log,
            env=launch.env,
            python=python,
            rotation=rotation,
        )
    return environments.start_module(
        launch.environment, launch.arguments, log=log, env=launch.env, python=python, rotation=rotation
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
    earlier: Sequence[Start] = (),
    on_hang: Callable[[ServerHandle], tuple[str, ...]] = lambda _server: (),
    outlive: bool = False,
) -> ServerHandle:
    """Serve `artifact` as `plan` says. `port` None takes a free one; `key` is asked of every client.

    `earlier` starts say how long this one may take, `on_hang` what a server is doing that never gets ready.
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
        server: ServerHandle | None = None
        try:
            server = ServerHandle(
                start_process(launch, log),
                url=f"http://{_reachable(host)}:{chosen}",
                served_name=launch.served_name,
                log=log,
                ready_path=launch.ready_path,
            )
            reader = Reader(log, getattr(engine, "STAGES", ()), from_byte=server.log_from)
            watching = Watching(limit_s=limit_s, earlier=earlier, on_hang=on_hang)
            seconds = _wait(server, launch, reader, progress, watching)
            _first_answer(server, plan.workload, key, limit_s)
            server.start = Start(seconds=seconds, phases=tuple(reader.phases))
            progress(f"{server.served_name} is ready after {seconds:.1f} s", None)
        except MoptError as error:
            if server is not None:
                server.stop()
            if port is None and attempt < PORT_TRIES and _was_taken(error):
                continue
            raise
        except BaseException:
            if server is not None:
                server.stop()
            raise
        return server
    raise AssertionError("the last attempt returns or raises")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """How a start is waited for."""

    limit_s: float
    earlier: Sequence[Start]
    on_hang: Callable[[ServerHandle], tuple[str, ...]]


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
    server: ServerHandle, launch: Launch, reader: Reader, progress: Progress, watching: "Watching"
) -> float:
    """Until it says that it is ready. Seconds that it took."""
    begun, told = time.monotonic(), (-1, "", None)
    while True:
        seconds = time.monotonic() - begun
        if not server.alive():
            raise server.why_ended()
        reader.look(seconds)
        reply = local_http.ask(server.url + launch.ready_path, timeout_s=2.0)
        if reply is not None and reply.status == 200:
            return seconds
        if seconds > watching.limit_s:
            raise ToolError(
                f"the server of {server.served_name} was not ready after {watching.limit_s:.0f} s, "
                "it was stopped",
                cause=(*watching.on_hang(server), f"it was {reader.phase.name}", *server.log_tail()),
                hint=(f"the whole log: {server.log}", "give it longer with --start-limit"),
                reference="start-timed-out",
            )
        # In steps, so that a log of the progress does not get a line for every second.
        steps = (int(seconds) // SHOWN_EVERY_S, reader.phase.name, reader.percent)
        if steps != told:
            told = steps
            left = left_s(watching.earlier, reader.phase, seconds)
            after = steps[0] * SHOWN_EVERY_S
            progress(shown(server.served_name, reader, after, left, len(watching.earlier)), None)
        time.sleep(POLL_S)


def _first_answer(server: ServerHandle, work: Workload, key: str | None, limit_s: float) -> None:
    """One real request; a server that is up but cannot compute is not ready."""
    path, body = question(work, server.served_name)
    reply = local_http.ask(server.url + path, body=body, key=key, timeout_s=min(limit_s, 120.0))
    fault = "nothing"
    if reply is not None and reply.status == 200:
        found = wrong(reply.body, work)
        if found is None:
            return
        fault = found
    elif reply is not None:
        fault = f"status {reply.status}: {reply.body[:500].decode(errors='replace')}"
    if not server.alive():
        raise server.why_ended()
    garbage = reply is not None and reply.status == 200
    raise ToolError(
        f"the server of {server.served_name} is up but "
        + ("its first answer is nonsense" if garbage else "gave no answer to a first request"),
        cause=(f"{path} gave {fault}", *(raised(server.log_tail(LINES_FOR_CAUSE)) or server.log_tail(8))),
        hint=(
            *(("`mopt verify FOLDER` compares the weights with the original",) if garbage else ()),
            f"the whole log: {server.log}",
        ),
        reference="no-first-answer",
    )
