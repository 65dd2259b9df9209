"""Optimization profiles from the lengths of requests."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_optimizer.convert._profiles import Asked, Profile, derive, parse, require_holds
from model_optimizer.core import Lengths, UsageError

FREE = ("batch", "sequence")


@given(st.integers(10, 400), st.floats(1.1, 8), st.integers(0, 10_000))
def test_opt_covers_95_percent_and_everything_is_held(median: int, ratio: float, seed: int) -> None:
    lengths = Lengths(kind="lognormal", numbers=(median, median * ratio))
    profiles = derive(FREE, Asked(lengths=lengths, longest=100_000))
    axes = [p.axes["sequence"] for p in profiles]
    dice = random.Random(seed)
    drawn = [lengths.draw(dice) for _ in range(400)]
    assert sum(n <= axes[-1][1] for n in drawn) / len(drawn) > 0.9
    assert sum(n <= axes[-1][2] for n in drawn) / len(drawn) > 0.97
    assert axes[0][0] == 1 and all(low <= best <= high for low, best, high in axes)


def test_equal_lengths_need_one_profile() -> None:
    (profile,) = derive(FREE, Asked(lengths=Lengths.fixed(512), longest=512))
    assert profile.axes == {"batch": (1, 8, 32), "sequence": (1, 512, 512)}


def test_mostly_short_requests_get_a_profile_of_their_own() -> None:
    short, long = derive(FREE, Asked(lengths=Lengths(kind="lognormal", numbers=(40, 400)), longest=1024))
    assert short.axes["sequence"] == (1, 40, 40)
    assert long.axes["sequence"][0] == 41
    assert "half of the requests" in short.because


def test_requests_that_the_model_cannot_take_are_refused() -> None:
    with pytest.raises(UsageError, match="too long for this model") as caught:
        derive(FREE, Asked(lengths=Lengths.fixed(600), longest=512))
    assert caught.value.cause == ("it takes 512 tokens",)


def test_images_have_sides() -> None:
    (profile,) = derive(("batch", "height", "width"), Asked(sizes=((640, 640), (320, 480), (1024, 1024))))
    assert profile.axes["height"] == (320, 640, 1024)
    assert profile.axes["width"] == (480, 640, 1024)


def test_a_graph_without_free_dimensions_needs_none() -> None:
    assert derive((), Asked()) == ()


def test_a_profile_is_read_as_written() -> None:
    assert parse("batch=1:8:32, sequence=64") == Profile(
        axes={"batch": (1, 8, 32), "sequence": (64, 64, 64)}, because="as asked", source="user"
    )


@pytest.mark.parametrize(
    "text", ["", "batch", "batch=", "batch=3:2:1", "batch=a:b:c", "batch=0:1:2", "batch=1:2"]
)
def test_what_is_no_profile_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no range of sizes"):
        parse(text)


def test_a_profile_that_cannot_hold_the_load_is_refused() -> None:
    profiles = (parse("batch=1:8:32,sequence=1:128:256"),)
    require_holds(profiles, Lengths.fixed(256), 32)
    with pytest.raises(UsageError, match="cannot hold the load: 300 tokens"):
        require_holds(profiles, Lengths.fixed(300), None)
    with pytest.raises(UsageError, match="64 requests at once"):
        require_holds(profiles, None, 64)
