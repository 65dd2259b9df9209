"""What `--for` names (an image, a package with its version, a Dockerfile), and what it needs of a machine."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from model_optimizer.core import MoptError, UsageError
from model_optimizer.core.target import Need, Target
from model_optimizer.facts import drivers, tensorrt, tensorrt_llm, vllm
from model_optimizer.facts.versions import key
from model_optimizer.system import files

_Release = TypeVar("_Release")
_FILE_BYTES = 1 << 20
_PACKAGE = re.compile(r"([A-Za-z][A-Za-z0-9._-]*)(?:\[[\w,-]*\])?(?:==([0-9][\w.+-]*))?")
_IMAGE = re.compile(r"(?:[\w.-]+(?::\d+)?/)*[\w.-]+(?::[\w.-]+)?(?:@sha256:[0-9a-f]{64})?")
_CUDA_WORD = re.compile(r"cu(?:da)?-?(\d{2})\.?(\d)(?!\d)")
_INSTALL = re.compile(r"\bpip3?\b(?:\s+-\S+)*\s+install\b([^&|;]*)")
_WORD = re.compile(r"""["']?([A-Za-z][\w.-]*(?:\[[\w,-]*\])?==[0-9][\w.+-]*)["']?""")
_EXAMPLES = ("write for example vllm==0.33.0, vllm/vllm-openai:v0.27.1, tensorrt==11.4 or ./Dockerfile",)


def read(text: str) -> Target:
    """UsageError when it is nothing of the kind."""
    path = files.expanded(text)
    name = path.name.lower()
    named_so = name.startswith(("dockerfile", "containerfile")) or name.endswith(".dockerfile")
    if named_so or text.startswith(("./", "../", "/", "~")):
        return _of_file(path, text)
    need = _need(text)
    if need is None:
        raise UsageError(f"`{text}` is no image, package or Dockerfile that is known here", hint=_EXAMPLES)
    return Target(asked=text, needs=(need,))


def _need(text: str) -> Need | None:
    """`name==version`, a bare known name, or an image; None when nothing is known of it."""
    package = _PACKAGE.fullmatch(text)
    if package and (found := _PRODUCTS.get(_canonical(package[1]))):
        return found(text, package[2], "package")
    if (package and package[2]) or not _IMAGE.fullmatch(text):
        return None
    plain = text.partition("@")[0]
    name, _, tag = plain.rpartition(":") if ":" in plain.rpartition("/")[2] else (plain, "", "")
    return _image(text, name.removeprefix("docker.io/"), tag or None)


def _image(text: str, name: str, tag: str | None) -> Need | None:
    for ending, make in _IMAGES.items():
        if name == ending or name.endswith(f"/{ending}"):
            return make(text, tag, "image")
    if cuda := _cuda(tag):
        return _with_driver(Need(asked=text, kind="image", product=name, cuda=cuda, source=("its tag",)))
    if "/" not in name and not tag:
        return None
    said = tuple(row.note for row in vllm.notes() if row.subject == name)
    why = "the facts know nothing of this image: read its release notes for the driver that it needs"
    return Need(asked=text, kind="image", product=name, exact=False, notes=said or (why,))


def _vllm(text: str, version: str | None, kind: str) -> Need:
    number, said = _number(version)
    release, exact, notes = _nearest(number, vllm.versions(), vllm.release)
    cuda = _cuda(version) or (release.cuda if release else None)
    if kind == "image" and release and not _cuda(version):
        cuda = release.image.cuda or cuda
    own = tuple(n.note for n in vllm.notes() if n.subject == number)
    return _with_driver(
        Need(
            asked=text,
            kind="image" if kind == "image" else "package",
            product="vllm",
            version=number,
            exact=exact and said,
            nearest=release.version if release else None,
            cuda=cuda,
            minimum_capability=release.minimum_compute_capability if release else None,
            compute_capabilities=release.image.compute_capabilities if release else None,
            ptx=bool(release and release.image.ptx),
            python=release.python if release and kind != "image" else None,
            pins={"torch": release.torch} if release else {},
            platforms=("Linux",),
            notes=(*notes, *own),
            source=release.source if release else (),
        )
    )


def _tensorrt(text: str, version: str | None, kind: str) -> Need:
    del kind
    number, said = _number(version)
    release, exact, notes = _nearest(number, tensorrt.versions(), tensorrt.release)
    package = (release.python_package or "") if release else ""
    major = re.search(r"cu(\d{2})", text) or re.search(r"cu(\d{2})", package)
    known = [c for c in (release.cuda or () if release else ()) if major and c.startswith(major[1])]
    return _with_driver(
        Need(
            asked=text,
            kind="package",
            product="tensorrt",
            version=number,
            exact=exact and said,
            nearest=release.version if release else None,
            cuda=known[-1] if known else (major[1] if major else None),
            minimum_capability=release.minimum_compute_capability if release else None,
            maximum_capability=release.maximum_compute_capability if release else None,
            compute_capabilities=release.compute_capabilities if release else None,
            notes=notes,
            source=release.source if release else (),
        )
    )


def _tensorrt_rtx(text: str, version: str | None, kind: str) -> Need:
    del kind
    number, said = _number(version)
    release, exact, notes = _nearest(number, tensorrt.rtx_versions(), tensorrt.rtx_release)
    return Need(
        asked=text,
        kind="package",
        product="tensorrt-rtx",
        version=number,
        exact=exact and said,
        nearest=release.version if release else None,
        compute_capabilities=release.compute_capabilities if release else None,
        platforms=tuple(text.partition(" ")[0] for text in release.platforms) if release else None,
        notes=notes,
        source=release.source if release else (),
    )


def _tensorrt_llm(text: str, version: str | None, kind: str) -> Need:
    number, said = _number(version)
    release, exact, notes = _nearest(number, tensorrt_llm.versions(), tensorrt_llm.release)
    listed = re.findall(r"\b\d{1,2}\.\d\b", release.gpus) if release else []
    capabilities = tuple(sorted((int(a), int(b)) for a, b in (v.split(".") for v in listed)))
    return _with_driver(
        Need(
            asked=text,
            kind="image" if kind == "image" else "package",
            product="tensorrt-llm",
            version=number,
            exact=exact and said,
            nearest=release.version if release else None,
            cuda=release.cuda if release else None,
            compute_capabilities=capabilities or None,
            pins={"torch": release.torch} if release and release.torch else {},
            platforms=("Linux",),
            notes=(*notes, *_in_words(release.gpus if release and not capabilities else "")),
            source=release.source if release else (),
        )
    )


def _in_words(gpus: str) -> tuple[str, ...]:
    return (f"it names these GPUs: {gpus}",) if gpus else ()


def _torch(text: str, version: str | None, kind: str) -> Need:
    """The CUDA of a plain wheel is told by a vLLM release that pins it; a local part says it itself."""
    number, _ = _number(version)
    cuda = _cuda(version)
    rows = [vllm.release(v) for v in vllm.versions()] if number and not cuda else []
    row = next((r for r in reversed(rows) if r.torch == number), None)
    return _with_driver(
        Need(
            asked=text,
            kind="image" if kind == "image" else "package",
            product="torch",
            version=number,
            exact=bool(cuda or row),
            nearest=number if cuda or row else None,
            cuda=cuda or (row.cuda if row else None),
            source=(f"vLLM {row.version} is built with it",) if row else ("its version",) if cuda else (),
        )
    )


def _cuda_image(text: str, version: str | None, kind: str) -> Need:
    del kind
    number, _ = _number(version)
    return _with_driver(
        Need(
            asked=text,
            kind="image",
            product="cuda",
            version=number,
            cuda=number,
            nearest=number,
            exact=number is not None,
            source=("its tag",),
        )
    )


def _sglang(text: str, version: str | None, kind: str) -> Need:
    cuda = _cuda(version)
    number, _ = _number(version)
    return _with_driver(
        Need(
            asked=text,
            kind="image" if kind == "image" else "package",
            product="sglang",
            version=number,
            exact=cuda is not None,
            cuda=cuda,
            platforms=("Linux",),
            notes=() if cuda else ("the facts do not say which CUDA this release is built with",),
            source=("its tag",) if cuda else (),
        )
    )


_Make = Callable[[str, str | None, str], Need]
_PRODUCTS: Mapping[str, _Make] = {
    "vllm": _vllm, "tensorrt": _tensorrt, "tensorrt-cu12": _tensorrt, "tensorrt-cu13": _tensorrt,
    "tensorrt-rtx": _tensorrt_rtx, "tensorrt-llm": _tensorrt_llm, "torch": _torch, "sglang": _sglang,
}  # fmt: skip
_IMAGES: Mapping[str, _Make] = {
    "vllm/vllm-openai": _vllm, "tensorrt-llm/release": _tensorrt_llm, "pytorch/pytorch": _torch,
    "nvidia/cuda": _cuda_image, "lmsysorg/sglang": _sglang,
}  # fmt: skip

_KNOWN = frozenset({*_PRODUCTS, "cuda"})


def _of_file(path: Path, asked: str) -> Target:
    try:
        with path.open("rb") as stream:
            content = stream.read(_FILE_BYTES + 1)
    except OSError as error:
        why = (error.strerror or str(error),)
        raise UsageError(f"`{path}` cannot be read", cause=why, hint=_EXAMPLES) from error
    if len(content) > _FILE_BYTES or b"\0" in content:
        raise UsageError(f"`{path}` is not a Dockerfile", hint=("it is too large, or not text",))
    return of_dockerfile(content.decode("utf-8", errors="replace"), asked)


def of_dockerfile(text: str, asked: str) -> Target:
    """A need for each base image and each package that pip installs with `==`. UsageError without a FROM."""
    lines = re.sub(r"\\\s*\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)).splitlines()
    given: dict[str, str] = {}
    stages: set[str] = set()
    found: list[Need] = []
    unknown: list[str] = []
    for line in lines:
        word, _, rest = line.strip().partition(" ")
        if word.upper() in ("ARG", "ENV") and "=" in rest:
            name, _, value = rest.strip().partition("=")
            given.setdefault(name.strip(), value.split(" ")[0].strip("\"'"))
        if word.upper() == "FROM":
            image, stage = _from(rest, given)
            if image and image != "scratch" and image.lower() not in stages:
                need = _need(image)
                known = need is not None and need.product in _KNOWN
                found += [need] if need and known else []
                unknown += [] if known else [image]
            stages |= {stage.lower()} if stage else set()
        for install in _INSTALL.findall(line):
            found += [n for n in (_need(w) for w in _WORD.findall(_fill(install, given))) if n]
    if not any(line.strip().upper().startswith("FROM ") for line in lines):
        raise UsageError(f"`{asked}` has no FROM line: it is not a Dockerfile", hint=_EXAMPLES)
    return Target(asked=asked, needs=tuple(found), unknown=tuple(unknown))


def _from(rest: str, given: Mapping[str, str]) -> tuple[str, str]:
    words = [word for word in _fill(rest, given).split() if not word.startswith("--")]
    stage = words[2] if len(words) > 2 and words[1].upper() == "AS" else ""
    return (words[0] if words else ""), stage


def _fill(text: str, given: Mapping[str, str]) -> str:
    """`${NAME}`, `$NAME` and `${NAME:-default}` by what ARG and ENV say."""
    text = re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", lambda m: given.get(m[1], m[2] or m[0]), text)
    return re.sub(r"\$(\w+)", lambda m: given.get(m[1], m[0]), text)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _number(version: str | None) -> tuple[str | None, bool]:
    """The plain version of a tag (`v0.27.1-cu129`, `0.33.0+cu129`), and whether it says one."""
    found = re.match(r"v?(\d+(?:\.\d+)+(?:\.?(?:rc|post|a|b)\d+)?)", version or "")
    return (found[1], True) if found else (None, False)


def _cuda(version: str | None) -> str | None:
    found = _CUDA_WORD.search(version or "")
    return f"{found[1]}.{found[2]}" if found else None


def _nearest(
    number: str | None, known: tuple[str, ...], find: Callable[[str], _Release]
) -> tuple[_Release | None, bool, tuple[str, ...]]:
    """The release that is meant, whether it is known itself, and what to say when it is not."""
    if number is None:
        why = f"no version is named; {known[-1]}, the newest that is known, is taken"
        return find(known[-1]), False, (why,)
    try:
        release = find(number)
    except MoptError:
        return None, False, (f"{number} is older than every release that is known (from {known[0]} on)",)
    exact = bool(getattr(release, "exact", True))
    newer = key(number) > key(known[-1])
    why = "newer than every release that is known" if newer else "not among the releases that are known"
    nearest = str(getattr(release, "version", "?"))
    return release, exact, () if exact else (f"{number} is {why}; {nearest} is taken instead",)


def _with_driver(need: Need) -> Need:
    """The oldest Linux driver for its CUDA, by the rule of one major version."""
    import dataclasses

    if need.cuda is None:
        return need
    try:
        return dataclasses.replace(need, minimum_driver=drivers.minimum(need.cuda).driver_linux)
    except MoptError:
        return need
