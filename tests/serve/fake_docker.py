#!/usr/bin/env python3
"""Plays `docker`: keeps its containers as folders under FAKE_DOCKER, runs what is behind the image here.

Every call is a line of `calls` there. FAKE_DRIVER is the daemon's log driver; `podman` plays podman-docker, which
knows no such field, `hangs` a daemon that does not answer. What is published as -p ADDRESS:PORT:PORT is served by the stub server,
which behaves as FAKE_BEHAVIOUR says.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

HOME = Path(os.environ["FAKE_DOCKER"])
STUB = Path(os.environ["FAKE_STUB"])
BEHAVIOUR = os.environ.get("FAKE_BEHAVIOUR", "good")
WORDS = sys.argv[1:]


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


def container(word: str) -> Path:
    place = HOME / "containers" / word
    if not place.is_dir():
        sys.exit(f"Error response from daemon: No such container: {word}")
    return place


def after(option: str) -> str:
    return WORDS[WORDS.index(option) + 1]


def state(place: Path) -> dict[str, object]:
    pid = int((place / "pid").read_text())
    running = alive(pid)
    code = place / "code"
    return {
        "Status": "running" if running else "exited",
        "Running": running,
        "OOMKilled": BEHAVIOUR == "oom",
        "Pid": pid if running else 0,
        "ExitCode": 0 if running else int(code.read_text() if code.is_file() else 1),
    }


def run() -> None:
    if BEHAVIOUR == "refuses":
        sys.stderr.write("docker: Error response from daemon: could not select device driver with gpu.\n")
        sys.exit(125)
    taken = HOME / "taken-once"
    if BEHAVIOUR == "taken" and not taken.exists():
        taken.touch()
        sys.stderr.write("docker: Bind for 127.0.0.1:1 failed: port is already allocated.\n")
        sys.exit(125)
    name = secrets.token_hex(32)
    place = HOME / "containers" / name
    place.mkdir(parents=True)
    port = after("-p").split(":")[-1]
    with (place / "log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, STUB, port, BEHAVIOUR], stdout=log, stderr=log, start_new_session=True
        )
    (place / "pid").write_text(str(child.pid))
    Path(after("--cidfile")).write_text(name)
    say(name)


def logs() -> None:
    place = container(WORDS[-1])
    with (place / "log").open() as stream:
        while True:
            text = stream.read()
            sys.stdout.write(text)
            sys.stdout.flush()
            if not text and not alive(int((place / "pid").read_text())):
                return
            time.sleep(0.05)


def stop() -> None:
    place = container(WORDS[-1])
    pid = int((place / "pid").read_text())
    if alive(pid):
        os.kill(pid, signal.SIGTERM)
        (place / "code").write_text("143")
        while alive(pid):
            time.sleep(0.02)


def remove() -> None:
    place = container(WORDS[-1])
    pid = int((place / "pid").read_text())
    if alive(pid):
        os.kill(pid, signal.SIGKILL)
    place.rename(HOME / "removed" / place.name)


def info() -> None:
    driver = os.environ.get("FAKE_DRIVER", "json-file")
    if driver == "podman":
        sys.exit("Error: template: info:1:2: can't evaluate field LoggingDriver in type *define.Info")
    if driver == "hangs":
        time.sleep(60)
    say(driver)


HOME.mkdir(exist_ok=True)
(HOME / "removed").mkdir(exist_ok=True)
with (HOME / "calls").open("a") as calls:
    calls.write(json.dumps({"words": WORDS, "key": os.environ.get("VLLM_API_KEY")}) + "\n")
match WORDS[0]:
    case "run":
        run()
    case "image":
        if not (HOME / "image").exists():
            sys.exit("Error: No such image")
        say("sha256:1")
    case "pull":
        say("Pulling fs layer")
        if BEHAVIOUR == "no-image":
            sys.exit("Error response from daemon: manifest for x not found: manifest unknown")
        (HOME / "image").touch()
    case "inspect":
        say(json.dumps(state(container(WORDS[-1]))))
    case "info":
        info()
    case "ps":
        say("\n".join(p.name for p in (HOME / "containers").iterdir()))
    case "logs":
        logs()
    case "stop":
        stop()
    case "rm":
        remove()
    case _:
        sys.exit(f"unknown command {WORDS[0]}")
