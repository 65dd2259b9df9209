"""Recorded traffic in each of its formats. The lines are made up; their form is that of the public files."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from model_optimizer.bench.options import BenchOptions
from model_optimizer.bench.run import measure
from model_optimizer.bench.target import Target
from model_optimizer.bench.trace import load
from model_optimizer.core import Slo, UsageError, Workload
from model_optimizer.testing.fake_server import Behaviour, FakeServer

MOONCAKE = """\
{"timestamp": 27000, "input_length": 1200, "output_length": 52, "hash_ids": [46, 47, 48]}
{"timestamp": 27050, "input_length": 1100, "output_length": 3, "hash_ids": [46, 47, 49]}
{"timestamp": 30000, "input_length": 700, "output_length": 0, "hash_ids": [46, 50]}
"""
BURSTGPT = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45.5,ChatGPT,1087,230,1317,Conversation log
"""
BURSTGPT_SESSIONS = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,1,0.3,GPT-4,472,0,472,Conversation log
"""
AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-17 00:00:04,110,27
"""
AZURE_2024 = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.017335+00:00,2399,6
"""
OWN = """\
{"timestamp": 0.5, "prompt": "one two three", "output_tokens": 4}
{"timestamp": 0, "prompt": "hello", "max_tokens": 2}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "trace"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (MOONCAKE, "Mooncake", [(0, 1200, 52), (50_000_000, 1100, 3), (3_000_000_000, 700, 1)]),
        (BURSTGPT, "BurstGPT", [(0, 472, 18), (40_500_000_000, 1087, 230)]),
        (BURSTGPT_SESSIONS, "BurstGPT", [(0, 472, 1)]),
        (AZURE, "Azure", [(0, 4808, 10), (52_000_000, 3180, 8), (20_580_020_040_000, 110, 27)]),
        (AZURE_2024, "Azure", [(0, 2162, 5), (7_405_000, 2399, 6)]),
        (OWN, "prompts", [(0, None, 2), (500_000_000, None, 4)]),
    ],
)
def test_formats(tmp_path: Path, text: str, kind: str, expected: list) -> None:
    found = load(written(tmp_path, text))
    assert f"({kind}, {len(expected)} requests, sha256 " in found.name
    for entry, (offset, prompt, output) in zip(found.entries, expected, strict=True):
        assert entry.offset_ns == pytest.approx(offset, abs=1000)
        assert (entry.prompt_tokens, entry.output_tokens) == (prompt, output)


def test_speed_and_a_part(tmp_path: Path) -> None:
    found = load(written(tmp_path, MOONCAKE), speed=2, limit=2)
    assert [entry.offset_ns for entry in found.entries] == [0, 25_000_000]
    assert found.name.endswith("speed 2)")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"timestamp": 1, "input_length": 5}\n{"timestamp": "x"}\n', 2),
        ('{"timestamp": 1, "input_length": -5}\n', 1),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", 2),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1\n", 2),
        ("Timestamp,Request tokens,Response tokens\ninf,1,2\n", 2),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, text: str, line: int) -> None:
    with pytest.raises(UsageError, match=f"line {line}: not a request"):
        load(written(tmp_path, text))


@pytest.mark.parametrize(
    "text", ["", "\n\n", "a,b\n1,2\n", "[1, 2]", "TIMESTAMP,ContextTokens,GeneratedTokens\n"]
)
def test_what_is_no_trace(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(written(tmp_path, text))
    assert "Mooncake" in caught.value.hint[0]


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load(tmp_path / "nowhere")


def replayed(tmp_path: Path, text: str, processes: int = 1, **target):
    options = BenchOptions(trace=str(written(tmp_path, text)), speed=20, processes=processes)
    with FakeServer(Behaviour(ttft_ms=0.5, tpot_ms=0.1)) as server:
        target = Target(url=server.url, **target)
        found = measure(target, Workload(), Slo(), progress=lambda *_: None, options=options)
        return found, server.records[1:]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_replay_with_shared_blocks(tmp_path: Path, processes: int) -> None:
    found, records = replayed(tmp_path, MOONCAKE, processes, vocab_size=1000)
    (point,) = found.points
    assert (point.completed, point.start) == (3, "scheduled")
    assert found.workload is not None and "Mooncake" in (found.workload.trace or "")
    records.sort(key=lambda r: -len(r.body["prompt"]))
    first, second, third = (r.body["prompt"] for r in records)
    assert [len(p) for p in (first, second, third)] == [1200, 1100, 700]
    assert [r.body["max_tokens"] for r in records] == [52, 3, 1]
    assert first[:1024] == second[:1024] and first[1024:1100] != second[1024:]
    assert first[:512] == third[:512] and first[512:700] != third[512:]
    assert point.prompt_tokens_drift == 0


def test_a_replay_of_real_prompts(tmp_path: Path) -> None:
    _, records = replayed(tmp_path, OWN)
    assert [(r.body["prompt"], r.body["max_tokens"]) for r in records] == [("hello", 2), ("one two three", 4)]
    assert all(a.received_ns < b.received_ns for a, b in pairwise(records))


def test_a_replay_of_conversations(tmp_path: Path) -> None:
    line = {"timestamp": 0, "messages": [{"role": "user", "content": "hi"}]}
    _, records = replayed(tmp_path, json.dumps(line), api="chat")
    assert records[0].body["messages"] == line["messages"]
