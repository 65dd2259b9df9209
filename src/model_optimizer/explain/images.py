"""What is in a container image, by its name and tag."""

import re
from dataclasses import dataclass

from model_optimizer.core import UsageError
from model_optimizer.core.explanation import Point
from model_optimizer.facts import flags, vllm
from model_optimizer.facts.versions import key


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """`cuda` and `vllm` are the versions inside, None where the name does not tell. `pinned` is a better
    tag."""

    repository: str
    tag: str | None = None
    cuda: str | None = None
    vllm: str | None = None
    pinned: str | None = None
    points: tuple[Point, ...] = ()


def of_image(name: str) -> Image:
    """The image that a name means. Nothing is pulled."""
    bare = name.split("@")[0]
    repository, colon, tag = bare.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = bare, ""
    repository = repository.removeprefix("docker.io/")
    if repository == "vllm/vllm-openai":
        return _vllm(repository, tag)
    if repository in ("nvidia/cuda", "nvcr.io/nvidia/cuda"):
        found = re.match(r"(\d+\.\d+(?:\.\d+)?)", tag)
        return Image(repository=repository, tag=tag or None, cuda=found[1] if found else None)
    if repository.startswith("vllm/vllm-cu"):
        says = "no such image was found; vLLM publishes vllm/vllm-openai"
        point = Point(about=name, level="wrong", says=says, source="facts/compatibility/vllm_notes")
        return Image(repository=repository, tag=tag or None, points=(point,))
    return Image(repository=repository, tag=tag or None)


def _vllm(repository: str, tag: str) -> Image:
    newest = vllm.versions()[-1]
    if tag in ("", "latest", "nightly"):
        says = (
            f"the tag moves: pin one, such as {repository}:v{newest}, so that a restart brings no new release"
        )
        point = Point(about=f"{repository}:{tag or 'latest'}", level="warn", says=says)
        release = vllm.release(newest)
        return Image(
            repository=repository,
            tag=tag or None,
            cuda=release.image.cuda or release.cuda,
            pinned=f"{repository}:v{newest}",
            points=(point,),
        )
    found = re.fullmatch(r"v(\d+\.\d+\.\d+(?:\.post\d+)?)(?:-(cu\d+|x86_64|aarch64))?.*", tag)
    if not found:
        return Image(repository=repository, tag=tag)
    version = found[1]
    points = list(_exists(version, repository))
    try:
        release = vllm.release(version)
    except UsageError:
        return Image(repository=repository, tag=tag, points=tuple(points))
    cuda = release.image.cuda or release.cuda
    if found[2] and found[2].startswith("cu"):
        cuda = f"{found[2][2:4]}.{found[2][4:]}"
    return Image(repository=repository, tag=tag, cuda=cuda, vllm=version, points=tuple(points))


def _exists(version: str, repository: str) -> list[Point]:
    note = next((n for n in vllm.notes() if n.subject == version), None)
    if note is not None:
        return [Point(about=f"{repository}:v{version}", level="wrong", says=note.note, source=note.source[0])]
    newest = vllm.versions()[-1]
    if key(version) > key(newest):
        says = f"newer than {newest}, the newest that is known here"
        return [Point(about=f"{repository}:v{version}", level="note", says=says)]
    if version not in flags.versions("vllm"):
        says = "this patch release was not read; the nearest one stands for it"
        return [Point(about=f"{repository}:v{version}", level="note", says=says)]
    return []
