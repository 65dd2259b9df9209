"""`docker run` (podman too) of an engine: GPUs, memory, ports, image against driver, the command inside."""

import re
from dataclasses import dataclass, field

from model_optimizer.core.explanation import Explanation, Point
from model_optimizer.explain import environment, machine, text
from model_optimizer.explain.images import Image, of_image
from model_optimizer.explain.question import Question
from model_optimizer.facts import flags
from model_optimizer.facts import vllm as facts
from model_optimizer.facts.versions import key

from . import vllm

TITLE = "container"
GUIDE = "NVIDIA Container Toolkit and Docker documentation"
ENTRYPOINT_FROM = "0.11.2"
"""From here on vLLM's image starts with `vllm serve`."""
WITH_VALUE = frozenset(
    [
        "--gpus",
        "--name",
        "--env",
        "-e",
        "--env-file",
        "--volume",
        "-v",
        "--publish",
        "-p",
        "--network",
        "--net",
        "--ipc",
        "--shm-size",
        "--runtime",
        "--entrypoint",
        "--user",
        "-u",
        "--workdir",
        "-w",
        "--memory",
        "-m",
        "--cpus",
        "--cpuset-cpus",
        "--ulimit",
        "--restart",
        "--mount",
        "--device",
        "--hostname",
        "-h",
        "--label",
        "-l",
        "--pull",
        "--platform",
        "--add-host",
        "--security-opt",
        "--cap-add",
        "--log-driver",
        "--log-opt",
        "--tmpfs",
        "--group-add",
        "--pid",
        "--device-cgroup-rule",
        "--health-cmd",
        "--stop-timeout",
        "--cgroupns",
    ]
)


@dataclass(slots=True)
class Run:
    """The parts of `docker run [OPTIONS] IMAGE [COMMAND]`."""

    program: str
    options: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    written: list[list[str]] = field(default_factory=list[list[str]])
    image: str | None = None
    command: list[str] = field(default_factory=list[str])

    def values(self, *names: str) -> list[str]:
        return [value or "" for name, value in self.options if name in names]

    def has(self, *names: str) -> bool:
        return any(name in names for name, _ in self.options)


def matches(words: list[str]) -> bool:
    name = words[0].split("/")[-1] if words else ""
    return name in ("docker", "podman", "nvidia-docker", "nerdctl") and any(
        w in ("run", "create") for w in words[1:3]
    )


def explain(words: list[str], question: Question) -> Explanation:
    """The same container, safe and valid today; the command inside goes through its own program."""
    run = read(words)
    image = of_image(run.image or "")
    inside = _inside(run, image, question)
    points = [
        *_of_gpus(run),
        *_of_image(run, image, question),
        *_of_memory(run),
        *_of_ports(run, image),
        *_of_secrets(run),
    ]
    points += [
        *of_command(run, image),
        *(p for p in (inside.points if inside else ()) if p.about not in _elsewhere(image)),
    ]
    return Explanation(
        asked=text.masked(text.line(words)),
        kind="container",
        title=f"a container of {run.image or 'no image'}",
        means=(_summary(points, image),),
        points=tuple(points),
        today=(_today(run, image, inside),) if run.image else (),
        today_for=inside.today_for if inside else "Docker with the NVIDIA Container Toolkit",
        do=(f"mopt doctor --for {run.image} checks image against driver before pulling",)
        if run.image
        else (),
        source=(GUIDE, *(inside.source if inside else ())),
    )


def read(words: list[str]) -> Run:
    """The parts of the command line."""
    at = next(i for i, word in enumerate(words) if word in ("run", "create"))
    run = Run(words[0].split("/")[-1])
    rest = words[at + 1 :]
    while rest:
        before = list(rest)
        word = rest.pop(0)
        if not word.startswith("-"):
            run.image, run.command = word, rest
            break
        name, equals, value = word.partition("=")
        if equals:
            run.options.append((name, value))
        elif name in WITH_VALUE:
            run.options.append((name, rest.pop(0) if rest else None))
        elif re.fullmatch(r"-[pvew]\S+", word):
            run.options.append((word[:2], word[2:]))
        else:
            run.options.append((name, None))
        run.written.append(before[: len(before) - len(rest)])
    return run


def _of_gpus(run: Run) -> list[Point]:
    found: list[Point] = []
    if run.program == "nvidia-docker":
        says = "nvidia-docker is long gone: `docker run --gpus all` with the NVIDIA Container Toolkit"
        found.append(Point(about="nvidia-docker", level="changed", says=says, source=GUIDE))
    values = run.values("--gpus")
    for value in values:
        if value.strip("\"'").startswith("device=") and "," in value and '"' not in value:
            says = (
                "Docker splits this at the comma; the inner quotes are needed: --gpus '\""
                + value.strip("\"'")
                + "\"'"
            )
            found.append(Point(about=f"--gpus {value}", level="wrong", says=says, source=GUIDE))
        elif value.isdigit():
            some = f"any {value} GPUs" if value != "1" else "any one GPU"
            says = f"a count: {some}; GPU number {value} would be --gpus device={value}"
            found.append(
                Point(
                    about=f"--gpus {value}",
                    level="warn" if value != "0" else "wrong",
                    says=says,
                    source=GUIDE,
                )
            )
    if "--gpus" in run.command or any(w.startswith("--gpus=") for w in run.command):
        says = (
            "stands after the image, so it goes to the program inside; options of docker come before "
            "the image"
        )
        found.append(Point(about="--gpus", level="wrong", says=says, source=GUIDE))
    cdi = [v for v in run.values("--device") if v.startswith("nvidia.com/gpu")]
    if (
        not values
        and not cdi
        and not run.has("--runtime")
        and "--gpus" not in run.command
        and run.program != "nvidia-docker"
    ):
        says = "no GPU is handed in; add --gpus all"
        found.append(Point(about="--gpus", level="wrong", says=says, source=GUIDE))
    if run.program == "podman" and values:
        says = "podman takes GPUs through CDI: --device nvidia.com/gpu=all"
        found.append(Point(about="--gpus", level="changed", says=says, source=GUIDE))
    if values and run.has("--runtime"):
        says = "--gpus is enough; the default runtime need not be changed for it"
        found.append(Point(about="--runtime", level="note", says=says, source=GUIDE))
    if run.has("--privileged"):
        says = "not needed for GPUs, and gives the container the whole host: leave it out"
        found.append(Point(about="--privileged", level="warn", says=says, source=GUIDE))
    return found


def _of_image(run: Run, image: Image, question: Question) -> list[Point]:
    if run.image is None:
        return [Point(about=run.program, level="wrong", says="names no image", source=GUIDE)]
    found = list(image.points)
    if image.cuda:
        found += machine.of_image(image.cuda, question, about=run.image)
    if image.vllm and question.capability:
        release = facts.release(image.vllm)
        built, have = release.image.compute_capabilities, question.capability
        if have < release.minimum_compute_capability:
            least = machine.dotted(release.minimum_compute_capability)
            says = (
                f"vLLM {image.vllm} begins at compute capability {least}; this GPU is {machine.dotted(have)}"
            )
            found.append(
                Point(
                    about=run.image,
                    level="wrong",
                    says=says,
                    source=f"facts/compatibility/vllm/{release.version}",
                )
            )
        elif built and not any(b[0] == have[0] and b <= have for b in built):
            says = f"the image has no code for {machine.dotted(have)}"
            found.append(
                Point(
                    about=run.image,
                    level="warn",
                    says=says,
                    source=f"facts/compatibility/vllm/{release.version}",
                )
            )
    return found


def _of_memory(run: Run) -> list[Point]:
    ipc, shm = run.values("--ipc"), run.values("--shm-size")
    many = is_parallel(run.command)
    if not ipc and not shm and many:
        says = (
            "several GPUs talk through /dev/shm, and Docker gives 64 MB of it: add --ipc=host or "
            "--shm-size=8g"
        )
        return [
            Point(
                about="--shm-size",
                level="wrong",
                says=says,
                source="vLLM documentation, deployment with Docker",
            )
        ]
    if "host" in ipc and shm:
        says = "has no effect beside --ipc=host, which shares the host's own /dev/shm"
        return [Point(about="--shm-size", level="note", says=says, source=GUIDE)]
    return []


def is_parallel(command: list[str]) -> bool:
    text_of = " ".join(command)
    found = re.search(
        r"(?:--tensor-parallel-size|--tp-size|--tp|-tp|--pipeline-parallel-size|-pp)[ =](\d+)", text_of
    )
    return bool(found and int(found[1]) > 1)


def _of_ports(run: Run, image: Image) -> list[Point]:
    found: list[Point] = []
    for value in run.values("-p", "--publish"):
        if re.fullmatch(r"(?:0\.0\.0\.0:)?\d+(?:-\d+)?:\d+(?:-\d+)?(?:/\w+)?|\d+", value):
            says = (
                "published on every interface, past the host's firewall: write 127.0.0.1:PORT:PORT, or "
                "put a key in front"
            )
            found.append(Point(about=f"-p {value}", level="warn", says=says, source=GUIDE))
    host_network = any(v == "host" for v in run.values("--network", "--net"))
    if host_network and run.has("-p", "--publish"):
        says = "has no effect beside --network host"
        found.append(Point(about="-p", level="note", says=says, source=GUIDE))
    if host_network:
        says = "the server listens on the host's own interfaces: add --host 127.0.0.1 to its options"
        found.append(Point(about="--network host", level="warn", says=says, source=GUIDE))
    elif image.repository == "vllm/vllm-openai" and not run.has("-p", "--publish", "-P"):
        says = "no port is published: nothing outside the container reaches the server"
        found.append(Point(about="-p", level="note", says=says, source=GUIDE))
    return found


def _of_secrets(run: Run) -> list[Point]:
    given = [v for v in run.values("-e", "--env") if "=" in v and text.secrets(v)]
    if not given and not text.secrets(text.line(run.command)):
        return []
    names = ", ".join(v.partition("=")[0] for v in given) or "the command"
    says = (
        "a secret in the command line stays in the shell's history and in `docker inspect`: set "
        "it in the shell and "
    )
    says += "pass `-e NAME` alone, or use --env-file"
    return [Point(about=names, level="warn", says=says, source=GUIDE)]


def of_command(run: Run, image: Image) -> list[Point]:
    if not image.vllm or run.has("--entrypoint"):
        return []
    new = key(image.vllm) >= key(ENTRYPOINT_FROM)
    if new and run.command[:2] == ["vllm", "serve"]:
        says = "the image starts with `vllm serve` itself: the command begins with the model"
        return [Point(about="vllm serve", level="wrong", says=says, source="vLLM docker/Dockerfile")]
    if new and run.command[:1] and run.command[0].startswith("python"):
        says = "the image starts with `vllm serve`, which would take this as the model: begin with the model"
        return [
            Point(about=" ".join(run.command[:3]), level="wrong", says=says, source="vLLM docker/Dockerfile")
        ]
    if not new and run.command and (run.command[0] == "vllm" or run.command[0].startswith("python")):
        says = (
            f"images before {ENTRYPOINT_FROM} start the server themselves: give options alone, --model first"
        )
        return [
            Point(about=" ".join(run.command[:2]), level="wrong", says=says, source="vLLM docker/Dockerfile")
        ]
    if (
        not new
        and run.command
        and not run.command[0].startswith("-")
        and run.command[0] not in ("vllm", "python3")
    ):
        says = f"images before {ENTRYPOINT_FROM} take the model as --model {run.command[0]}"
        return [Point(about=run.command[0], level="wrong", says=says, source="vLLM docker/Dockerfile")]
    return []


def _inside(run: Run, image: Image, question: Question) -> Explanation | None:
    """What vLLM's own command inside means."""
    if image.repository != "vllm/vllm-openai" or run.has("--entrypoint") or not run.command:
        return None
    words = run.command
    inner = words if words[0] in ("vllm",) or words[0].startswith("python") else ["vllm", "serve", *words]
    asked = Question(
        thing=question.thing,
        gpu=question.gpu,
        driver=question.driver,
        engine="vllm",
        version=image.vllm or question.version_of("vllm"),
        variables=tuple(v for v in _variables(run) if _is_gone("=".join(v), image)),
    )
    return vllm.explain(_without_gpus(inner), asked)


def _elsewhere(image: Image) -> tuple[str, ...]:
    """Remarks about a plain server that do not hold inside a container: its ports are published by hand, and
    old images take the model as an option."""
    old = image.vllm is not None and key(image.vllm) < key(ENTRYPOINT_FROM)
    return ("--host", "--model") if old else ("--host",)


def _without_gpus(words: list[str]) -> list[str]:
    """The command without docker's own option, which some put behind the image."""
    kept: list[str] = []
    skip = False
    for word in words:
        if not skip and word != "--gpus" and not word.startswith("--gpus="):
            kept.append(word)
        skip = word == "--gpus"
    return kept


def _variables(run: Run) -> list[tuple[str, str]]:
    """The variables that the container is given with a value."""
    given = (value.partition("=") for value in run.values("-e", "--env") if "=" in value)
    return [(name, value) for name, _, value in given]


def _today(run: Run, image: Image, inside: Explanation | None) -> str:
    words = ["podman" if run.program == "podman" else "docker", "run"]
    wanted = _gpus(run)
    done = False
    for (name, value), written in zip(run.options, run.written, strict=True):
        if name in ("--gpus", "--runtime"):
            words += [] if done else wanted
            done = True
        elif name in ("-p", "--publish") and value:
            words += [name, _bound(value)]
        elif name in ("-e", "--env") and value and "=" in value and text.secrets(value):
            words += [name, value.partition("=")[0]]
        elif not _is_needless(run, name, value, image):
            words += written
    words += [] if done else wanted
    if is_parallel(run.command) and not run.has("--ipc", "--shm-size"):
        words.append("--ipc=host")
    line = text.masked(text.line([*words, image.pinned or run.image or ""]))
    if inside and inside.today:
        new = image.vllm is None or key(image.vllm) >= key(ENTRYPOINT_FROM)
        tail = inside.today[-1].removeprefix("vllm serve ")
        model, _, rest = tail.partition(" ")
        return f"{line} {tail}" if new else f"{line} --model {model} {rest}".rstrip()
    return f"{line} {text.masked(text.line(run.command))}".rstrip()


def _is_needless(run: Run, name: str, value: str | None, image: Image) -> bool:
    """What today's command does without."""
    if name in ("-e", "--env"):
        return bool(value) and _is_gone(value or "", image)
    return name == "--privileged" or (name == "--shm-size" and "host" in run.values("--ipc"))


def _is_gone(assignment: str, image: Image) -> bool:
    """Whether the release inside no longer reads a variable."""
    name, _, value = assignment.partition("=")
    kept, _, _ = environment.translate([(name, value)], "vllm", flags.table("vllm", image.vllm))
    return not kept


def _gpus(run: Run) -> list[str]:
    if run.program == "podman":
        return ["--device", "nvidia.com/gpu=all"]
    values = run.values("--gpus")
    if values and values[0].strip("\"'").startswith("device=") and "," in values[0]:
        return ["--gpus", '"' + values[0].strip("\"'") + '"']
    return ["--gpus", values[0] if values and values[0] not in ("", "0") else "all"]


def _bound(value: str) -> str:
    bare = value.removeprefix("0.0.0.0:")
    if re.fullmatch(r"\d+", bare):
        return f"127.0.0.1:{bare}:{bare}"
    return f"127.0.0.1:{bare}" if re.fullmatch(r"\d+(?:-\d+)?:\d+(?:-\d+)?(?:/\w+)?", bare) else value


def _summary(points: list[Point], image: Image) -> str:
    wrong = sum(p.level == "wrong" or p.says.startswith("not in ") for p in points)
    warned = sum(p.level == "warn" for p in points)
    what = f"It brings vLLM {image.vllm}. " if image.vllm else ""
    if wrong:
        return f"{what}As written it fails: {wrong} thing{'s' * (wrong > 1)} wrong, {warned} to think about."
    return f"{what}It runs as written" + (
        f"; {warned} thing{'s' * (warned > 1)} to think about." if warned else "."
    )
