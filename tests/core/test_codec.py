from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.core import Estimate, Host, Plan, Slo, Spread, UsageError, Workload, codec, digest


def plan() -> Plan:
    return Plan(
        model="m",
        checkpoint="/m",
        workload=Workload(concurrency=4),
        slo=Slo(ttft_ms=200),
        engine="onnxruntime",
        scheme="int8",
        format="onnx",
        estimate=Estimate(ttft_ms=Spread(p50=1.5), interval={"ttft_ms": (1.0, 2.0)}),
    )


def test_a_noun_survives_the_journey_through_json(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text(codec.dumps(plan()))
    assert path.read_text().startswith('{\n  "schema": "plan/1",')
    assert codec.load(path, Plan) == plan()


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    path.write_text(codec.dumps(Host()))
    with pytest.raises(UsageError, match=r"holds `host/1`, not `plan/1`"):
        codec.load(path, Plan)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"schema": "host/1", "gpus": 3}', b"\xff\xfe"])
def test_broken_files_are_a_usage_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "host.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="not a valid Host"):
        codec.load(path, Host)


def test_a_file_that_says_nothing_of_its_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"architectures": ["Qwen3ForCausalLM"]}')
    with pytest.raises(UsageError, match=r"holds `something else`, not `host/1`"):
        codec.load(path, Host)


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        codec.load(tmp_path / "none.json", Host)


def test_unknown_fields_are_ignored_so_that_newer_files_can_be_read() -> None:
    assert codec.loads(b'{"schema": "host/1", "os": "Linux", "colour": "red"}', Host) == Host(os="Linux")


def test_schema_names_are_snake_case() -> None:
    assert codec.schema(Plan) == "plan/1"
    assert codec.schema(type("ModelSpec", (), {})) == "model_spec/1"


def test_equal_nouns_have_equal_digests(tmp_path: Path) -> None:
    assert digest.of_noun(plan()) == digest.of_noun(plan())
    assert digest.of_noun(plan()) != digest.of_noun(Host())


NUMBERS = st.integers(0, 1 << 50)


@given(limit=NUMBERS, rate=NUMBERS, share=NUMBERS, end=NUMBERS)
def test_a_whole_number_has_one_digest_however_it_is_written(
    limit: int, rate: int, share: int, end: int
) -> None:
    """Typed fields, values of mappings and of tuples, in nouns within a noun."""

    def made(number: type[int] | type[float]) -> Plan:
        return replace(
            plan(),
            slo=Slo(ttft_ms=number(limit), percentile=number(99)),
            workload=Workload(qps=number(rate), models={"m": number(share)}),
            estimate=Estimate(interval={"ttft_ms": (number(0), number(end))}),
        )

    whole = made(int)
    assert whole == made(float)
    assert digest.of_noun(whole) == digest.of_noun(made(float))
    assert digest.of_noun(whole) == digest.of_noun(codec.loads(codec.dumps(whole), Plan))
    assert digest.of_noun(whole) != digest.of_noun(replace(whole, slo=Slo(ttft_ms=limit + 0.5)))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_equal_floats_have_one_digest(value: float) -> None:
    assert digest.of_noun(Slo(e2e_ms=value)) == digest.of_noun(Slo(e2e_ms=0.0 if value == 0 else value))
    assert (digest.of_noun(Slo(e2e_ms=value)) == digest.of_noun(Slo(e2e_ms=1.5))) == (value == 1.5)


def test_digests_of_nouns_from_files_stay_as_they_were_recorded() -> None:
    text = b'{"schema": "slo/1", "ttft_ms": 200, "percentile": 99.0, "quality": 0.975}'
    recorded = "sha256:5c7227eac0aaab5b00dee09fb35e2ccd1c779a62a1cd9498978a6e69d226fd40"
    assert digest.of_noun(codec.loads(text, Slo)) == recorded


def test_a_folder_s_digest_covers_names_and_contents(tmp_path: Path) -> None:
    seen: set[str] = set()
    for name, text in (("a", "1"), ("a", "2"), ("b", "2")):
        folder = tmp_path / f"{name}{text}"
        folder.mkdir()
        (folder / name).write_text(text)
        seen.add(digest.of_path(folder))
    assert len(seen) == 3
