"""What is found out before the load: is the server there, which model, and what does it understand.

These requests are few, one after the other, and counted nowhere.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from time import perf_counter_ns
from urllib.parse import quote

import msgspec

from model_optimizer.core import HostError, MoptError, UsageError, Workload

from . import answers
from .exchange import Exchange, Outcome
from .nothing import NothingCompleted
from .options import BenchOptions
from .pool import Pool
from .prompts import Prompts, Text, TokenIds, recorded, write_exactly, write_words
from .request import Manner, Prepared, Writer, get, path_of
from .target import GENERATES, Address, Api, Target, address, api_key, api_of
from .tensors import Described, Taken, Tensors, side_of
from .trace import Trace, load
from .vocabulary import encoder, likely_ids, ordinary_ids, tokenizer_file
from .wire import WireError, read_answer

_ASK_S = 10.0
TOO_LONG = "context_length_exceeded"
SHORTER = "ask for less: the server takes shorter requests than --prompt-tokens says"
_TRIAL_TOKENS = 8
_BEFORE_LOAD = -1
_NOT_HERE = (404, 405, 501)
_NOT_UNDERSTOOD = (400, 422)
_REFUSED = (401, 403)
_CANDIDATES: dict[str, tuple[Api, ...]] = {
    "generate": ("completions", "chat", "embeddings", "infer"),
    "embed": ("embeddings",),
    "rerank": ("rerank", "score"),
    "vision": ("infer", "chat"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How to ask this server, and what a reader of the numbers should know about it. `source` is which way
    to make prompts was found to work."""

    manner: Manner
    writer: Writer
    source: int
    notes: tuple[str, ...]


class Scout:
    """Everything that is asked before a load, of one server."""

    def __init__(self, pool: Pool, where: Address, key: str | None, options: BenchOptions, seed: int) -> None:
        self._pool = pool
        self._where = where
        self._key = key
        self._options = options
        self._seed = seed

    async def look(self, target: Target, workload: Workload) -> Found:
        """Raises HostError when the server cannot be reached, NothingCompleted when it answers nothing
        useful, UsageError when something has to be named."""
        model = await self._model(target.model or next(iter(workload.models), None))
        tried: list[str] = []
        outcome: Outcome | None = None
        for api in _apis(target, workload):
            inputs = await self._inputs(model) if api == "infer" else ()
            manner = Manner(
                api=api,
                model=model,
                stream=target.stream,
                ignore_eos=self._options.ignore_eos,
                temperature=self._options.temperature,
                inputs=inputs,
            )
            if api == "infer" and not inputs:
                tried.append(f"/v2/models/{model}: no model of tensors")
                continue
            for source, prompts in enumerate(_sources(target, manner, workload, self._options, self._seed)):
                writer = _writer(target, workload, self._options, self._seed, prompts)
                agreed, exchange, outcome = await self._agree(writer, manner)
                if outcome.error in (None, "http_5xx", "truncated_stream"):
                    agreed = await self._calibrated(writer, agreed, outcome)
                    notes = _notes(manner, agreed, outcome, prompts)
                    return Found(manner=agreed, writer=writer, source=source, notes=tuple(notes))
                self._refused(exchange, outcome)
                tried.append(f"{target.path or path_of(manner)} with {prompts.kind}: {outcome.detail}")
                if outcome.error != "http_4xx":
                    raise self._nothing(model, tried, outcome)
                if exchange.status in _NOT_HERE:
                    break
        raise self._nothing(model, tried, outcome)

    async def _inputs(self, model: str) -> tuple[Taken, ...]:
        """The tensors that a model takes, by the Open Inference Protocol; none where it is not spoken."""
        path = f"/v2/models/{quote(model, safe='')}"
        exchange = await self._ask(get(self._where, path, self._key), _ASK_S)
        if exchange.status != 200:
            return ()
        try:
            body = read_answer(exchange.pieces, exchange.times_ns).body
            return msgspec.json.decode(body, type=Described).inputs
        except (WireError, msgspec.DecodeError, UnicodeDecodeError):
            return ()

    def _nothing(self, model: str, tried: Sequence[str], last: Outcome | None) -> NothingCompleted:
        kind, said = (last.error, last.detail or "") if last and last.error else ("wrong_content", "")
        return NothingCompleted(
            f"{self._where.origin} answered no request",
            errors={kind: 1},
            examples={kind: said},
            cause=tuple(tried),
            hint=(
                *((SHORTER,) if TOO_LONG in said else ()),
                f"model `{model}`; name another interface with --api, or another model with --model",
            ),
        )

    async def _model(self, named: str | None) -> str:
        """See that the server is there; the name of its first model, unless one is named."""
        exchange = await self._ask(get(self._where, "/v1/models", self._key), _ASK_S)
        if exchange.error == "connect" and exchange.sent_ns is None:
            raise HostError(
                f"no server can be reached at {self._where.origin}",
                cause=(exchange.detail or "no connection",),
                hint=("start it first, or check the address and the port",),
                reference="server-unreachable",
            )
        if named is not None:
            return named
        outcome = answers.read(exchange, "completions", secret=self._key)
        self._refused(exchange, outcome)
        name = _first_model(exchange) if exchange.status == 200 else None
        if name is None:
            raise UsageError(
                f"{self._where.origin} does not say which models it serves",
                cause=(outcome.detail,) if outcome.detail else (),
                hint=("name the model with --model NAME",),
            )
        return name

    async def _ask(self, data: bytes, timeout_s: float, prepared: Prepared | None = None) -> Exchange:
        """One request with a time limit."""
        exchange = Exchange(
            prepared or Prepared(data=data), index=0, measured=False, scheduled_ns=perf_counter_ns()
        )
        try:
            await asyncio.wait_for(self._pool.carry(exchange), timeout_s)
        except TimeoutError:
            exchange.fail("timeout", f"no whole answer within {timeout_s:g} s", perf_counter_ns())
        return exchange

    async def _try(self, writer: Writer, manner: Manner, share: float = 1.0) -> tuple[Exchange, Outcome]:
        prepared = writer.trial(manner, _BEFORE_LOAD, 0, share=share, output_tokens=_TRIAL_TOKENS)
        exchange = await self._ask(prepared.data, self._options.timeout_s, prepared)
        return exchange, answers.read(exchange, manner.api, secret=self._key)

    async def _agree(self, writer: Writer, manner: Manner) -> tuple[Manner, Exchange, Outcome]:
        """Leave out what the server does not understand, until it answers or nothing is left to leave
        out. What is told of a failure is the first one."""
        first = await self._try(writer, manner)
        exchange, outcome = first
        while exchange.status in _NOT_UNDERSTOOD and (fewer := _without(manner, exchange)) != manner:
            manner = fewer
            exchange, outcome = await self._try(writer, manner)
        return (manner, exchange, outcome) if outcome.completed else (manner, *first)

    async def _calibrated(self, writer: Writer, manner: Manner, outcome: Outcome) -> Manner:
        """Learn from the server's own count how long prompts must be written to be as long as wanted:
        a chat template adds tokens, a word may be more than one."""
        got, wanted = outcome.prompt_tokens, outcome.wanted_prompt_tokens
        if not got or not wanted or got == wanted:
            return manner
        if writer.prompts.exact:
            added = (got - wanted) / writer.texts
            return replace(manner, offset=added) if abs(added) < wanted / writer.texts else manner
        _, half = await self._try(writer, manner, share=0.5)
        if not half.prompt_tokens or not half.wanted_prompt_tokens or wanted == half.wanted_prompt_tokens:
            return manner
        slope = (got - half.prompt_tokens) / (wanted - half.wanted_prompt_tokens)
        if not 0.1 < slope < 20:
            return manner
        return replace(manner, slope=slope, offset=(got - slope * wanted) / writer.texts)

    def _refused(self, exchange: Exchange, outcome: Outcome) -> None:
        if exchange.status in _REFUSED:
            have = "the key that was sent is not accepted" if self._key else "no API key was sent"
            raise MoptError(
                f"{self._where.origin} refused the request",
                cause=(outcome.detail or "", have),
                hint=("put the key into OPENAI_API_KEY, or name its variable with --api-key-env",),
                reference="refused",
            )


def writer_of(
    target: Target, workload: Workload, options: BenchOptions, seed: int, manner: Manner, source: int
) -> Writer:
    """The writer that was found to work, made again in another process."""
    prompts = next(islice(_sources(target, manner, workload, options, seed), source, None))
    return _writer(target, workload, options, seed, prompts)


def _writer(target: Target, workload: Workload, options: BenchOptions, seed: int, prompts: Prompts) -> Writer:
    trace = trace_of(options, workload)
    return Writer(target, address(target.url), api_key(target), workload, prompts, seed, trace)


def trace_of(options: BenchOptions, workload: Workload) -> Trace | None:
    """The trace that is replayed, at most as many requests of it as are wanted. Raises UsageError."""
    if options.trace is None:
        return None
    return _loaded(options.trace, options.speed, workload.requests)


@lru_cache(maxsize=1)
def _loaded(path: str, speed: float, limit: int | None) -> Trace:
    return load(Path(path), speed=speed, limit=limit)


def _apis(target: Target, workload: Workload) -> tuple[Api, ...]:
    named = target.api or api_of(target.url)
    if workload.turns is not None and named not in (None, "chat", "completions"):
        raise UsageError(f"a session of several turns cannot be held with /{named}")
    if workload.images and named not in (None, "chat", "infer"):
        raise UsageError(f"/{named} takes no images", hint=("use --api chat, or --api infer",))
    if named is None and (workload.turns is not None or workload.images):
        return ("chat", "infer") if workload.images else ("chat", "completions")
    return (named,) if named else _CANDIDATES[workload.task]


def _sources(
    target: Target, manner: Manner, workload: Workload, options: BenchOptions, seed: int
) -> Iterator[Prompts]:
    """Ways to make prompts for an interface, the most exact first."""
    seed, api = seed if options.contents is None else options.contents, manner.api
    if api == "infer":
        yield Tensors(inputs=manner.inputs, side=side_of(workload.images), seed=seed)
        return
    if options.prompts is not None:
        yield recorded(Path(options.prompts), api)
        return
    file = tokenizer_file(target.tokenizer) if target.tokenizer else None
    ids = ordinary_ids(file) if file else likely_ids(target.vocab_size) if target.vocab_size else None
    if ids and api in ("completions", "embeddings") and workload.turns is None:
        yield TokenIds(api=api, ids=ids, seed=seed, shared_prefix=workload.shared_prefix)
    coder = encoder(file) if file else None
    if ids is not None and coder is not None:
        write, kind, exact = write_exactly(ids, coder), "random text of exact length", True
    else:
        missing = " (exact lengths need the `tokenizers` package)" if file else ""
        write, kind, exact = write_words, f"random words{missing}", False
    yield Text(
        api=api,
        write=write,
        kind=kind,
        exact=exact,
        seed=seed,
        shared_prefix=workload.shared_prefix,
        documents=options.documents,
    )


def _without(manner: Manner, exchange: Exchange) -> Manner:
    """The same request without what the server names in its complaint, or without all extras."""
    said = b"".join(exchange.pieces).lower()
    fewer = manner
    if b"ignore_eos" in said:
        fewer = replace(fewer, ignore_eos=False)
    if b"stream_options" in said or b"include_usage" in said:
        fewer = replace(fewer, usage_in_stream=False)
    if b"temperature" in said:
        fewer = replace(fewer, temperature=None)
    if fewer != manner:
        return fewer
    return replace(manner, ignore_eos=False, usage_in_stream=False, temperature=None)


def _notes(asked: Manner, agreed: Manner, outcome: Outcome, prompts: Prompts) -> Iterator[str]:
    yield f"prompts: {prompts.kind}"
    if outcome.error:
        yield f"the request before the load failed: {outcome.detail}"
        return
    if outcome.prompt_tokens is None:
        yield "the server reports no token counts"
    if agreed.api not in GENERATES:
        return
    if asked.ignore_eos and not agreed.ignore_eos:
        yield "the server does not know `ignore_eos`: answers may end before the wanted length"
    if asked.stream and not outcome.streamed:
        yield "the server does not stream: there is no time to first token"


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: Sequence[_Model] = ()


def _first_model(exchange: Exchange) -> str | None:
    try:
        found = msgspec.json.decode(read_answer(exchange.pieces, exchange.times_ns).body, type=_Models)
    except (WireError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found.data[0].id if found.data else None
