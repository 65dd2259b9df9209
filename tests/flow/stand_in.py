"""An engine that is our fake server in a process of its own, told by the settings of a plan how to behave."""

import socket
import sys
from dataclasses import replace
from pathlib import Path

from model_optimizer.core import Artifact, Launch, Lengths, Plan, Setting, Slo, Workload
from model_optimizer.flow.tune import Loads, Runner
from model_optimizer.system import processes
from model_optimizer.system.processes import Running
from model_optimizer.tune.objective import Aim

CODE = """
import os, signal, sys, threading, time
from model_optimizer.testing.fake_server import Behaviour, FakeServer
how = {how!r}
if how.get("boom") == "1": raise SystemExit("RuntimeError: CUDA out of memory")
if how.get("stubborn") == "1":
    signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("GPU KV cache size: 4,096 tokens", flush=True)
if how.get("hang") == "1": time.sleep(600)
def end(): print("RuntimeError: an illegal memory access was encountered", flush=True); os._exit(9)
does = Behaviour(
    ttft_ms=2.0, tpot_ms=float(how.get("tpot", "1")), html=how.get("html") == "1",
    short_every=int(how.get("short_every", "0")), preempts=how.get("preempts") == "1",
)
with FakeServer(does, port={port}) as server:
    while not (how.get("dies_after") and len(server.records) > int(how["dies_after"])): time.sleep(0.02)
    end()
"""

PLAN = Plan(
    model="m",
    checkpoint="m",
    workload=Workload(concurrency=2),
    slo=Slo(),
    engine="stand-in",
    scheme="bf16",
    format="x",
)


class Engine:
    """Settings: `tpot` in milliseconds, `boom` ends at once, `hang` never listens, `html` answers with a page,
    `dies_after` so many requests, `stubborn` takes no polite end, `short_every` so many answers one is cut to
    half, `preempts` counts a preemption for each request."""

    TITLE, ENVIRONMENT, DEVICES = "stand-in", "onnx", frozenset({"cpu"})

    def launch(self, plan: Plan, port: int) -> Launch:
        how = {setting.name: setting.value for setting in plan.settings}
        code = CODE.format(how=how, port=port)
        return Launch(environment="onnx", arguments=("-c", code), served_name="fake", ready_path="/v1/models")


def begin(launch: Launch, log: Path) -> Running:
    return processes.start([sys.executable, *launch.arguments], log=log)


def plan(**settings: str) -> Plan:
    made = tuple(Setting(name=n, value=v, because="", source="user") for n, v in settings.items())
    return replace(PLAN, settings=made)


def runner(folder: Path, **given: object) -> Runner:
    loads = Loads(
        workload=Workload(concurrency=2, prompt_tokens=Lengths.fixed(8), output_tokens=Lengths.fixed(8)),
        slo=Slo(tpot_ms=500),
        levels=(2.0,),
        seconds=0.4,
        probe_s=0.2,
        vocab_size=1000,
    )
    artifact = Artifact(path=str(folder), format="x", scheme="bf16", task="generate", bytes=0, digest="")
    base = {
        "loads": loads,
        "aim": Aim(objective="goodput", slo=loads.slo),
        "artifacts": {"bf16": artifact},
        "engine": Engine(),
        "logs": folder,
        "progress": lambda text, share: None,
        "start_process": begin,
        "start_limit_s": 60.0,
        "sleep": lambda seconds: None,
    }
    return Runner(**{**base, **given})  # type: ignore[arg-type]


def port_taken(port: int) -> socket.socket:
    """Somebody else who listens there until it is closed."""
    other = socket.socket()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    other.bind(("127.0.0.1", port))
    other.listen()
    return other
