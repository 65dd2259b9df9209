"""What a plug-in must offer. The contracts in `testing/` check it; the file is the registration.

A tool turns one format into another, an engine reads formats; neither names the other. A candidate
is a path: the model's own format -> tool -> format -> ... -> engine.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from .artifact import Artifact
from .finding import Finding
from .host import Host
from .model import ModelSpec
from .plan import Plan, Setting, Term
from .scheme import Scheme
from .workload import Workload

Progress = Callable[[str, float | None], None]
"""Called with what is being done and the share done (0 to 1, None when it cannot be known)."""

RunWorker = Callable[[str, str, Mapping[str, Any], Progress], Mapping[str, Any]]
"""(environment, job, request, progress) -> result, as system.environments.run_worker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Bytes that a tool downloads, writes and holds in RAM at its peak.

    `artifact_bytes` is the part of `disk_bytes` that stays: the size of what it makes.
    """

    download_bytes: int = 0
    disk_bytes: int = 0
    memory_bytes: int = 0
    artifact_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start one server: a worker job in an environment, a module run by its interpreter, or a program.

    `job` names a file in workers/ and `request` is what it is handed; `arguments` are used instead
    when the engine has its own command (`-m vllm...`, or those of `program`, found on PATH). `served_name`
    is the model name that requests use, `ready_path` answers 200 when the server is ready.
    """

    environment: str
    program: str | None = None
    job: str | None = None
    request: Mapping[str, Any] = field(default_factory=dict[str, Any])
    arguments: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    served_name: str = "model"
    ready_path: str = "/health"


class Check(Protocol):
    """A file in doctor/checks/. Its docstring's first line is its title.

    It is skipped when a check of AFTER failed. It may also have LAYER (one of doctor.LAYERS), SOURCE (where
    its rule is from) and TARGETED = True: then `check` is handed what shall run here, too, and is asked
    only when there is something.
    """

    AFTER: tuple[str, ...]

    def check(self, host: Host) -> Finding: ...


class SchemeModule(Protocol):
    """A file in schemes/."""

    SCHEME: Scheme


class Tool(Protocol):
    """A file in quantize/ or convert/.

    READS is the format it starts from and FROM the schemes that the source may have there; an empty
    FROM means any, and that the result has the same one. WRITES is the format it makes for each scheme,
    TASKS what models it handles, ENVIRONMENT where its worker runs. `needs` is how many bytes it takes
    for a model, by arithmetic alone. A tool that cannot take every model of its tasks also has
    `refuses(model) -> str | None`, which says why not.
    """

    READS: str
    FROM: frozenset[str]
    WRITES: Mapping[str, str]
    TASKS: frozenset[str]
    ENVIRONMENT: str

    def needs(self, model: ModelSpec, scheme: Scheme) -> Needs: ...

    def make(
        self, source: Artifact, scheme: Scheme, out: Path, *, run: RunWorker, progress: Progress
    ) -> Artifact:
        """Make `out` (which does not exist yet) and describe it. Raises ToolError."""
        ...


class Engine(Protocol):
    """A file in engines/: how a plan becomes a running server.

    READS maps a file format to the schemes that the engine computes in it. DEVICES are `cpu`, `gpu`.

    It may also have TAKES (the settings that `launch` reads; others are refused), WORDS (its names for
    `context`, `sequences`, `tokens`, `kv_cache`, `eager`, `share`), STAGES (words of its log and what they
    say of a start, the latest stage first), PRINTS (how its log says `kv_cache_tokens` and
    `max_concurrency`), KEY (the variable that its server reads a key from; None when it asks for none),
    SERVES (the formats that it is served from, where these are not READS), SHARED (settings that are
    of all requests at once, and what says how many these are), `container`, `runs_on(host)` (whether the
    GPUs of a host can be used), `lacks(model, scheme, host)` (why it cannot compute that, else None), and
    `follow(plan, model, scheme)`: the plan with what hangs on the settings that a user names.
    """

    TITLE: str
    READS: Mapping[str, frozenset[str]]
    TASKS: frozenset[str]
    DEVICES: frozenset[str]
    ENVIRONMENT: str

    def memory(self, model: ModelSpec, scheme: Scheme, work: Workload) -> tuple[Term, ...]: ...

    def settings(
        self, model: ModelSpec, scheme: Scheme, work: Workload, host: Host
    ) -> tuple[Setting, ...]: ...

    def launch(self, plan: Plan, port: int) -> Launch: ...


def lacking(engine: Engine, model: ModelSpec, scheme: Scheme, host: Host) -> str | None:
    """Why an engine cannot compute a scheme of a model on a host; None where it can, or does not say."""
    lacks: Callable[[ModelSpec, Scheme, Host], str | None] | None = getattr(engine, "lacks", None)
    return lacks(model, scheme, host) if lacks else None
