"""The bytes of requests, made before they are needed."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import msgspec

from model_optimizer import __version__
from model_optimizer.core import Lengths, Workload

from .prompts import Prompt, Prompts
from .target import GENERATES, PATHS, Address, Api, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One request as it goes over the wire. Lengths are in tokens, None where they are not known."""

    data: bytes
    prompt_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """What the server understands of a request; found out by one request before the load.

    `calibrate` maps wanted prompt tokens to what must be asked of the prompt writer for the server to
    count as many.
    """

    api: Api
    model: str
    stream: bool
    usage_in_stream: bool = True
    ignore_eos: bool = True
    temperature: float | None = 0.0
    slope: float = 1.0
    offset: float = 0.0

    def calibrate(self, tokens: int) -> int:
        return max(1, round((tokens - self.offset) / self.slope))


class Writer:
    """Makes the n-th request of a level; the same for the same seed."""

    def __init__(
        self, target: Target, where: Address, key: str | None, workload: Workload, prompts: Prompts, seed: int
    ) -> None:
        self.prompts = prompts
        self._where = where
        self._path = target.path
        self._key = key
        self._lengths: tuple[Lengths, Lengths] = (workload.prompt_tokens, workload.output_tokens)
        self._seed = seed

    def make(self, manner: Manner, level: int, index: int) -> Prepared:
        wanted, output = self._draw(index)
        return self._request(
            manner, self.prompts.make(level, index, manner.calibrate(wanted)), wanted, output
        )

    def trial(self, manner: Manner, level: int, index: int, *, share: float, output_tokens: int) -> Prepared:
        """A request before the load: a short answer, and a prompt of a share of the length."""
        wanted, output = self._draw(index)
        wanted = max(1, round(wanted * share))
        prompt = self.prompts.make(level, index, manner.calibrate(wanted))
        return self._request(manner, prompt, wanted, min(output, output_tokens))

    @property
    def texts(self) -> int:
        """How many texts of the wanted length one request holds."""
        return self.prompts.make(-1, 0, 1).texts

    def _draw(self, index: int) -> tuple[int, int]:
        dice = Random(f"lengths/{self._seed}/{index}")
        prompt, output = (lengths.draw(dice) for lengths in self._lengths)
        return prompt, output

    def _request(self, manner: Manner, prompt: Prompt, wanted: int, output: int) -> Prepared:
        output = prompt.output_tokens or output
        content = body(manner, prompt.members, output)
        return Prepared(
            data=post(self._where, self._path or PATHS[manner.api], content, self._key),
            prompt_tokens=wanted * prompt.texts if prompt.tokens else None,
            output_tokens=output if manner.api in GENERATES else None,
        )


def body(manner: Manner, members: bytes, output_tokens: int) -> bytes:
    """The JSON object of one request."""
    parts = [b'"model":' + msgspec.json.encode(manner.model), members]
    if manner.api in GENERATES:
        parts.append(b'"max_tokens":%d' % output_tokens)
        if manner.temperature is not None:
            parts.append(b'"temperature":' + msgspec.json.encode(manner.temperature))
        if manner.ignore_eos:
            parts.append(b'"ignore_eos":true')
        if manner.stream:
            parts.append(b'"stream":true')
            if manner.usage_in_stream:
                parts.append(b'"stream_options":{"include_usage":true}')
    return b"{" + b",".join(parts) + b"}"


def post(where: Address, path: str, content: bytes, key: str | None) -> bytes:
    lines = [
        *_lines("POST", where, path, key),
        "Content-Type: application/json",
        f"Content-Length: {len(content)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + content


def get(where: Address, path: str, key: str | None) -> bytes:
    return "\r\n".join([*_lines("GET", where, path, key), "", ""]).encode()


def _lines(method: str, where: Address, path: str, key: str | None) -> list[str]:
    lines = [
        f"{method} {where.prefix}{path} HTTP/1.1",
        f"Host: {where.authority}",
        f"User-Agent: mopt/{__version__}",
        "Accept: text/event-stream, application/json",
        "Accept-Encoding: identity",
    ]
    return [*lines, f"Authorization: Bearer {key}"] if key else lines


MakeRequest = Callable[[int], Prepared]
"""The n-th request of the level at hand."""
