"""A file or folder that a tool made, and from what."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeBy:
    """The tool (its file name), the version of the library behind it, and the plan it followed."""

    tool: str
    version: str
    plan_digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """`digest` is `sha256:...` of the content; `made_from` is the digest of what it was made from."""

    path: str
    format: str
    scheme: str
    task: str
    bytes: int
    digest: str
    made_from: str | None = None
    made_by: MadeBy | None = None
    notes: tuple[str, ...] = ()
