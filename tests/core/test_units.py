import pytest

from model_optimizer.core import UsageError, units


@pytest.mark.parametrize(
    ("text", "count"),
    [("8GiB", 8 << 30), ("8 GB", 8 * 10**9), ("512m", 512 << 20), ("1000", 1000), ("1.5KiB", 1536)],
)
def test_bytes_are_read_as_people_write_them(text: str, count: int) -> None:
    assert units.parse_bytes(text) == count


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("10m", 600), ("72h", 259200), ("250ms", 0.25)])
def test_times_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert units.parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "GiB", "8 potatoes", "-1GB", "nan"])
def test_nonsense_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        units.parse_bytes(text)


def test_sizes_and_times_are_shown_with_three_digits() -> None:
    assert [units.show_bytes(n) for n in (None, 5, 2048, 1536 << 20, 999 << 30)] == [
        "unknown", "5 B", "2 KiB", "1.5 GiB", "999 GiB",
    ]  # fmt: skip
    assert [units.show_ms(x) for x in (None, 0.84, 12.34, 123.4, 1204)] == [
        "-", "0.84 ms", "12.3 ms", "123 ms", "1.20 s",
    ]  # fmt: skip


def test_ratios_have_two_digits() -> None:
    assert [units.show_ratio(x) for x in (0.4199, 1.0, 2.04, 9.94, 11.8)] == [
        "0.42x", "1.0x", "2.0x", "9.9x", "12x",
    ]  # fmt: skip


def test_counts_have_three_digits_and_no_powers_of_ten() -> None:
    shown = [units.show_count(x) for x in (0.3861, 13.66, 682, 2560.4, 19_693_000)]
    assert shown == ["0.386", "13.7", "682", "2,560", "19,693,000"]
