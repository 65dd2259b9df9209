"""Tensors as JSON: their sizes, and as many numbers as they say."""

import json

import pytest

from model_optimizer.bench.tensors import Taken, Tensors, side_of, sizes
from model_optimizer.core import UsageError


@pytest.mark.parametrize(
    ("shape", "side", "found"),
    [
        ((-1, 3, -1, -1), (640, 320), [1, 3, 320, 640]),
        ((1, 3, 224, 224), None, [1, 3, 224, 224]),
        ((1, 3, 224, 224), (640, 640), [1, 3, 224, 224]),
        ((-1, 8), None, [1, 8]),
    ],
)
def test_free_sizes_are_those_of_the_image(
    shape: tuple[int, ...], side: tuple[int, int] | None, found: list[int]
) -> None:
    assert sizes(Taken(name="x", datatype="FP32", shape=shape), side) == found


@pytest.mark.parametrize(("shape", "side"), [((-1, -1), (8, 8)), ((1, 3, -1, -1), None)])
def test_a_size_that_nobody_gave_is_asked_for(shape: tuple[int, ...], side: tuple[int, int] | None) -> None:
    with pytest.raises(UsageError, match="free sizes"):
        sizes(Taken(name="x", datatype="FP32", shape=shape), side)


@pytest.mark.parametrize("count", [1, 31, 32, 33, 4127, 4128, 4129, 12_000])
@pytest.mark.parametrize("kind", ["FP32", "INT64"])
def test_there_are_as_many_numbers_as_the_shape_says(count: int, kind: str) -> None:
    made = Tensors(inputs=(Taken(name="x", datatype=kind, shape=(1, count)),))
    first, again, other = (
        json.loads(b"{" + made.make(0, index, 1).members + b"}")["inputs"][0] for index in (0, 0, 1)
    )
    assert len(first["data"]) == count and first == again
    assert first["data"] != other["data"] or count == 1
    assert all(isinstance(n, float if kind == "FP32" else int) for n in first["data"])


def test_a_file_is_no_size() -> None:
    assert side_of(()) is None and side_of(("8x4",)) == (8, 4)
    with pytest.raises(UsageError, match="no file is sent"):
        side_of(("cat.png",))
