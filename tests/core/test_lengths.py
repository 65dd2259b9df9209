import random
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.core import Lengths, UsageError, lengths


@pytest.mark.parametrize(
    ("text", "mean"),
    [
        ("512", 512),
        ("uniform:100,900", 500),
        ("normal:512,64", 512),
        ("lognormal:300,4000", 300 * 2.718281828 ** ((2.5903 / 2.3263) ** 2 / 2)),
    ],
)
def test_draws_have_the_mean_that_is_stated(text: str, mean: float) -> None:
    found = lengths.parse(text)
    dice = random.Random(1)
    drawn = [found.draw(dice) for _ in range(20_000)]
    assert found.mean == pytest.approx(mean, rel=0.01)
    assert statistics.fmean(drawn) == pytest.approx(mean, rel=0.06)


def test_quantiles_are_those_that_were_asked() -> None:
    assert lengths.parse("lognormal:300,4000").quantile(0.99) == pytest.approx(4000, abs=1)
    assert lengths.parse("lognormal:300,4000").quantile(0.5) == 300
    assert lengths.parse("uniform:100,900").quantile(0.25) == 300
    assert lengths.parse("7").quantile(0.99) == 7


def test_lengths_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "lengths.txt").write_text("3\n5\n7\n")
    found = lengths.parse(f"file:{tmp_path / 'lengths.txt'}")
    assert found == Lengths(kind="empirical", numbers=(3, 5, 7))
    assert found.quantile(0.99) == 7
    assert {found.draw(random.Random(n)) for n in range(50)} == {3, 5, 7}


@pytest.mark.parametrize(
    "text", ["0", "-3", "many", "uniform:9", "uniform:9,3", "zipf:1,2", "normal:0,1", "file:/nowhere", "1.5"]
)
def test_nonsense_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        lengths.parse(text)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 2**32))
def test_a_draw_is_never_below_one(first: int, second: int, seed: int) -> None:
    low, high = sorted((first, second))
    for kind in ("uniform", "normal", "lognormal"):
        assert lengths.parse(f"{kind}:{low},{high}").draw(random.Random(seed)) >= 1
