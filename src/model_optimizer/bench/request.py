"""The bytes of requests, made before they are needed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from urllib.parse import quote

import msgspec

from model_optimizer import __version__
from model_optimizer.core import UsageError, Workload

from .images import data_url
from .prompts import Prompt, Prompts, of_line
from .target import GENERATES, PATHS, Address, Api, Target
from .tensors import Taken
from .trace import Entry, Trace

_TURN = 1_000_003  # sets the prompts of later turns apart from those of other sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """One request as it goes over the wire. Lengths are in tokens, None where they are not known.

    `label` is the model of a mix, `turn` the place in a session.
    """

    data: bytes
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    label: str | None = None
    turn: "Turn | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Where a session stands: its number, this turn and how many there will be, and what was said before
    (user and server in turns, each as a JSON string), with what is asked now at the end."""

    session: int
    level: int
    number: int
    turns: int
    said: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """What the server understands of a request; found out by one request before the load.

    `inputs` are the tensors of a model that is asked through `infer`. `calibrate` maps wanted prompt tokens
    to what must be asked of the prompt writer for the server to count as many.
    """

    api: Api
    model: str
    stream: bool
    usage_in_stream: bool = True
    ignore_eos: bool = True
    temperature: float | None = 0.0
    slope: float = 1.0
    offset: float = 0.0
    inputs: tuple[Taken, ...] = ()

    def calibrate(self, tokens: int) -> int:
        return max(1, round((tokens - self.offset) / self.slope))


class Writer:
    """Makes the n-th request of a level; the same for the same seed."""

    def __init__(
        self,
        target: Target,
        where: Address,
        key: str | None,
        workload: Workload,
        prompts: Prompts,
        seed: int,
        trace: Trace | None = None,
    ) -> None:
        self.prompts = prompts
        self._where = where
        self._path = target.path
        self._key = key
        self._work = workload
        self._seed = seed
        self._trace = trace
        self._names = tuple(workload.models)
        self._shares = tuple(workload.models.values())

    def make(self, manner: Manner, level: int, index: int) -> Prepared:
        entry = self._entry(index)
        wanted, output = self._draw(index)
        manner, label = self._of_mix(manner, index)
        if entry is not None and entry.line is not None:
            prompt = of_line(entry.line, manner.api, Path(self._trace.name if self._trace else ""), index + 1)
        else:
            blocks = entry.blocks if entry is not None else ()
            prompt = self.prompts.make(level, index, manner.calibrate(wanted), blocks)
        turns = self._turns(index)
        turn = None
        if turns > 1 and prompt.text is not None:
            turn = Turn(session=index, level=level, number=0, turns=turns, said=(prompt.text,))
        request = self._request(manner, self._with_images(manner, prompt, level, index), wanted, output)
        return replace(request, label=label, turn=turn)

    def follow(self, manner: Manner, before: Prepared, answer: str) -> Prepared | None:
        """The next turn of a session, with all that was said; None after the last."""
        turn = before.turn
        if turn is None or turn.number + 1 >= turn.turns:
            return None
        number = turn.number + 1
        place = f"{turn.session}/{number}"
        dice = Random(f"lengths/{self._seed}/{place}")
        wanted, output = self._work.prompt_tokens.draw(dice), self._work.output_tokens.draw(dice)
        index = turn.session + number * _TURN
        asked = self.prompts.make(turn.level, index, manner.calibrate(wanted))
        if asked.text is None:
            return None
        said = (*turn.said, msgspec.json.encode(answer), asked.text)
        manner, label = self._of_mix(manner, turn.session)
        request = self._request(manner, Prompt(members=conversation(manner.api, said)), wanted, output)
        return replace(request, label=label, turn=replace(turn, number=number, said=said))

    def trial(self, manner: Manner, level: int, index: int, *, share: float, output_tokens: int) -> Prepared:
        """A request before the load: a short answer, and a prompt of a share of the length."""
        wanted, output = self._draw(index)
        wanted = max(1, round(wanted * share))
        prompt = self.prompts.make(level, index, manner.calibrate(wanted))
        manner, _ = self._of_mix(manner, index)
        prompt = self._with_images(manner, prompt, level, index)
        return self._request(manner, prompt, wanted, min(output, output_tokens))

    @property
    def texts(self) -> int:
        """How many texts of the wanted length one request holds."""
        return self.prompts.make(-1, 0, 1).texts

    def _entry(self, index: int) -> Entry | None:
        entries = self._trace.entries if self._trace else ()
        return entries[index % len(entries)] if entries else None

    def _draw(self, index: int) -> tuple[int, int]:
        dice = Random(f"lengths/{self._seed}/{index}")
        prompt, output = self._work.prompt_tokens.draw(dice), self._work.output_tokens.draw(dice)
        entry = self._entry(index)
        if entry is not None:
            return entry.prompt_tokens or prompt, entry.output_tokens or output
        return prompt, output

    def _of_mix(self, manner: Manner, index: int) -> tuple[Manner, str | None]:
        if not self._names:
            return manner, None
        (name,) = Random(f"model/{self._seed}/{index}").choices(self._names, self._shares)
        return replace(manner, model=name), name

    def _turns(self, index: int) -> int:
        turns = self._work.turns
        return turns.draw(Random(f"turns/{self._seed}/{index}")) if turns else 1

    def _with_images(self, manner: Manner, prompt: Prompt, level: int, index: int) -> Prompt:
        """The prompt with its images; how many tokens those are, only the server knows."""
        if not self._work.images or manner.api == "infer":
            return prompt
        if prompt.text is None or manner.api != "chat":
            raise UsageError("images go with texts, to a chat interface", hint=("add --api chat",))
        parts = [b'{"type":"text","text":%b}' % prompt.text]
        for number, image in enumerate(self._work.images):
            url = data_url(image, f"image/{self._seed}/{level}/{index}/{number}")
            parts.append(b'{"type":"image_url","image_url":{"url":"%b"}}' % url.encode())
        content = b'"messages":[{"role":"user","content":[' + b",".join(parts) + b"]}]"
        return replace(prompt, members=content, tokens=None)

    def _request(self, manner: Manner, prompt: Prompt, wanted: int, output: int) -> Prepared:
        output = prompt.output_tokens or output
        content = body(manner, prompt.members, output)
        return Prepared(
            data=post(self._where, self._path or path_of(manner), content, self._key),
            prompt_tokens=wanted * prompt.texts if prompt.tokens else None,
            output_tokens=output if manner.api in GENERATES else None,
        )


def conversation(api: Api, said: Sequence[bytes]) -> bytes:
    """The members of a request that carry a whole conversation, each part a JSON string."""
    if api == "chat":
        roles = (b"user", b"assistant")
        parts = (b'{"role":"%b","content":%b}' % (roles[n % 2], text) for n, text in enumerate(said))
        return b'"messages":[' + b",".join(parts) + b"]"
    texts = [msgspec.json.decode(text, type=str) for text in said]
    return b'"prompt":' + msgspec.json.encode("\n".join(texts))


def body(manner: Manner, members: bytes, output_tokens: int) -> bytes:
    """The JSON object of one request."""
    if manner.api == "infer":  # the model is named by the path
        return b"{" + members + b"}"
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


def path_of(manner: Manner) -> str:
    """The usual path of an interface; that of tensors holds the model's name."""
    return PATHS[manner.api].replace("{model}", quote(manner.model, safe=""))


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
