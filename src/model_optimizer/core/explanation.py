"""What a word, a claim or an old command line means today, and what changed between two releases."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["option", "metric", "variable", "scheme", "term", "claim", "command", "container", "code"]
Level = Literal["wrong", "warn", "changed", "note", "fine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One remark about one part of what was asked.

    `wrong` does not work, `warn` works and hurts or endangers, `changed` is written otherwise today, `note`
    is worth knowing, `fine` was looked at and holds.
    """

    about: str
    level: Level
    says: str
    source: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Releases of an engine in which a name looks the same, both ends included.

    `until` is None when the newest release read still has it. `default` is as a user would write it, None
    when it was not read.
    """

    engine: str
    since: str
    until: str | None = None
    default: str | None = None
    deprecated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer. `asked` is what was asked, with secrets masked and control characters taken out.

    `verdict` (true, false, outdated, depends, unverifiable) is there for claims. `history` and `choices` are
    for names that releases have or had. `today` holds commands that are valid for `today_for`, in order;
    None when there is nothing to translate. `near` are other things that may have been meant.
    """

    asked: str
    kind: Kind
    title: str
    means: tuple[str, ...] = ()
    verdict: str | None = None
    history: tuple[Stretch, ...] = ()
    choices: tuple[str, ...] = ()
    points: tuple[Point, ...] = ()
    today: tuple[str, ...] = ()
    today_for: str | None = None
    do: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    near: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One name that differs between two releases. `before` and `after` are defaults (or None)."""

    name: str
    section: Literal["options", "variables", "metrics", "settings"]
    before: str | None = None
    after: str | None = None
    means: str | None = None
    use_instead: str | None = None
    speed: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What an upgrade changes. `speed` are the changes that can make a server slower or faster."""

    engine: str
    before: str
    after: str
    added: tuple[Change, ...] = ()
    removed: tuple[Change, ...] = ()
    deprecated: tuple[Change, ...] = ()
    defaults: tuple[Change, ...] = ()
    choices: tuple[Change, ...] = ()
    news: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
