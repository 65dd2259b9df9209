"""One step of the script: a file of shell functions, whose first comments say when it is wanted."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
FAMILIES = {"deb": ("ubuntu", "debian", "wsl2"), "rhel": ("rhel9", "rhel10")}
_NAME = re.compile(r"\d\d-(\w+?)(?:\.(\w+))?\.sh")
_HEAD = re.compile(r"# (title|for|warn|only|wait|place): (.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`calls` are checks whose failure calls for it, `warns` those whose warning does too. `only` names
    what else must hold (a container engine, Docker, SELinux, Secure Boot); `wait` what must hold for it to
    be taken along when a check that calls for it could not be asked yet. `body` defines have_NAME, which
    tells whether it is so already, and do_NAME. The number in the file's name is its place in the order.
    """

    name: str
    title: str
    places: tuple[str, ...]
    calls: frozenset[str]
    warns: frozenset[str]
    only: str | None
    wait: str | None
    body: str


@cache
def steps() -> tuple[Step, ...]:
    """All steps, in their order."""
    return tuple(_read(path) for path in sorted((FOLDER / "steps").glob("*.sh")))


def _read(path: Path) -> Step:
    """ValueError for a file that does not say what a step says."""
    named = _NAME.fullmatch(path.name)
    lines = path.read_text("utf-8").splitlines()
    head = [found for found in map(_HEAD.fullmatch, lines) if found]
    said = {found[1]: found[2] for found in head}
    if named is None or "title" not in said or "for" not in said or not (named[2] or "place" in said):
        raise ValueError(
            f"{path.name} is no step: its name or its first comments do not say when it is wanted"
        )
    places = tuple(said["place"].split()) if "place" in said else FAMILIES.get(named[2], (named[2],))
    return Step(
        name=named[1],
        title=said["title"],
        places=places,
        calls=frozenset(said["for"].split()),
        warns=frozenset(said.get("warn", "").split()),
        only=said.get("only"),
        wait=said.get("wait"),
        body="\n".join(lines[len(head) :]).strip(),
    )


def shell(name: str) -> str:
    """A part of every script: prelude, finish, apt or dnf."""
    return (FOLDER / f"{name}.sh").read_text("utf-8").strip()
