"""No host that a file can hold breaks the doctor, its screen or the terminal."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from model_optimizer.cli.render_doctor import findings_json, report
from model_optimizer.core import Host, codec, plugins
from model_optimizer.doctor import examine, read_target
from model_optimizer.system.probe import anonymous

CHECKS = plugins.load_all("model_optimizer.doctor.checks")
TARGETS = [read_target(t) for t in ("vllm/vllm-openai:v0.27.1", "tensorrt==11.4", "torch==2.14.0")]
RECORDED = [json.loads(p.read_text()) for p in sorted((Path(__file__).parents[1] / "hosts").glob("*.json"))]
WORDS = st.one_of(
    st.sampled_from(
        ["", "580.95.05", "x86_64", "nvidia", "Linux", "Windows", "3.12", "-1", "0,99", "\x1b[2J", "1.0 x16"]
    ),
    st.text(max_size=8),
)
NUMBERS = st.one_of(st.sampled_from([-1, 0, 1, 8, 1 << 30, 1 << 62]), st.integers(-5, 1 << 40))


@st.composite
def hosts(draw: st.DrawFn) -> Host:
    """A recorded host with some of its values replaced by others of the same kind, or taken out."""
    return msgspec.convert(_shaken(draw, draw(st.sampled_from(RECORDED))), type=Host)


def _shaken(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {
            k: v
            for k, v in value.items()
            if k in ("name", "vendor", "device", "program", "port", "everywhere") or draw(st.integers(0, 19))
        }
        return {k: _shaken(draw, v) for k, v in kept.items()}
    if isinstance(value, list) and len(value) == 2 and all(isinstance(v, int) for v in value):
        return draw(st.sampled_from([value, [0, 0], [99, 9]]))
    if isinstance(value, list):
        return [_shaken(draw, v) for v in value]
    if draw(st.integers(0, 14)) or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return draw(WORDS)
    return draw(NUMBERS) if isinstance(value, int) else value


@settings(max_examples=150, deadline=None)
@given(host=hosts(), target=st.sampled_from([None, *TARGETS]))
def test_any_host_is_examined_shown_and_saved(host: Host, target: Any) -> None:
    found = examine(host, CHECKS, target)
    assert len(found) >= 70
    for finding in found:
        assert "has a bug" not in finding.message, (finding.check, finding.evidence)
        assert finding.status not in ("fail", "warn") or (finding.hint and finding.evidence), finding.check
    for everything in (False, True):
        text = report(host, found, everything=everything)
        assert all(c.isprintable() or c == "\n" for c in text)
    assert json.loads(findings_json(found, codec.to_builtins(host)))
    assert codec.loads(codec.dumps(anonymous(host, names=("alice",))), Host)


def test_every_field_of_a_host_survives_a_file() -> None:
    for raw in RECORDED:
        host = msgspec.convert(raw, type=Host)
        assert codec.loads(codec.dumps(host), Host) == host
        assert anonymous(host, names=()) == host, "a recorded host holds nothing to take out"
    assert {f.name for f in dataclasses.fields(Host)} <= {k for raw in RECORDED for k in raw} | {"unread"}
