"""A Dockerfile or a compose file, read line by line."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from model_optimizer.core.explanation import Explanation, Point

from . import machine, text
from .images import of_image
from .programs import docker, pip, vllm
from .question import Question

GUIDE = "Docker documentation: Dockerfile and compose file references"
KUBERNETES = "vLLM documentation, deployment with Kubernetes"
_PORT = re.compile(r"^\s*-\s*[\"']?((?:0\.0\.0\.0:)?\d+:\d+(?:/\w+)?)[\"']?\s*$")
_LIST = re.compile(r"^\s*-\s+(.*)$")


def is_dockerfile(thing: str) -> bool:
    return bool(re.search(r"(?im)^\s*FROM\s+\S+", thing)) and not is_compose(thing)


def is_compose(thing: str) -> bool:
    return bool(
        re.search(r"(?m)^\s*services:\s*$", thing) or re.search(r"(?m)^\s+(?:- +)?image:\s*\S+", thing)
    )


def dockerfile(thing: str, question: Question) -> Explanation:
    """What is wrong with an image that is built from this file."""
    points: list[Point] = []
    base = None
    for raw in text.joined_lines(thing).splitlines():
        keyword, _, rest = raw.strip().partition(" ")
        keyword, rest = keyword.upper(), rest.strip()
        if keyword == "FROM":
            base = rest.split()[0] if rest else ""
            image = of_image(base)
            points += image.points
            if image.cuda:
                points += machine.of_image(image.cuda, question, about=base)
        elif keyword in ("ENV", "ARG") and text.secrets(rest):
            says = (
                "a secret in a layer stays there for everyone who has the image: use `RUN "
                "--mount=type=secret`"
            )
            points.append(
                Point(about=f"{keyword} {re.split('[= ]', rest)[0]}", level="wrong", says=says, source=GUIDE)
            )
        elif keyword == "RUN":
            points += _of_run(rest, question)
        elif keyword in ("CMD", "ENTRYPOINT"):
            points += _of_command(_exec_form(rest), base, keyword, question)
        elif keyword == "USER" and rest == "root":
            points.append(
                Point(about="USER root", level="note", says="the server needs no root", source=GUIDE)
            )
    return Explanation(
        asked=text.masked(thing)[:2000],
        kind="container",
        title=f"a Dockerfile on {base or 'no base image'}",
        means=(_summary(points),),
        points=tuple(points),
        do=("mopt doctor --for ./Dockerfile checks it against this machine's driver",),
        source=(GUIDE,),
    )


def _of_run(rest: str, question: Question) -> Iterator[Point]:
    for command in text.commands(rest):
        if pip.matches(command):
            yield from pip.explain(command, question).points
        elif "apt-get" in command[:2] and any(
            w.startswith(("nvidia-driver", "cuda-drivers")) for w in command
        ):
            says = "the driver belongs on the host: the toolkit hands libcuda in from there"
            yield Point(about=" ".join(command)[:60], level="wrong", says=says, source=docker.GUIDE)


def _of_command(words: list[str], base: str | None, keyword: str, question: Question) -> Iterator[Point]:
    image = of_image(base or "")
    if image.repository == "vllm/vllm-openai" and keyword == "CMD":
        run = docker.Run("docker", image=base, command=words)
        yield from docker.of_command(run, image)
    if vllm.matches(words):
        yield from vllm.explain(
            words, replace(question, engine="vllm", version=image.vllm or question.version)
        ).points
    elif image.vllm and words and keyword == "CMD":
        asked = replace(question, engine="vllm", version=image.vllm)
        yield from vllm.explain(["vllm", "serve", *words], asked).points


def _exec_form(rest: str) -> list[str]:
    """The words of `["a", "b"]` or of a shell line."""
    if rest.startswith("["):
        return [a or b for a, b in re.findall(r"\"([^\"]*)\"|'([^']*)'", rest)]
    return text.words(rest)


def compose(thing: str, question: Question) -> Explanation:
    """What is wrong with services that serve models."""
    points: list[Point] = []
    lines = thing.splitlines()
    images = [m[1].strip("\"'") for line in lines if (m := re.match(r"\s*(?:- +)?image:\s*(\S+)", line))]
    version = None
    for name in images:
        image = of_image(name)
        version = image.vllm or version
        points += image.points
        if image.cuda:
            points += machine.of_image(image.cuda, question, about=name)
    manifest = bool(re.search(r"(?m)^\s*apiVersion:", thing))
    kind = "a Kubernetes manifest" if manifest else "a compose file"
    if manifest:
        points += _of_manifest(thing)
    else:
        points += _ports(lines)
        points += _devices(thing)
    for line in lines:
        if text.secrets(line) and "${" not in line:
            name = re.split(r"[=:]", line.strip().lstrip("- "))[0]
            says = (
                "a secret in the file: write NAME=${NAME} and keep the value in the shell or in an .env file"
            )
            points.append(Point(about=name[:60], level="warn", says=says, source=GUIDE))
    words = _command(lines)
    if words and any(of_image(name).repository == "vllm/vllm-openai" for name in images):
        asked = replace(question, engine="vllm", version=version or question.version_of("vllm"))
        inner = words[2:] if words[:2] == ["vllm", "serve"] else words
        points += docker.of_command(docker.Run("docker", image=images[0], command=words), of_image(images[0]))
        points += [p for p in vllm.explain(["vllm", "serve", *inner], asked).points if p.about != "--host"]
    if not manifest and docker.is_parallel(words) and not re.search(r"(?m)^\s*(ipc|shm_size):", thing):
        says = (
            "several GPUs talk through /dev/shm, and a container gets 64 MB of it: add `ipc: host` "
            "or `shm_size: 8g`"
        )
        points.append(Point(about="shm_size", level="wrong", says=says, source=GUIDE))
    return Explanation(
        asked=text.masked(thing)[:2000],
        kind="container",
        title=f"{kind} with {', '.join(images) or 'no image'}",
        means=(_summary(points),),
        points=tuple(points),
        source=(GUIDE, docker.GUIDE),
    )


def _ports(lines: Sequence[str]) -> Iterator[Point]:
    for line in lines:
        if found := _PORT.match(line):
            bound = found[1].removeprefix("0.0.0.0:")
            says = f'published on every interface, past the host\'s firewall: write "127.0.0.1:{bound}"'
            yield Point(about=found[1], level="warn", says=says, source=GUIDE)


def _devices(thing: str) -> Iterator[Point]:
    reserved = "driver: nvidia" in thing or "nvidia.com/gpu" in thing
    legacy = re.search(r"(?m)^\s*runtime:\s*nvidia", thing)
    if legacy and not reserved:
        says = (
            "needs the runtime in daemon.json; deploy.resources.reservations.devices (driver: "
            "nvidia) works without"
        )
        yield Point(about="runtime: nvidia", level="note", says=says, source=GUIDE)
    if not reserved and not legacy and not re.search(r"(?m)^\s*gpus:", thing):
        says = (
            "no GPU is handed in: add deploy.resources.reservations.devices with driver: nvidia and "
            "capabilities: [gpu]"
        )
        yield Point(about="devices", level="wrong", says=says, source=GUIDE)
    if reserved and "capabilities" not in thing and "nvidia.com/gpu" not in thing:
        says = "a device reservation without capabilities: [gpu] is refused"
        yield Point(about="capabilities", level="wrong", says=says, source=GUIDE)


def _of_manifest(thing: str) -> Iterator[Point]:
    """What is particular to Kubernetes."""
    if "nvidia.com/gpu" not in thing:
        says = "no GPU is asked for: resources.limits with nvidia.com/gpu: 1"
        yield Point(about="nvidia.com/gpu", level="wrong", says=says, source=KUBERNETES)
    if "/dev/shm" not in thing and re.search(r"nvidia.com/gpu[\"']?:\s*[\"']?([2-9]|\d\d)", thing):
        says = (
            "several GPUs talk through /dev/shm, which has 64 MB: mount an emptyDir with medium: Memory there"
        )
        yield Point(about="/dev/shm", level="wrong", says=says, source=KUBERNETES)
    if re.search(r"(?m)^\s*name:\s*vllm\s*$", thing) and re.search(r"(?m)^kind:\s*Service", thing):
        says = "a service of this name sets VLLM_PORT to an URL, on which vLLM fails: choose another name"
        yield Point(about="name: vllm", level="wrong", says=says, source="vLLM 0.33.0 envs.py, get_vllm_port")
    guarded = "api-key" in thing or "VLLM_API_KEY" in thing
    if re.search(r"type:\s*(LoadBalancer|NodePort)", thing) and not guarded:
        says = "reachable from outside the cluster, and the server has no key"
        yield Point(about="Service", level="warn", says=says, source=KUBERNETES)


def _command(lines: Sequence[str]) -> list[str]:
    """The words of the first `command:`, on one line, folded or as a list."""
    for at, line in enumerate(lines):
        found = re.match(r"(\s*)(?:command|args):\s*(.*)$", line)
        if not found:
            continue
        if found[2] and found[2] not in (">", "|", ">-", "|-"):
            return _exec_form(found[2])
        words: list[str] = []
        for below in lines[at + 1 :]:
            if (
                below.strip()
                and len(below) - len(below.lstrip()) <= len(found[1])
                and not below.lstrip().startswith("-")
            ):
                break
            item = _LIST.match(below)
            words += text.words(item[1]) if item else text.words(below.strip())
        return words
    return []


def _summary(points: Sequence[Point]) -> str:
    wrong = sum(p.level == "wrong" or p.says.startswith("not in ") for p in points)
    warned = sum(p.level == "warn" for p in points)
    if wrong:
        return f"{wrong} thing{'s' * (wrong > 1)} in it will fail, {warned} to think about."
    return f"Nothing in it fails; {warned} to think about."
