"""Options that mean the same in every command, and the types that read them."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import click

from model_optimizer.core import Lengths, UsageError, lengths, units

MOST = 10**9
"""Of any count and rate: larger ones are slips of the pen, and answers to them are no answers."""

LEAST = 1e-9

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class LengthsType(click.ParamType[Any]):
    name = "DIST"

    def convert(
        self, value: str | Lengths, param: click.Parameter | None, ctx: click.Context | None
    ) -> Lengths:
        return value if isinstance(value, Lengths) else lengths.parse(value)


class BytesType(click.ParamType[Any]):
    name = "BYTES"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return value if isinstance(value, int) else units.parse_bytes(value)


class SecondsType(click.ParamType[Any]):
    name = "TIME"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        return units.parse_seconds(str(value))


class Whole(click.IntRange):
    """A whole number of at least `least`, and at most `most`, which is said only when it is missed."""

    def __init__(self, least: int, most: int = MOST) -> None:
        super().__init__(least)
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number.", param, ctx)
        if number > self._most:
            self.fail(f"{_short(value)} is more than {self._most:,}.", param, ctx)
        return super().convert(number, param, ctx)


class Real(click.FloatRange):
    """A number within limits, which are those of `click.FloatRange`; without `max` it is at most `MOST`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        if self.max is None and number > MOST:
            self.fail(f"{_short(value)} is more than {MOST:,}.", param, ctx)
        return super().convert(number, param, ctx)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 20 else f"{text[:20]}..."


class PositiveFloat(click.ParamType[Any]):
    """A finite number above zero; `inf` too where `infinite` is set."""

    name = "NUMBER"

    def __init__(self, *, infinite: bool = False) -> None:
        self._infinite = infinite

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        option = param.opts[0] if param else "value"
        if not number > 0 or (number == float("inf") and not self._infinite):
            raise UsageError(f"{option} must be a number above zero, not `{value}`")
        return plausible(number, option)


def plausible(number: float, option: str) -> float:
    """The same number above zero. UsageError for one that nobody means; infinity passes."""
    if LEAST <= number <= MOST or number == float("inf"):
        return number
    raise UsageError(f"{option} must be between {LEAST:g} and {MOST:g}, not {number:.3g}")


class PairType(click.ParamType[Any]):
    """`NAME=VALUE`: (name, value). `names` is how a name must look; `empty` lets the value be left out."""

    name = "NAME=VALUE"

    def __init__(self, *, names: str = r"\S+", empty: bool = False, example: str = "threads=2") -> None:
        self._names, self._empty, self._example = re.compile(names), empty, example

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return cast("tuple[str, str]", value)
        name, equals, rest = str(value).partition("=")
        if equals and self._names.fullmatch(name) and (rest or self._empty):
            return name, rest
        option = param.opts[0] if param else "it"
        raise UsageError(
            f"`{option} {value}` is not NAME=VALUE", hint=(f"for example {option} {self._example}",)
        )


def pairs(flag: str, to: str, kind: PairType, text: str) -> Decorator:
    """An option that may be given many times; the command is handed a mapping."""

    def mapping(
        _ctx: click.Context, _param: click.Parameter, value: tuple[tuple[str, str], ...]
    ) -> dict[str, str]:
        return dict(value)

    return click.option(flag, to, type=kind, multiple=True, callback=mapping, help=text)


VARIABLE = PairType(names=r"[A-Z][A-Z0-9_]*", empty=True, example="VLLM_LOGGING_LEVEL=DEBUG")
"""A variable of an engine's environment."""


def as_json(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")(function)


def host_file(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--host",
        "host_file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="A host saved by `mopt doctor --save`, instead of this machine.",
    )(function)


def together(*decorators: Decorator) -> Decorator:
    """Several options as one decorator; they are listed in the order given."""

    def apply(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


slo = together(
    click.option("--ttft-ms", type=PositiveFloat(), help="Limit of the time to first token."),
    click.option("--tpot-ms", type=PositiveFloat(), help="Limit of the time per output token."),
    click.option("--e2e-ms", type=PositiveFloat(), help="Limit of the whole request."),
    click.option(
        "--percentile",
        type=Real(0, 100, min_open=True, max_open=True),
        default=99,
        show_default=True,
        help="The percentile that the limits hold at.",
    ),
)

load = together(
    click.option("--prompt-tokens", type=LengthsType(), help="N, or a distribution of prompt lengths."),
    click.option("--output-tokens", type=LengthsType(), help="N, or a distribution of output lengths."),
    click.option("--qps", "--rate", type=PositiveFloat(infinite=True), help="Requests per second."),
    click.option("--concurrency", type=Whole(1), help="Requests in flight, in a closed loop."),
    click.option("--requests", type=Whole(1), help="How many requests."),
)
