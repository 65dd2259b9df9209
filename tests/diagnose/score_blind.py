"""Score `mopt diagnose` on the blind set: python -m tests.diagnose.score_blind, or with a file to write JSON to.

Right, missed and wrong are those of blind/README.md. A case whose thread is a source of a signature is left
out of the score and reported apart.
"""

import json
import sys
import tomllib
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from model_optimizer.diagnose import of_file, signature

HERE = Path(__file__).parent
BLIND = HERE / "blind"


@dataclass(frozen=True, kw_only=True)
class Scored:
    """`outcome` is right, missed or wrong. `seen` when its thread is a source of a signature."""

    file: str
    outcome: str
    got: str | None
    confidence: str | None
    wanted: list[str]
    abstain: bool
    seen: bool


def score() -> list[Scored]:
    mapping = tomllib.loads((HERE / "blind_mapping.toml").read_text())
    sources = {source for one in signature.load() for source in one.body.source}
    found: list[Scored] = []
    for case in tomllib.loads((BLIND / "cases.toml").read_text())["case"]:
        primary = of_file(BLIND / case["file"]).primary
        wanted = mapping.get(case["file"].split("-")[0], [])
        if case["abstain"]:
            outcome = "right" if primary is None else "wrong"
        elif primary is None:
            outcome = "missed"
        else:
            outcome = "right" if primary.id in wanted else "wrong"
        found.append(
            Scored(
                file=case["file"],
                outcome=outcome,
                got=primary.id if primary else None,
                confidence=primary.confidence if primary else None,
                wanted=wanted,
                abstain=case["abstain"],
                seen=case["source"] in sources,
            )
        )
    return found


def summary(found: list[Scored]) -> dict[str, object]:
    counted = [s for s in found if not s.seen]
    outcomes = Counter(s.outcome for s in counted)
    return {
        "cases": len(counted),
        "right": outcomes["right"],
        "missed": outcomes["missed"],
        "wrong": outcomes["wrong"],
        "wrong_with_confidence_high": sum(s.outcome == "wrong" and s.confidence == "high" for s in counted),
        "share_right": round(outcomes["right"] / len(counted), 3),
        "left_out": len(found) - len(counted),
        "right_of_left_out": sum(s.outcome == "right" for s in found if s.seen),
    }


def main() -> None:
    found = score()
    for one in found:
        note = " (left out: its thread is a source)" if one.seen else ""
        print(f"{one.outcome:<7}{one.file:<42}{one.got or '-'} {one.confidence or ''}{note}")  # noqa: T201
    print(json.dumps(summary(found)))  # noqa: T201
    if len(sys.argv) > 1:
        body = {"summary": summary(found), "cases": [asdict(one) for one in found]}
        Path(sys.argv[1]).write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    main()
