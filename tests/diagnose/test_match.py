"""What the matcher sees: line numbers, JSON, long lines, restarts, and hostile input."""

import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from model_optimizer.core.diagnosis import Diagnosis
from model_optimizer.diagnose import Diagnosing, of_text, signature
from model_optimizer.diagnose.match import MOST_MISSES, SHOWN, Matcher

PORT = "OSError: [Errno 98] Address already in use"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 23.65 GiB of which 1.12 GiB is free."
XID = "NVRM: Xid (PCI:0000:06:00): 79, pid=1, name=python3, GPU has fallen off the bus."


def primary(found: Diagnosis) -> str | None:
    return found.primary.id if found.primary else None


def fed(data: bytes, *, size: int) -> Diagnosis:
    at_work = Diagnosing()
    at_work.read((data[i : i + size] for i in range(0, len(data), size)), name="x")
    return at_work.answer()


def test_lines_are_counted_across_blocks() -> None:
    data = ("filler\n" * 99 + PORT + "\n" + "filler\n" * 50).encode()
    for size in (1, 7, 100, 1 << 20):
        found = fed(data, size=size)
        assert found.primary is not None
        assert [e.line for e in found.primary.evidence] == [100]
        assert (found.lines, found.bytes) == (150, len(data))


def test_a_last_line_without_an_end_counts() -> None:
    found = fed(f"a\n{PORT}".encode(), size=1 << 20)
    assert found.lines == 2
    assert found.primary is not None and found.primary.evidence[0].line == 2


def test_every_prefix_is_seen_through() -> None:
    for prefix in (
        "web_1  | ",
        "2026-11-30T08:11:01.120931Z stderr F ",
        "Nov 30 08:11:01 node1 kernel: [ 4210.1] ",
        "(EngineCore_DP0 pid=22) ERROR 11-30 08:11:01 [core.py:710] ",
        "\x1b[1;36m(VllmWorker rank=0 pid=13543)\x1b[0;0m ERROR ",
        "[rank1]: ",
    ):
        assert primary(fed((prefix + PORT + "\n").encode(), size=4096)) == "vllm-port"


def test_json_lines_are_read_as_the_text_that_they_hold() -> None:
    docker = 'could not select device driver "" with capabilities: [[gpu]]'
    nested = 'Traceback (most recent call last):\n  File "a.py"\nRuntimeError: ' + docker
    for body in ({"log": docker + "\n", "stream": "stderr"}, {"level": "error", "exc": {"text": nested}}):
        found = of_text([json.dumps(body)])
        assert primary(found) == "dkr-no-driver"
    assert found.primary is not None
    assert found.primary.evidence[0].text == "RuntimeError: " + docker


def test_a_json_level_is_the_level_of_the_line() -> None:
    lines = [json.dumps({"level": "info", "msg": PORT}), OOM]
    assert primary(of_text(lines)) == "cuda-oom"


def test_a_long_line_is_cut_around_what_matters() -> None:
    found = of_text(["x" * 5000 + " " + PORT + " " + "y" * 5000])
    assert found.primary is not None
    text = found.primary.evidence[0].text
    assert "Address already in use" in text and len(text) <= SHOWN + 6


def test_a_message_at_the_cut_of_an_endless_line_is_not_lost() -> None:
    data = b"x" * ((1 << 20) - 10) + PORT.encode() + b"y" * (1 << 20)
    assert primary(fed(data, size=1 << 16)) == "vllm-port"


def test_the_text_after_the_last_carriage_return_is_shown() -> None:
    found = of_text([f"Loading 10%\rLoading 20%\r{PORT}"])
    assert found.primary is not None and found.primary.evidence[0].text == PORT


def test_the_last_start_of_a_program_counts() -> None:
    start = "INFO vLLM API server version 0.25.1"
    assert primary(of_text([start, OOM, start, PORT])) == "vllm-port"
    found = of_text([start, PORT, start, OOM])
    assert primary(found) == "cuda-oom" and not found.others


def test_many_lines_are_counted_and_few_are_kept() -> None:
    found = of_text([XID] * 5000)
    assert found.primary is not None
    assert (found.primary.count, len(found.primary.evidence)) == (5000, 1)


def test_what_only_begins_like_a_failure_is_given_up_after_a_while() -> None:
    seen = Matcher(signature.load())
    seen.feed(b"NVRM: Xid nothing\n" * (MOST_MISSES + 100))
    assert all(hit.misses <= MOST_MISSES for hit in seen.hits)
    assert not any(hit.count for hit in seen.hits)


def test_escape_codes_never_reach_the_answer() -> None:
    found = of_text([f"\x1b]0;evil\x07\x1b[2J{PORT}\x1b[0m \x1b[31", "ValueError: \x1b[5mblink"])
    shown = repr(found)
    assert "\\x1b[2J" not in shown and "evil" not in shown


def hostile_lines() -> list[str]:
    """Every fragment, alone, repeated, and followed by what regular expressions stumble over."""
    tails = [
        " " * 800,
        "(" * 800,
        "0x" * 400,
        "a.b" * 300,
        "\"'" * 400,
        "[" * 800,
        ": " * 400,
        "1.1" * 300,
        "=-" * 300,
    ]
    return [f + tail for s in signature.load() for f in s.head.fragments for tail in tails]


def test_hostile_lines_take_bounded_time() -> None:
    """No assertion on a clock: what could run away would not end here at all."""
    lines = hostile_lines()
    assert len(lines) > 5000
    of_text(lines)
    of_text([" ".join(random.Random(1).sample(lines, 40))[:100_000] for _ in range(5)])


def test_fragments_that_lead_nowhere_are_no_longer_looked_at() -> None:
    """The work on a log is bounded by what is learnt from it, not by its length."""
    seen = Matcher(signature.load())
    line = b"'list' object has no attribute experts. NVRM: Xid special_tokens capture_model nothing\n"
    for _ in range(30):
        seen.feed(line * 1000)
    assert all(hit.misses <= MOST_MISSES for hit in seen.hits)
    at_end = seen.hits
    before = [hit.misses for hit in at_end]
    seen.feed(line * 1000)
    assert [hit.misses for hit in at_end] == before


def test_what_stands_near_is_the_latest_and_costs_no_line() -> None:
    seen = Matcher(signature.load())
    seen.feed(b"capture_model\n" * 500)
    assert seen.near == {"capture_model": 500}
    assert not any(hit.misses or hit.count for hit in seen.hits)


def test_a_stream_takes_no_memory_that_grows() -> None:
    import tracemalloc

    block = ("INFO Avg generation throughput: 533.2 tokens/s, KV usage: 3.1%\n" * 4000).encode()
    at_work = Diagnosing()
    tracemalloc.start()
    at_work.read((block for _ in range(120)), name="x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert at_work.seen.bytes > 28_000_000
    assert peak < 6_000_000, "a few blocks, whatever the log's length"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.text(max_size=200), st.sampled_from([OOM, PORT, XID])), max_size=12))
def test_any_text_gives_a_diagnosis(lines: list[str]) -> None:
    found = of_text(lines)
    if found.primary is not None:
        assert found.primary.confidence and found.primary.evidence and found.primary.fix
    else:
        assert found.needed
