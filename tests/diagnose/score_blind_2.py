"""Score the second blind set: python -m tests.diagnose.score_blind_2, or with a file to write JSON to.

`blind_2_expected.toml` holds the answer that was judged right by reading each log beside its cause.
"""

import json
import sys
import tomllib
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from model_optimizer.core.diagnosis import Diagnosis
from model_optimizer.diagnose import of_file

HERE = Path(__file__).parent
LOGS = HERE.parent / "data" / "blind-2"
FIRST = HERE.parents[1] / "evidence" / "diagnose" / "blind-2-first-score.json"


@dataclass(frozen=True, kw_only=True)
class Scored:
    """`outcome` is right, missed or wrong; `first` what it was in the first run. `tried`: the log says that
    the usual answer was tried. `seen`: the thread was known before the set was written."""

    log: str
    outcome: str
    got: str | None
    confidence: str | None
    wanted: str | None
    first: str
    tried: bool
    seen: bool


def score() -> list[Scored]:
    expected = tomllib.loads((HERE / "blind_2_expected.toml").read_text())
    first = {case["log"]: case for case in json.loads(FIRST.read_text())["cases"]}
    return [_scored(log, wanted or None, first[f"{log}.log"]) for log, wanted in expected.items()]


def _scored(log: str, wanted: str | None, first: dict[str, object]) -> Scored:
    found: Diagnosis = of_file(LOGS / f"{log}.log")
    primary = found.primary
    got = primary.id if primary else None
    outcome = "right" if got == wanted else "missed" if got is None else "wrong"
    return Scored(
        log=log,
        outcome=outcome,
        got=got,
        confidence=primary.confidence if primary else None,
        wanted=wanted,
        first=str(first["outcome"]),
        tried=bool(first["usual_answer_tried"]),
        seen=bool(first["seen"]),
    )


def summary(found: list[Scored]) -> dict[str, object]:
    outcomes = Counter(s.outcome for s in found)
    return {
        "cases": len(found),
        "right": outcomes["right"],
        "missed": outcomes["missed"],
        "wrong": outcomes["wrong"],
        "wrong_with_confidence_high": sum(s.outcome == "wrong" and s.confidence == "high" for s in found),
        "share_right": round(outcomes["right"] / len(found), 3),
    }


def main() -> None:
    found = score()
    parts = {
        "all": found,
        "thread_not_seen_before": [s for s in found if not s.seen],
        "usual_answer_tried": [s for s in found if s.tried],
    }
    body = {name: summary(part) for name, part in parts.items()}
    for one in found:
        print(f"{one.outcome:<7}{one.log:<36}{one.got or '-'} {one.confidence or ''}")  # noqa: T201
    print(json.dumps(body))  # noqa: T201
    if len(sys.argv) > 1:
        text = json.dumps({"summary": body, "cases": [asdict(one) for one in found]}, indent=1)
        Path(sys.argv[1]).write_text(text + "\n")


if __name__ == "__main__":
    main()
