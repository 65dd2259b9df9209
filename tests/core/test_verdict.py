import pytest

from model_optimizer.core import worst


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (("pass", "pass"), "pass"),
        (("pass", "undecided"), "undecided"),
        (("undecided", "fail", "pass"), "fail"),
        ((), "undecided"),
    ],
)
def test_the_worst_comparison_decides(outcomes: tuple[str, ...], expected: str) -> None:
    assert worst(outcomes) == expected  # pyright: ignore[reportArgumentType]
