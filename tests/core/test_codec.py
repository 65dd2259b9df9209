from pathlib import Path

import pytest

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


def test_a_folder_s_digest_covers_names_and_contents(tmp_path: Path) -> None:
    seen: set[str] = set()
    for name, text in (("a", "1"), ("a", "2"), ("b", "2")):
        folder = tmp_path / f"{name}{text}"
        folder.mkdir()
        (folder / name).write_text(text)
        seen.add(digest.of_path(folder))
    assert len(seen) == 3
