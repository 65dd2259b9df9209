"""The replay of searches on recorded grids: its arithmetic, and that ours needs fewer trials than chance."""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
HEAD = {
    "case": "made up",
    "knobs": [["threads", ["1", "2", "4"], "2"], ["spin", ["0", "1"], "0"]],
}


@pytest.fixture
def replay(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "tune_replay"))
    import run  # type: ignore[import-not-found]

    yield run
    for name in ("run", "table"):
        del sys.modules[name]


def rows() -> list[dict[str, object]]:
    """Two passes that differ by a factor of 1.21; one configuration never starts."""
    found: list[dict[str, object]] = []
    for turn, factor in enumerate((1 / 1.1, 1.1)):
        for threads in ("1", "2", "4"):
            for spin in ("0", "1"):
                settings = {"threads": threads, "spin": spin}
                at = f"2026-11-30T0{turn}:0{threads}:0{spin}"
                row: dict[str, object] = {"pass": turn, "settings": settings, "at": at}
                worth = {"1": 1.0, "2": 1.0, "4": 2.0}[threads] * (1 if spin == "0" else 0.5)
                if settings == {"threads": "1", "spin": "1"}:
                    row["failed"] = "no room"
                else:
                    row["value"], row["default_value"] = 50 * worth * factor, 50.0
                found.append(row)
    return found


def test_a_table_is_the_mean_of_its_passes(replay: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "grid.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (HEAD, *rows())))
    table = replay.read(path)
    assert len(table.candidates) == 6
    assert table.best == pytest.approx(2.0)
    assert table.worth({"spin": "1", "threads": "4"}) == pytest.approx(1.0)
    assert table.worth({"spin": "1", "threads": "1"}) == 0.0
    # Two values that lie log(1.1) on either side of their mean: its error is in there too.
    assert table.noise == pytest.approx(math.log(1.1) * math.sqrt(2))
    noise = replay.Noise(table, 0)
    assert noise.measure({"spin": "1", "threads": "1"}) is None
    drawn = {round(noise.measure({"spin": "0", "threads": "4"}) - math.log(2), 6) for _ in range(50)}
    assert drawn == {round(sign * table.noise, 6) for sign in (-1, 1)}


def test_the_default_is_taken_from_its_measurements_near_in_time(replay: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "grid.jsonl"
    changed = rows()
    changed[3]["default_value"] = 5000.0  # one measurement of the default that went wrong
    path.write_text("".join(json.dumps(line) + "\n" for line in (HEAD, *changed)))
    assert replay.read(path).best == pytest.approx(2.0)


def test_smoothing_takes_luck_out_and_leaves_effects(replay: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "grid.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (HEAD, *rows())))
    table = replay.read(path)
    smooth = replay.smoothed(table)
    assert smooth.noise == pytest.approx(table.noise)
    assert smooth.worth({"spin": "1", "threads": "1"}) == 0.0
    order = sorted(table.candidates, key=table.worth)
    assert sorted(smooth.candidates, key=smooth.worth)[-1] == order[-1]


def test_a_part_of_a_table_leaves_one_knob_out(replay: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "grid.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (HEAD, *rows())))
    half = replay.part(replay.read(path), "spin", "1")
    assert [k.name for k in half.knobs] == ["threads"]
    assert half.best == pytest.approx(1.0)


@pytest.mark.parametrize("method", ["ours", "random", "tpe", "grid"])
def test_every_method_begins_with_the_default_and_ends(
    replay: ModuleType, tmp_path: Path, method: str
) -> None:
    path = tmp_path / "grid.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (HEAD, *rows())))
    table = replay.read(path)
    assert next(iter(replay.METHODS[method](table, 1))) == table.default
    course = replay.played(replay.METHODS[method], table, 1)
    assert 2 <= course.trials <= 7
    assert course.regret[20] == pytest.approx(0.0) or method == "tpe"


def test_ours_needs_fewer_trials_than_chance_on_the_recorded_grids(replay: ModuleType) -> None:
    tables = [replay.read(path) for path in sorted(replay.EVIDENCE.glob("*.jsonl.gz"))]
    assert tables and all(len(table.candidates) >= 60 for table in tables)
    for table in tables:
        mine = replay.summary([replay.played(replay.ours, table, s) for s in range(5)])
        chance = replay.summary([replay.played(replay.by_chance, table, s) for s in range(101)])
        assert mine["trials"]["median"] < chance["trials"]["median"], table.name
