"""URLs, keys and levels: what a request for a measurement means."""

import pytest

from model_optimizer.bench.options import BenchOptions
from model_optimizer.bench.run import levels
from model_optimizer.bench.target import Target, address, api_key, api_of
from model_optimizer.core import UsageError, Workload


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("https://host/v1/", "https://host"),
        ("http://host:80/gateway/v1/chat/completions", "http://host/gateway"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_addresses(url: str, origin: str) -> None:
    assert address(url).origin == origin


@pytest.mark.parametrize(
    "url", ["", "ftp://host", "http://", "http://host:99999", "http://a b", "http://u:p@host"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        address(url)
    assert "u:p" not in caught.value.message


def test_the_end_of_a_url_names_the_interface() -> None:
    assert api_of("http://host/v1/embeddings") == "embeddings"
    assert api_of("http://host/v1") is None


HERE = "http://127.0.0.1:8000"


def test_a_key_that_was_not_named_goes_to_this_machine_alone() -> None:
    both = {"OPENAI_API_KEY": "a", "MOPT_API_KEY": "b"}
    for url in ("http://192.0.2.2:8199", "https://api.example.com", "http://127.0.0.1.example.com"):
        assert api_key(Target(url=url), both) is None
    assert api_key(Target(url="https://api.example.com", api_key_env="OPENAI_API_KEY"), both) == "a"
    assert api_key(Target(url="http://localhost:1"), both) == "b"


def test_keys_come_from_the_environment_only() -> None:
    both = {"OPENAI_API_KEY": "a", "MOPT_API_KEY": "b", "MINE": " c\n"}
    assert api_key(Target(url=HERE), both) == "b"
    assert api_key(Target(url=HERE), {"OPENAI_API_KEY": "a"}) == "a"
    assert api_key(Target(url=HERE, api_key_env="MINE"), both) == "c"
    assert api_key(Target(url=HERE), {}) is None
    with pytest.raises(UsageError, match="`NONE` is not set"):
        api_key(Target(url=HERE, api_key_env="NONE"), both)
    with pytest.raises(UsageError) as caught:
        api_key(Target(url=HERE), {"OPENAI_API_KEY": "a\r\nX-Evil: 1"})
    assert "Evil" not in str(caught.value)


def test_levels_of_a_closed_loop() -> None:
    one, eight = levels(Workload(arrivals="closed"), BenchOptions(levels=(1, 8)), seed=3)
    assert (one.title, one.concurrency, one.requests, one.warmup, one.seed) == ("concurrency 1", 1, 32, 1, 3)
    assert (eight.requests, eight.warmup) == (64, 8)
    (own,) = levels(Workload(concurrency=4, requests=10), BenchOptions(warmup=0), seed=0)
    assert (own.concurrency, own.requests, own.warmup) == (4, 10, 0)


def test_levels_of_an_open_loop() -> None:
    (timed,) = levels(Workload(arrivals="poisson", qps=20), BenchOptions(duration_s=30), seed=0)
    assert (timed.title, timed.requests, timed.duration_s, timed.warmup) == (
        "20 requests/s poisson",
        None,
        30,
        40,
    )
    (counted,) = levels(
        Workload(arrivals="gamma", burstiness=0.5, qps=2, requests=10), BenchOptions(), seed=0
    )
    assert (counted.title, counted.requests, counted.warmup) == ("2 requests/s gamma 0.5", 10, 2)


def test_an_infinite_rate_is_a_burst() -> None:
    (burst,) = levels(Workload(arrivals="poisson", qps=float("inf"), requests=7), BenchOptions(), seed=0)
    assert (burst.title, burst.arrivals, burst.warmup) == ("burst of 7 requests", "burst", 0)


@pytest.mark.parametrize(
    ("workload", "options"),
    [
        (Workload(arrivals="closed"), BenchOptions()),
        (Workload(arrivals="poisson"), BenchOptions()),
        (Workload(arrivals="burst", qps=float("inf")), BenchOptions()),
        (Workload(arrivals="poisson"), BenchOptions(levels=(1, float("inf")))),
        (Workload(arrivals="closed"), BenchOptions(levels=(0,))),
    ],
)
def test_what_is_no_load(workload: Workload, options: BenchOptions) -> None:
    with pytest.raises(UsageError):
        levels(workload, options, seed=0)
