"""A finished or interrupted run as one noun: what reports, comparisons and bug reports read."""

from dataclasses import dataclass
from typing import Literal

from .artifact import Artifact
from .host import Host
from .measurement import Measurement
from .model import ModelSpec
from .plan import Plan, Rejection
from .run import Run
from .verdict import Verdict
from .workload import Slo, Workload

Fate = Literal["reference", "winner", "served", "not-served", "failed", "waiting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One engine and scheme, and how far it came. `because` explains a fate that is not self-evident.

    `not-served`: verification failed or stayed undecided. `failed`: a tool or the server failed.
    """

    name: str
    plan: Plan
    artifact: Artifact | None = None
    verdicts: tuple[Verdict, ...] = ()
    measurement: Measurement | None = None
    fate: Fate = "waiting"
    because: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """`candidates` begins with the reference; `rejected` are combinations that were never tried."""

    run: Run
    host: Host
    model: ModelSpec
    workload: Workload
    slo: Slo
    candidates: tuple[Candidate, ...]
    rejected: tuple[Rejection, ...] = ()
