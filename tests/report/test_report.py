"""The report says what happened to every candidate, opens offline, and trusts no text from outside."""

import re
from html.parser import HTMLParser

from inline_snapshot import snapshot

from model_optimizer.report import html, markdown, rows
from model_optimizer.report.markdown import escape
from model_optimizer.testing.records import record


class Page(HTMLParser):
    """Collects what a browser would fetch or run, and checks that tags close."""

    VOID = frozenset({"meta", "link", "img", "br", "hr", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.fetched += [str(value) for key, value in attrs if key in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_candidate_has_a_row_with_its_fate() -> None:
    found = {row.name: row for row in rows(record())}
    assert found["reference"].quality == "the original"
    assert found["onnxruntime-int8_weight"].throughput == "300 (4.0x)"
    assert found["onnxruntime-int8_weight"].quality == "99.85% of the original"
    assert found["onnxruntime-int4_rtn"].throughput == "-"
    assert found["onnxruntime-int4_rtn"].note.startswith("not served: recovery 0.902")
    assert found["vllm_cpu-bf16"].note.startswith("failed: the server died")


def test_energy_that_was_not_measured_is_said_to_be_so() -> None:
    assert {row.energy for row in rows(record()) if row.throughput_per_s} == {"not measurable here"}


def test_the_page_is_whole_and_fetches_nothing() -> None:
    page = Page()
    page.feed(html(record()))
    assert page.open == []
    assert page.fetched == []
    assert "script" not in page.tags


def test_text_from_outside_is_escaped() -> None:
    assert "<script>" not in html(record())
    assert "&lt;script&gt;" in html(record())
    assert "<script>" not in markdown(record())
    assert escape("a|b\nc") == "a\\|b c"


def test_a_run_that_has_only_begun_has_a_page_too() -> None:
    import dataclasses

    whole = record()
    begun = dataclasses.replace(
        whole,
        run=dataclasses.replace(whole.run, winner=None, because=None),
        candidates=tuple(
            dataclasses.replace(c, measurement=None, verdicts=(), artifact=None, fate="waiting", because=None)
            for c in whole.candidates
        ),
    )
    assert "the run has not finished" in html(begun)
    assert "not finished" in markdown(begun)


def test_the_longest_bar_is_the_whole_width() -> None:
    assert re.findall(r"width:100\.0%", html(record())) != []


def test_markdown_reads_like_a_letter() -> None:
    head = markdown(record()).split("## What was compared")[0]
    assert head == snapshot("""\
# tiny-qwen3

**Use `onnxruntime-int8_weight`**: 4.0x the reference's throughput at 0.25x its memory, and it passed verification.

- Machine: AMD EPYC, 2 cores, 24 GiB of memory, no GPU, Debian GNU/Linux 12 (bookworm)
- Model: Qwen3ForCausalLM, 5.8 M parameters, 6 layers, GQA, float32
- Load: up to 4 requests in flight, prompts of 64 tokens, outputs of 32 tokens
- Limits: TTFT at most 200 ms at P99

| variant | on disk | memory | first token | output tokens/s | quality | energy | verdict |
| --- | --- | --- | --- | --- | --- | --- | --- |
| reference | - | 800 MiB | 40 ms | 75 | the original | not measurable here | reference |
| onnxruntime-int8_weight | 9 MiB | 200 MiB | 12 ms | 300 (4.0x) | 99.85% of the original | not measurable here | passed, chosen |
| onnxruntime-int4_rtn | 6 MiB | - | - | - | 90.21% of the original | - | not served: recovery 0.902 is below 0.94 &lt;script>alert(1)&lt;/script> |
| vllm_cpu-bf16 | - | - | - | - | not compared | - | failed: the server died while starting \\| see log/serve.log |

First token (or request) is the median at the lowest load, throughput the best of the loads.

""")


def test_what_decides_nothing_is_not_shown_as_passed() -> None:
    (row,) = {line for line in markdown(record()).splitlines() if line.startswith("| kl |")}
    assert row == "| kl | 0.01 | decides nothing | 6000 | - |"
    assert "decides nothing" in html(record())
