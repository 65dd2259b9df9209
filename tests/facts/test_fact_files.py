"""Every fact file that ships: each row has a source, known keys only, and units that can be right.

Whoever adds a file gets it checked here without touching a test.
"""

import dataclasses
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from model_optimizer.facts import (
    architectures,
    compressed_tensors,
    decisions,
    drivers,
    engine_limits,
    flags,
    folklore,
    formats,
    glossary,
    gpus,
    memory,
    metrics,
    models,
    prices,
    read,
    recipes,
    speed,
    tensorrt,
    tensorrt_llm,
    tune,
    vllm,
    vllm_checkpoints,
)
from model_optimizer.facts.fact import Fact

FOLDER = read.ROOT
COMPATIBILITY = FOLDER / "compatibility"

# What a file holds: the kind of its only row, or the kind of each `[[table]]`.
FOLDERS: dict[Path, type[Fact]] = {
    FOLDER / "speed/kernels": speed.Generation,
    FOLDER / "speed/engines": speed.EngineSpeed,
    FOLDER / "gpus": gpus.GpuFact,
    COMPATIBILITY / "vllm": vllm.VllmRelease,
    COMPATIBILITY / "tensorrt": tensorrt.TensorrtRelease,
    COMPATIBILITY / "tensorrt_rtx": tensorrt.TensorrtRtxRelease,
    COMPATIBILITY / "tensorrt_llm": tensorrt_llm.TensorrtLlmRelease,
    COMPATIBILITY / "formats": formats.FormatFact,
    FOLDER / "memory" / "vllm": memory.VllmMemory,
    FOLDER / "decisions" / "engines": decisions.EngineOutline,
    FOLDER / "prices": prices.Prices,
    FOLDER / "recipes": recipes.Recipe,
    COMPATIBILITY / "engine_limits": engine_limits.EngineLimits,
}
TABLES: dict[Path, dict[str, type[Fact]]] = {
    COMPATIBILITY / "cuda.toml": {"toolkit": drivers.CudaToolkit},
    COMPATIBILITY / "drivers.toml": {
        "minimum": drivers.MinimumDriver,
        "branch": drivers.DriverBranch,
        "generation": drivers.Generation,
        "rule": drivers.DriverRule,
    },
    COMPATIBILITY / "vllm_flags.toml": {"flag": vllm.FlagFact},
    COMPATIBILITY / "vllm_checkpoints.toml": {
        "methods": vllm_checkpoints.Methods,
        "refusal": vllm_checkpoints.Refusal,
    },
    COMPATIBILITY / "vllm_metrics.toml": {"metric": vllm.MetricFact},
    **{
        FOLDER / f"metrics/{e}.toml": {"metric": metrics.Metric, "page": metrics.Page}
        for e in metrics.engines()
    },
    FOLDER / "metrics/xids.toml": {"xid": metrics.Xid},
    COMPATIBILITY / "vllm_notes.toml": {"note": vllm.NoteFact},
    COMPATIBILITY / "tensorrt_rules.toml": {"rule": tensorrt.TensorrtRule},
    COMPATIBILITY / "tensorrt_llm_rules.toml": {"rule": tensorrt_llm.TensorrtLlmRule},
    FOLDER / "memory" / "contexts.toml": {
        "context": memory.Context,
        "workspace": memory.Workspace,
        "graphs": memory.Graphs,
        "legacy": memory.Legacy,
        "padding": memory.Padding,
        "visible": memory.Visible,
    },
    FOLDER / "models" / "aliases.toml": {"alias": models.ModelAlias},
    FOLDER / "speed/accuracy.toml": {"accuracy": speed.Accuracy},
    FOLDER / "speed/tables.toml": {"table": speed.TableRow},
    FOLDER / "decisions/tree.toml": {"node": decisions.Node, "leaf": decisions.Leaf},
    FOLDER / "compatibility/compressed_tensors.toml": {"release": compressed_tensors.CompressedTensors},
    FOLDER / "decisions/quality.toml": {"scheme": decisions.Quality},
    FOLDER / "decisions/rules.toml": {"rule": decisions.Rule},
    FOLDER / "decisions/ladder.toml": {"rung": decisions.Rung},
    FOLDER / "decisions/apis.toml": {"api": decisions.Api},
    FOLDER / "decisions/speculation.toml": {"speculation": decisions.Speculation},
}
TABLES |= {path: {"claim": folklore.Claim} for path in (FOLDER / "folklore").glob("*.toml")}
TABLES |= {path: {"term": glossary.Term} for path in (FOLDER / "glossary").glob("*.toml")}
TABLES |= {path: {"meaning": flags.Meaning} for path in (FOLDER / "flags/meanings").glob("*.toml")}
TABLES |= {path: {"knob": tune.KnobFact} for path in (FOLDER / "tune").glob("*.toml")}
SINGLE = {
    FOLDER / "speed/shared.toml": speed.Shared,
    FOLDER / "speed/llama_cpp.toml": speed.LlamaCpp,
}
ALL = sorted([*FOLDER.rglob("*.toml"), *FOLDER.rglob("*.json")])
# Fields that the loader fills in.
GIVEN_BY_LOADER = {"asked", "exact"}


def rows_of(path: Path) -> list[tuple[dict[str, Any], type[Fact]]]:
    """The raw rows of a file, each with the kind it is read as; nested rows included."""
    if path.suffix == ".json" and path.parent.parent == FOLDER / "flags":
        return [(json.loads(path.read_text()), flags.Difference)]
    if path.suffix == ".json":
        kind = models.ModelFact if path.parent.name == "models" else architectures.Architectures
        return [(json.loads(path.read_text()), kind)]
    raw = tomllib.loads(path.read_text())
    if path in TABLES:
        assert set(raw) <= set(TABLES[path]), f"{path.name} has a table that nothing reads"
        return [(row, TABLES[path][name]) for name, rows in raw.items() for row in rows]
    if path in SINGLE:
        return [(raw, SINGLE[path])]
    assert path.parent in FOLDERS, (
        f"nothing reads {path.relative_to(FOLDER)}: list it at the top of this test"
    )
    kind = FOLDERS[path.parent]
    nested = [(row, formats.VllmSupport) for row in raw.get("vllm", [])] if kind is formats.FormatFact else []
    nested += [(row, speed.Overhead) for row in raw.get("release", []) if kind is speed.EngineSpeed]
    return [(raw, kind), *nested]


@pytest.fixture(params=sorted({path.parent for path in ALL}), ids=lambda p: str(p.relative_to(FOLDER)))
def rows(request: pytest.FixtureRequest) -> list[tuple[str, dict[str, Any], type[Fact]]]:
    """The rows of all files in one folder: name of the file, raw row, kind."""
    paths = [path for path in ALL if path.parent == request.param]
    return [(path.name, row, kind) for path in paths for row, kind in rows_of(path)]


Rows = list[tuple[str, dict[str, Any], type[Fact]]]


def test_each_row_has_a_source(rows: Rows) -> None:
    for name, row, _ in rows:
        source = row.get("source")
        assert isinstance(source, list), f"a row of {name} has no source"
        assert source, f"a row of {name} has no source"
        assert all(isinstance(s, str) and len(s) > 5 for s in source), f"{name}: {source}"


def test_each_key_is_read(rows: Rows) -> None:
    for name, row, kind in rows:
        given = set() if kind is folklore.Claim else GIVEN_BY_LOADER
        known = {field.name for field in dataclasses.fields(kind)} - given
        assert set(row) <= known, f"{name}: nothing reads {set(row) - known}"


def test_marks_name_fields_that_are_there(rows: Rows) -> None:
    for name, row, _ in rows:
        marked = {*row.get("unchecked", []), *row.get("derived", [])}
        assert marked <= set(row), f"{name} marks {marked - set(row)}, which it does not have"


def test_low_confidence_is_marked(rows: Rows) -> None:
    for name, row, _ in rows:
        if row.get("confidence") == "low":
            nested = any(not part.get("checked", True) for part in row.get("vllm", []))
            marked = nested or not row.get("checked", True) or row.get("unchecked")
            assert marked, f"{name}: say what is unchecked"


def test_sizes_and_rates_are_whole_and_positive(rows: Rows) -> None:
    for name, row, kind in rows:
        for key, value in numbers(row, kind):
            if key.endswith(("_bytes", "_bytes_per_s")):
                assert isinstance(value, int), f"{name}: {key} is not a whole number"
                assert value == 0 or value > 100_000, f"{name}: {key} = {value} is not in bytes"
            if key.endswith("_w"):
                assert 0 < value < 5000, f"{name}: {key} = {value} W"


def test_compute_capabilities_have_two_numbers(rows: Rows) -> None:
    for name, row, _ in rows:
        for capability in capabilities(row):
            major, minor = capability
            assert 3 <= major <= 13, f"{name}: {capability}"
            assert 0 <= minor <= 9, f"{name}: {capability}"


def test_dates_are_dates(rows: Rows) -> None:
    for name, row, _ in rows:
        for key in ("date", "end_of_life"):
            assert re.fullmatch(r"20\d\d(-\d\d){0,2}", row.get(key, "2026")), f"{name}: {row[key]}"


def numbers(row: dict[str, Any], kind: type[Fact]) -> list[tuple[str, int | float]]:
    """The numbers of a row and of its batch tiers; a model's config is not ours to judge."""
    if kind in (models.ModelFact, models.ModelAlias):
        return []
    parts = [row, *row.get("batch", [])]
    return [(k, v) for part in parts for k, v in part.items() if isinstance(v, int | float)]


def capabilities(value: object, key: str = "") -> list[list[int]]:
    """All values whose key says that they are a compute capability, or a list of them."""
    singles = ("compute_capability", "_from", "_until", "hardware_from")
    if isinstance(value, dict):
        inner = {f"{key}.{k}" if key == "precisions" else k: v for k, v in value.items()}
        return [c for k, v in inner.items() for c in capabilities(v, k)]
    if isinstance(value, list) and (key.endswith("compute_capabilities") or key == "hardware_not_on"):
        return list(value)
    if isinstance(value, list) and (key.endswith(singles) or key.startswith("precisions.")):
        return [value]
    if isinstance(value, list) and key in ("vllm", "batch"):
        return [c for item in value for c in capabilities(item, "")]
    return []


def test_a_row_without_a_source_does_not_load(tmp_path: Path) -> None:
    row = 'cuda_major = 99\ndriver_linux = "900"\n'
    (tmp_path / "none.toml").write_text(row)
    (tmp_path / "empty.toml").write_text(row + "source = []\n")
    for name in ("none.toml", "empty.toml"):
        with pytest.raises(ValueError, match=f"{name} is broken.*source"):
            read.toml(tmp_path / name, drivers.MinimumDriver)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("this is not TOML")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(ValueError, match=r"x\.toml is broken"):
        read.toml(tmp_path / "x.toml", drivers.MinimumDriver)
    with pytest.raises(ValueError, match=r"x\.json is broken"):
        read.json(tmp_path / "x.json", models.ModelFact)


def test_a_mark_belongs_to_the_row_or_to_a_field() -> None:
    row = drivers.MinimumDriver(cuda_major=1, driver_linux="1", source=("a",), unchecked=("driver_linux",))
    assert row.mark("driver_linux") == "unchecked"
    assert row.mark("cuda_major") == ""
    whole = dataclasses.replace(row, checked=False, unchecked=())
    assert whole.mark("cuda_major") == "unchecked"
    computed = dataclasses.replace(row, unchecked=(), derived=("cuda_major",))
    assert computed.mark("cuda_major") == "derived"


def test_no_text_names_a_machine_or_a_package_host() -> None:
    assert len(ALL) > 200
    for path in ALL:
        text = path.read_text()
        if path.is_relative_to(FOLDER / "flags") or path.is_relative_to(FOLDER / "folklore"):
            continue  # defaults of engines and claims of people: some name a folder of any machine
        for word in ("/tmp/", "/home/", "/root/"):
            assert word not in text, f"{path.name} has {word}"
