"""An engine in its image: the plan's `docker run`, with a name, a cache that lasts, and keys that no list of
processes shows."""

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from model_optimizer.core import Engine, Launch, Plan, UsageError
from model_optimizer.system import containers, files
from model_optimizer.system.processes import Rotation, Running

HUB = "/root/.cache/huggingface"
HUB_TOKEN = "HF_TOKEN"
LOG_DRIVER = "local"
"""Docker's own copy of what a container prints: this driver keeps 100 MB of it, `UNBOUNDED` everything. A
daemon that was told another one keeps that; podman has no such driver.
docs.docker.com/engine/logging/drivers/local"""

UNBOUNDED = "json-file"
"""What Docker takes where nobody chose. docs.docker.com/engine/logging/configure"""


@dataclass(frozen=True, slots=True)
class InContainer:
    """Stands for an engine, and starts it in an image. `image` None takes the plan's, else the engine's own.

    Settings, formats and words of its log are those of the engine. Without `gpus` none is asked for, and an
    engine that also runs on a CPU takes its image for that.
    """

    engine: Engine
    runtime: str
    image: str | None = None
    gpus: bool = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def launch(self, plan: Plan, port: int) -> Launch:
        """Raises UsageError when there is no image of the engine."""
        make: Callable[[Plan, int], tuple[str, ...]] | None = getattr(self.engine, "container", None)
        if make is None:
            raise UsageError(
                f"no image of {self.engine.TITLE} is known",
                hint=("leave --container out: it runs in an environment of its own",),
            )
        plain = self.engine.launch(plan, port)
        on_cpu: Callable[[], str | None] | None = getattr(self.engine, "image_cpu", None)
        own = on_cpu() if on_cpu and not self.gpus else None
        words = make(replace(plan, image=self.image or own or plan.image), port)
        return replace(plain, program=self.runtime, job=None, arguments=self._words(words, plan)[1:])

    def _words(self, words: tuple[str, ...], plan: Plan) -> tuple[str, ...]:
        """The same with our own options: `run` comes first, `--rm` goes, so that its end can be looked at."""
        name = f"mopt-{_plain(plan.model)}-{os.getpid()}-{secrets.token_hex(3)}"
        kept = [w for w in words[2:] if w != "--rm"]
        for at, word in enumerate(kept):
            if kept[at - 1] == "-v":
                kept[at] = _home(word)
        if not self.gpus or self.runtime == "podman":
            kept = _devices(kept, wanted=self.gpus)
        cache = files.data_home() / "container-cache" / plan.engine
        mine = ["--name", name, "--label", f"model-optimizer.plan={plan.engine}"]
        mine += ["-v", f"{cache}:/root/.cache"]
        if self.runtime == "docker" and containers.log_driver(self.runtime) == UNBOUNDED:
            mine += ["--log-driver", LOG_DRIVER]
        return ("docker", "run", *mine, *kept)


def start(
    launch: Launch,
    log: Path,
    *,
    say: Callable[[str], None] = lambda _text: None,
    rotation: Rotation | None = None,
) -> Running:
    """Pull the image where it is not here, then start the container."""
    assert launch.program is not None
    words = list(launch.arguments)
    image = _image(words)
    if not containers.have_image(launch.program, image):
        say(f"pulling {image}")
        containers.pull(launch.program, image, log, say)
    passed = [name for name in launch.env if name.endswith("KEY")]
    if HUB_TOKEN in os.environ:
        passed.append(HUB_TOKEN)
    keys = [word for name in passed for word in ("-e", name)]
    env: Mapping[str, str] = {**os.environ, **launch.env}
    return containers.start([launch.program, "run", *keys, *words[1:]], log, env=env, rotation=rotation)


VALUED = frozenset(
    {
        "--name",
        "--label",
        "-v",
        "-p",
        "-e",
        "--gpus",
        "--device",
        "--shm-size",
        "--network",
        "--cidfile",
        "--log-driver",
    }
)
"""Options of `docker run` that we write with a value behind them."""


def _image(words: list[str]) -> str:
    """The first word behind the options."""
    at = 1
    while words[at].startswith("-"):
        at += 2 if words[at] in VALUED else 1
    return words[at]


def _home(mount: str) -> str:
    """`~` means nothing to docker; a hub cache elsewhere is the one to mount. A snapshot of a hub is links to
    files beside it, so all of that model is mounted."""
    outside, _, inside = mount.partition(":")
    if inside == HUB and (named := os.environ.get("HF_HOME")):
        outside = named
    place = files.expanded(outside).absolute()
    if place.parent.name == "snapshots" and inside.startswith(f"{place}:"):
        place = place.parents[1]
        inside = f"{place}:ro"
    return f"{place}:{inside}"


def _devices(words: list[str], *, wanted: bool) -> list[str]:
    """podman takes GPUs by their names in CDI; a machine without one takes none."""
    found: list[str] = []
    for at, word in enumerate(words):
        if word == "--gpus" and wanted:
            found += ["--device", f"nvidia.com/gpu={words[at + 1].removeprefix('device=')}"]
        elif word != "--gpus" and (at == 0 or words[at - 1] != "--gpus"):
            found.append(word)
    return found


def _plain(model: str) -> str:
    name = Path(model).name.lower()
    return "".join(c if c.isalnum() else "-" for c in name).strip("-")[:40] or "model"


def as_engine(engine: Engine, runtime: str, image: str | None, *, gpus: bool = True) -> Engine:
    return cast("Engine", InContainer(engine, runtime, image or None, gpus))
