"""Every file in diagnose/signatures: well formed, found by its own example in a noisy log, told from all others."""

import dataclasses
import re
import tomllib
from re import _parser as sre  # pyright: ignore[reportAttributeAccessIssue]

import pytest

from model_optimizer.core.diagnosis import Diagnosis
from model_optimizer.diagnose import correlate, of_text, signature
from model_optimizer.diagnose.match import AFTER, BEFORE
from model_optimizer.diagnose.signature import FOLDER, Body, Head, HostRules, Signature

from .noise import around

SIGNATURES = signature.load()
IDS = {s.id for s in SIGNATURES}
EACH = pytest.mark.parametrize("one", SIGNATURES, ids=lambda s: s.id)
SPOKEN = [s for s in SIGNATURES if not s.head.silent]
FIELDS = {f.name for kind in (Head, Body) for f in dataclasses.fields(kind)}


def test_there_are_enough() -> None:
    assert len(SIGNATURES) >= 200
    assert {s.head.kind for s in SIGNATURES} == {"root", "wrapper", "benign", "contributing", "client"}


@EACH
def test_the_file_is_well_formed(one: Signature) -> None:
    raw = tomllib.loads((FOLDER / f"{one.id}.toml").read_text())
    assert set(raw) <= FIELDS, "unknown fields"
    assert set(raw.get("host", {})) <= {f.name for f in dataclasses.fields(HostRules)}
    assert one.head.layer in signature.LAYERS
    assert one.head.fragments and all(len(f) >= 4 for f in one.head.fragments)
    assert one.body.cause and one.body.fix and one.body.source and one.body.example
    assert set(one.head.beats) <= IDS - {one.id}, "it explains what is not there"
    assert {*one.body.host.supports, *one.body.host.contradicts} <= set(correlate.FACTS)
    assert set(one.body.fix_on) <= {"ubuntu", "debian", "rhel", "wsl2", "windows"}
    named = set(re.findall(r"\{(\w+)\}", one.body.said or "")) | set(one.head.unless_same)
    assert named <= set(re.compile(one.head.regex or "").groupindex), "a value that no group finds"


@EACH
def test_its_regular_expression_cannot_run_away(one: Signature) -> None:
    """No repetition inside a repetition, and few that are long: the window is at most 1,200 characters."""
    if one.head.regex is None:
        return
    long, depth = _repeats(sre.parse(one.head.regex))
    assert depth <= 1, "a long repetition inside a repetition"
    assert long <= 6


def _repeats(tree: object) -> tuple[int, int]:
    """How many repetitions of more than eight there are in one branch, and how deep they nest."""
    count = deepest = 0
    for op, argument in tree:  # pyright: ignore[reportGeneralTypeIssues]
        name = str(op)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            _low, high, inner = argument
            inside, below = _repeats(inner)
            own = int(high > 8)
            count += own + inside
            deepest = max(deepest, own + below)
        elif name == "SUBPATTERN":
            inside, below = _repeats(argument[-1])
            count, deepest = count + inside, max(deepest, below)
        elif name == "BRANCH":
            branches = [_repeats(branch) for branch in argument[1]]
            count += max(c for c, _ in branches)
            deepest = max(deepest, *(d for _, d in branches))
    return count, deepest


def _of_kind(found: Diagnosis, kind: str) -> list[str]:
    return [r.id for r in {"wrapper": found.wrappers, "benign": found.benign}.get(kind, found.contributing)]


@pytest.mark.parametrize("one", SPOKEN, ids=lambda s: s.id)
def test_its_example_in_a_noisy_log_is_recognised_as_this_and_nothing_else(one: Signature) -> None:
    found = of_text(around(*one.body.example.splitlines()))
    if one.head.weight == "symptom":
        assert found.primary is None and [o.id for o in found.others] == [one.id]
    elif one.head.kind in ("root", "client"):
        assert found.primary is not None
        assert (found.primary.id, [o.id for o in found.others]) == (one.id, [])
        assert found.primary.evidence and found.primary.confidence
    else:
        assert found.primary is None
        assert _of_kind(found, one.head.kind) == [one.id]


@pytest.mark.parametrize("one", SPOKEN, ids=lambda s: s.id)
def test_the_case_of_letters_and_a_rank_before_it_do_not_matter(one: Signature) -> None:
    """Wording drifts between versions: at the least in its case, and in what stands before it."""
    lines = [f"[rank3]: {line.swapcase()}" for line in one.body.example.splitlines()]
    found = of_text(lines)
    ids = {r.id for r in (found.primary, *found.others, *found.consequences, *found.wrappers) if r}
    ids |= {r.id for r in (*found.benign, *found.contributing)}
    assert one.id in ids


def test_noise_alone_names_nothing() -> None:
    found = of_text(around())
    assert found.primary is None and not found.unexplained and not found.wrappers
    assert BEFORE + AFTER <= 1200


def test_values_are_told_when_the_line_has_them() -> None:
    unfilled: list[str] = []
    for one in SPOKEN:
        if (
            one.head.kind == "root"
            and one.head.weight != "symptom"
            and (said := one.body.said)
            and not said.startswith("{")
        ):
            primary = of_text(one.body.example.splitlines()).primary
            if primary is None or primary.cause == one.body.cause:
                unfilled.append(one.id)
    assert unfilled == []
