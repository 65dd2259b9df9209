"""Pictures: axes that people can read, nothing lost, nothing trusted."""

import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.core import ClientHealth, LoadPoint, Measurement, Percentiles
from model_optimizer.report import (
    Course,
    Panel,
    course_html,
    course_markdown,
    html,
    measurement_html,
    measurement_markdown,
)
from model_optimizer.report.figures import Figure, Named, figures, own_figures
from model_optimizer.report.plot import Axis, Line, nice, plot, scale
from model_optimizer.testing.records import record

EVIL = '"><script>alert(1)</script>&'


def point(concurrency: int, **given_) -> LoadPoint:
    return LoadPoint(
        target=f"concurrency {concurrency}",
        concurrency=concurrency,
        completed=100,
        failed=1,
        errors={"http_5xx": 1},
        error_examples={"http_5xx": EVIL},
        window_s=10,
        requests_per_s=10.0,
        output_tokens_per_s=100.0 * concurrency,
        ttft_ms=Percentiles(
            p50=10.0 * concurrency, p90=15.0, p99=None, because="p99 falls on a failed request"
        ),
        e2e_ms=Percentiles(p50=100.0 + concurrency, p90=150, p99=200),
        **given_,
    )


def telemetry() -> dict[str, object]:
    times = [float(i) for i in range(-1, 20)]
    return {
        "missing": {"gpu1.power_w": "not available: Not Supported"},
        "events": [{"time_s": 5.0, "kind": "xid", "text": EVIL, "fatal": False}],
        "loads": [
            {
                "target": "concurrency 1",
                "quantiles": {"ttft_ms": [float(i) for i in range(51)], "e2e_ms": [5.0] * 51},
            }
        ],
        "series": {
            "gpu0.power_w": {"time_s": times, "value": [300.0] * 21},
            "gpu0.memory_used_bytes": {"time_s": times, "value": [3.5 * 2**30] * 21},
            "engine.kv_usage": {"time_s": times, "value": [0.5] * 21},
        },
    }


def measured() -> Measurement:
    return Measurement(points=(point(1), point(4)), model=EVIL, telemetry=telemetry())


def course() -> Course:
    hours = [i / 2 for i in range(144)]
    return Course(
        title="Soak of http://127.0.0.1:8000",
        answer="leaks",
        good=False,
        because=("server memory (RSS) grew by 114 MiB to 148 MiB in 72 h", EVIL),
        facts=(("Server", "http://127.0.0.1:8000"),),
        trends=(
            ("what", "level", "growth per hour", "95 % interval", "verdict"),
            ("server memory (RSS)", "1 GiB", "2 MiB", "1.9 MiB to 2.1 MiB", f"rises: {EVIL}"),
        ),
        panels=(
            Panel(title="Server memory (RSS)", unit="B", points=[(h, (1000 + 2 * h) * 2**20) for h in hours]),
            Panel(title="Request (p50)", unit="ms", points=[(h, 50.0) for h in hours]),
            Panel(title="KV cache when idle", unit="share", points=[(h, 0.0) for h in hours]),
            Panel(title="GPU memory", unit="B", points=[]),
        ),
        marks=(30.0,),
        failures=(("http_5xx", "3", EVIL),),
        events=(f"30.00 h: {EVIL}",),
    )


def test_a_soak_has_a_page() -> None:
    page = course_html(course())
    assert page.count('role="img"') == 3
    assert "hours since it began" in page and "1 GiB" in page and 'class="mark"' in page
    assert "<script" not in page and "<script" not in course_markdown(course())


def pictures(one: Named) -> tuple[Figure, ...]:
    return (*figures([one]), *own_figures(one))


def titles(named: list[Named]) -> set[str]:
    return {figure.title for figure in figures(named)}


def test_everything_that_there_is_data_for_has_a_picture() -> None:
    found = {figure.title for figure in pictures(Named(name="x", measurement=measured()))}
    assert found == {
        "Time to first token against load",
        "Whole request against load",
        "Output tokens per second against latency",
        "Distribution: time to first token",
        "Distribution: whole request",
        "GPU power",
        "GPU memory",
        "KV cache in use",
    }


def test_one_load_and_no_telemetry_still_has_what_is_known() -> None:
    found = pictures(Named(name="x", measurement=Measurement(points=(point(1),))))
    assert {f.title for f in found} == {"Distribution: time to first token", "Distribution: whole request"}
    assert all("only three percentiles" in f.note for f in found)


def test_a_percentile_on_a_failure_leaves_a_gap_and_no_zero() -> None:
    (first, *_) = figures([Named(name="x", measurement=measured())])
    assert "P50: 10 ms at 1" in first.svg and "P99" not in first.svg


def test_bytes_have_round_ticks_in_their_own_unit() -> None:
    (memory,) = [f for f in pictures(Named(name="x", measurement=measured())) if f.title == "GPU memory"]
    assert "2 GiB" in memory.svg


def test_several_candidates_are_told_apart_by_more_than_colour() -> None:
    both = [Named(name=n, measurement=measured()) for n in ("a", "b")]
    pareto = next(f for f in figures(both) if "against latency" in f.title)
    assert 'class="l0"' in pareto.svg and 'class="l1"' in pareto.svg and "stroke-dasharray" in pareto.svg


def test_several_candidates_share_one_distribution_and_keep_their_timelines() -> None:
    both = [Named(name=n, measurement=measured()) for n in ("a", "b")]
    assert "Distribution: whole request, each at its highest load" in titles(both)
    assert "KV cache in use" not in titles(both)
    one = next(f for f in figures(both) if f.title.startswith("Distribution: whole"))
    assert f"a, {measured().points[-1].target}" in one.svg and f"b, {measured().points[-1].target}" in one.svg


def test_many_candidates_show_medians_alone() -> None:
    three = [Named(name=n, measurement=measured()) for n in ("a", "b", "c")]
    load = next(f for f in figures(three) if f.title == "Whole request against load")
    assert "P99" not in load.svg and load.note.startswith("median;")
    two = next(f for f in figures(three[:2]) if f.title == "Whole request against load")
    assert "a, P50" in two.svg and "99th percentile" in two.note


def test_a_client_near_its_limits_is_not_said_to_have_failed() -> None:
    near = ClientHealth(healthy=False, verdict="marked", because="late by 9 ms")
    page = measurement_html(replace(measured(), client=near), "x")
    assert "near its limits: late by 9 ms" in page and "could not keep up" not in page
    past = replace(measured(), client=replace(near, verdict="invalid"))
    assert "could not keep up, these numbers are its own" in measurement_html(past, "x")
    assert "could not keep up" in measurement_markdown(past, "x")


@pytest.mark.parametrize(
    "block",
    [
        {"loads": 3, "series": [], "events": "x", "missing": None},
        {"loads": [None, {"target": 1}], "series": {"gpu0.power_w": None}, "events": [3, {}]},
        {"series": {"gpu0.power_w": {"time_s": ["x"], "value": [1]}, "client.ttft_ms": {"time_s": [1]}}},
        {"loads": [{"target": "concurrency 1", "quantiles": {"ttft_ms": "abc"}}]},
    ],
)
def test_a_telemetry_block_of_something_else_breaks_nothing(block: dict[str, object]) -> None:
    page = measurement_html(replace(measured(), telemetry=block), "x")
    assert "How fast?" in page


def test_text_from_outside_is_escaped_in_pictures_and_pages() -> None:
    page = measurement_html(measured(), EVIL)
    assert "<script" not in page and "&lt;script&gt;" in page
    assert "<script" not in measurement_markdown(measured(), "x").replace("&lt;script", "")


def test_empty_and_worthless_measurements_have_a_page() -> None:
    empty = Measurement(points=())
    assert "nothing was measured" in measurement_html(empty, "x")
    bad = replace(measured(), invalid="ecc: gpu0: 1 uncorrectable memory errors", interrupted=True)
    page = measurement_html(bad, "x")
    assert "Nothing of this counts" in page and "Interrupted" in page
    assert "**Invalid: ecc" in measurement_markdown(bad, "x")


def test_waits_by_length_of_prompts_are_told() -> None:
    classes = [
        {
            "shortest": 10,
            "longest": 99,
            "requests": 50,
            "wait_p50_ms": 1.0,
            "wait_p90_ms": 2.0,
            "overtaken": 0.5,
        },
        {"shortest": 100, "longest": 100, "requests": 50, "wait_p50_ms": 900.0, "overtaken": 12.0},
    ]
    queue = {"verdict": "starved", "because": f"prompts of 100 tokens wait {EVIL}", "classes": classes}
    block = {"loads": [{"target": "concurrency 1", "queue": queue}]}
    page = measurement_html(replace(measured(), telemetry=block), "x")
    assert "10 to 99" in page and "900 ms / - / -" in page and "Starved: concurrency 1" in page
    assert "<script" not in page
    assert "## Who waited" in measurement_markdown(replace(measured(), telemetry=block), "x")
    assert "Who waited" not in measurement_html(measured(), "x")


def test_the_page_of_a_run_has_the_pictures_too() -> None:
    page = html(record())
    assert "Output tokens per second against latency" in page
    assert page.count("<svg") > 4


def test_every_picture_is_well_formed() -> None:
    for figure in pictures(Named(name="x", measurement=measured())):
        root = ET.fromstring(f"<div>{figure.svg}</div>")
        assert root.find("svg") is not None


class TestScales:
    @given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 8))
    def test_ticks_are_round_within_and_few(self, low: float, span: float, most: int) -> None:
        ticks = nice(low, low + span, most)
        assert len(ticks) <= most + 1
        assert all(low - span * 1e-6 <= t <= low + span * (1 + 1e-6) for t in ticks)

    @given(st.lists(st.floats(0, 1e7), min_size=1, max_size=20), st.booleans())
    def test_every_value_lands_on_the_picture(self, values: list[float], log: bool) -> None:
        axis = Axis(title="", log=log)
        found = scale(values, axis, 10, 400)
        assert all(10 - 25 <= found.at(v) <= 400 + 25 for v in values)
        assert found.ticks(5)

    def test_nothing_but_infinity_does_not_break_a_plot(self) -> None:
        svg = plot(
            [Line(name="x", points=[(math.inf, 1.0), (1.0, math.nan)])],
            Axis(title="x"),
            Axis(title="y"),
            title="t",
        )
        assert svg.endswith("</svg>")
