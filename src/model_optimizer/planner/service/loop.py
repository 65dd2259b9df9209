"""Continuous batching, event by event: what happens to each request of a load on one replica.

The scheduler is that of vLLM's V1 engine: running sequences first, one token each; then prompts, in order of
arrival, in chunks that fill the token budget; a prompt starts only when a sequence slot and room in the KV
cache are free; when the cache is full, the sequence that started last gives its room back and begins again.
`Limits` turns it into those of SGLang (prompts in steps of their own, room kept for answers) and TensorRT-LLM
(room for whole answers).
Between events nothing changes but the lengths, so that many equal steps are taken at once.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from model_optimizer.core.steps import Batch, StepModel

from .limits import Limits

# A run that is longer than this would not be a quick answer; loads are chosen so that it is not reached.
MOST_STEPS = 400_000
# A sequence grows by at most this share of its length before its step time is looked up again.
LONGEST_JUMP = 64


@dataclass(slots=True)
class Request:
    """Times in milliseconds from the start; `sent` is when the client wrote it."""

    prompt: int
    output: int
    sent: float
    seen: float = 0.0
    first: float | None = None
    last: float | None = None
    done: int = 0
    started: int = 0
    restarts: int = 0


@dataclass(slots=True)
class Outcome:
    """What happened. `full_ms` is the time in which a prompt waited for room in the KV cache, `slots_ms` for
    a sequence slot; `given_back` are tokens of prompts that were begun and lost their room, and are computed
    again; `batch` sums over time (milliseconds times sequences, context, prompt tokens)."""

    requests: list[Request]
    ms: float = 0.0
    steps: int = 0
    preemptions: int = 0
    given_back: int = 0
    full_ms: float = 0.0
    slots_ms: float = 0.0
    sequence_steps: float = 0.0
    context_steps: float = 0.0
    prompt_tokens: float = 0.0
    pairs: float = 0.0
    chunks: float = 0.0
    unfinished: int = 0

    def mean_batch(self) -> Batch:
        """The mean of all steps: what an average step computes."""
        steps = max(self.steps, 1)
        sequences = self.sequence_steps / steps
        return Batch(
            sequences=sequences,
            context=self.context_steps / self.sequence_steps if self.sequence_steps else 0.0,
            tokens=self.prompt_tokens / steps,
            chunks=self.chunks / steps,
            pairs=self.pairs / steps,
        )


@dataclass(slots=True)
class _Prompt:
    request: int
    left: int
    before: int


@dataclass(slots=True)
class Replica:
    """The engine's state; `run` takes it from empty to the end of the load."""

    model: StepModel
    limits: Limits
    requests: list[Request]
    follow: Callable[[Request], Request | None]
    outcome: Outcome = field(init=False)
    now: float = 0.0
    step: int = 0
    arrivals: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    waiting: deque[int] = field(default_factory=deque[int])
    prompts: list[_Prompt] = field(default_factory=list[_Prompt])
    running: dict[int, int] = field(default_factory=dict[int, int])
    ends: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    context: int = 0
    loaded: int = 0
    to_come: int = 0
    polled: int = 0
    began: float = 0.0
    front: float = 0.0

    def __post_init__(self) -> None:
        self.outcome = Outcome(requests=self.requests)
        for index, request in enumerate(self.requests):
            self._send(index, request)

    def run(self) -> Outcome:
        while self.arrivals or self.waiting or self.prompts or self.running:
            self._arrive()
            if not (self.waiting or self.prompts or self.running):
                self.now = self.arrivals[0][0]
                continue
            self._make_room()
            chunks = self._schedule()
            if chunks:
                self._mixed(chunks)
            elif self.running:
                self._decode()
            else:
                self._give_up()
            if self.outcome.steps > MOST_STEPS:
                break
        left = [r for r in self.requests if r.last is None]
        self.outcome.unfinished = len(left)
        self.outcome.ms = self.now
        return self.outcome

    def _send(self, index: int, request: Request) -> None:
        """A request reaches the engine after the front end has read it."""
        limits = self.limits
        begun = max(request.sent, self.front)
        self.front = begun + limits.frontend_busy_ms
        request.seen = begun + limits.frontend_ms + request.prompt * limits.frontend_token_us / 1e3
        heappush(self.arrivals, (request.seen, index))

    def _arrive(self) -> None:
        every = self.limits.poll_steps
        if every > 1 and self.running and self.step < self.polled + every:
            return
        self.polled = self.step
        busy = self.limits.ahead and (self.running or self.prompts)
        decided = self.began if busy else self.now
        while self.arrivals and self.arrivals[0][0] <= decided:
            self.waiting.append(heappop(self.arrivals)[1])

    def _give_up(self) -> None:
        """Nothing runs and nothing can start: the prompt is larger than the whole cache.

        Where several are begun, all but the first give their room back before one is given up.
        """
        began = [p for p in self.prompts[1:] if p.before > self.limits.cached_tokens]
        if began:
            self._give_back(sum(p.before - self.limits.cached_tokens for p in began))
        elif self.prompts:
            prompt = self.prompts.pop()
            self.loaded -= prompt.before - min(self.limits.cached_tokens, prompt.before)
        else:
            self.waiting.popleft()

    def _used(self) -> int:
        """Tokens in the cache; a prefix that all share is there once."""
        shared = self.limits.cached_tokens * (len(self.running) - 1) if self.running else 0
        return self.context + self.loaded - max(shared, 0)

    def _make_room(self) -> None:
        room = self.limits.kv_cache_tokens
        if room is None:
            return
        self._give_back(self._used() + len(self.running) - room)
        while len(self.running) > 1 and self._used() + len(self.running) > room:
            index, _ = self.running.popitem()
            request = self.requests[index]
            made = self.step - request.started + 1
            self.context -= self._length(request) + made
            request.done += made
            self.to_come -= request.output - request.done
            request.restarts += 1
            self.outcome.preemptions += 1
            self.waiting.appendleft(index)

    def _give_back(self, needed: int) -> None:
        """Prompts that are not complete give up room first, the newest one before all others.

        Blocks are freed from the end, and what is left of them is found again in the prefix cache.
        """
        for prompt in reversed(self.prompts):
            if needed <= 0:
                return
            given = min(needed, prompt.before - min(self.limits.cached_tokens, prompt.before))
            self.outcome.given_back += given
            prompt.before -= given
            prompt.left += given
            self.loaded -= given
            needed -= given

    def _length(self, request: Request) -> int:
        """Tokens of its own in the cache when its first token of this start appears."""
        return request.prompt + request.done

    def _schedule(self) -> list[tuple[_Prompt, int]]:
        """Chunks of prompts for the next step: (prompt, tokens)."""
        limits = self.limits
        budget = limits.max_num_batched_tokens - (len(self.running) if limits.mixed else 0)
        room = limits.kv_cache_tokens
        free = None if room is None else room - self._used() - len(self.running)
        # What the prompts before still have to load, and room that is kept for answers.
        owed = int(limits.reserve * self.to_come)
        if limits.whole_prompts:
            owed += sum(prompt.left for prompt in self.prompts)
        chunks: list[tuple[_Prompt, int]] = []
        for prompt in self.prompts:
            if budget <= 0 or (free is not None and free <= 0):
                break
            count = min(prompt.left, budget) if free is None else min(prompt.left, budget, free)
            chunks.append((prompt, count))
            budget -= count
            if limits.whole_prompts:
                owed -= count
            free = None if free is None else free - count
        while self.waiting and budget > 0:
            if len(self.running) + len(self.prompts) >= limits.max_num_seqs:
                break
            request = self.requests[self.waiting[0]]
            reused = min(limits.cached_tokens, request.prompt - 1) if not request.restarts else 0
            new = request.prompt + request.done - reused
            answer = request.output - request.done
            alone = not (self.running or self.prompts)
            wanted = new if limits.whole_prompts or not limits.chunked else min(new, budget)
            if free is not None and wanted + (0 if alone else int(limits.reserve * answer)) > free - owed:
                break
            if not limits.chunked and new > budget and chunks:
                break
            prompt = _Prompt(self.waiting.popleft(), new, reused)
            self.prompts.append(prompt)
            self.to_come += answer
            owed += int(limits.reserve * answer)
            count = min(new, budget) if limits.chunked else new
            chunks.append((prompt, count))
            budget -= count
            if limits.whole_prompts:
                owed += new - count
            free = None if free is None else free - count
        return chunks

    def _mixed(self, chunks: list[tuple[_Prompt, int]]) -> None:
        tokens, pairs = 0, 0.0
        for prompt, count in chunks:
            tokens += count
            pairs += count * (prompt.before + count / 2)
        sequences = len(self.running) if self.limits.mixed else 0
        batch = Batch(
            sequences=sequences,
            context=self.context / sequences if sequences else 0.0,
            tokens=tokens,
            chunks=len(chunks),
            pairs=pairs,
        )
        outcome = self.outcome
        if self.limits.mixed:
            self._advance(self.model.mixed_ms(batch), 1)
        else:
            self.began = self.now
            self.now += self.model.mixed_ms(batch)
            outcome.steps += 1
            self.polled = self.step - self.limits.poll_steps
        outcome.prompt_tokens += tokens
        outcome.pairs += pairs
        outcome.chunks += len(chunks)
        for prompt, count in chunks:
            prompt.left -= count
            prompt.before += count
            self.loaded += count
            if not prompt.left:
                self._first_token(prompt)
        self.prompts = [p for p in self.prompts if p.left]

    def _first_token(self, prompt: _Prompt) -> None:
        """The prompt is computed: its first token appears, and it decodes from the next step on."""
        request = self.requests[prompt.request]
        own = (
            request.prompt
            + request.done
            - min(self.limits.cached_tokens, request.prompt - 1) * (not request.restarts)
        )
        self.loaded -= own
        if request.first is None:
            request.first = self.now
        self.to_come -= 1
        left = request.output - request.done - 1
        if left <= 0:
            self._finish(prompt.request)
            return
        request.started = self.step
        self.running[prompt.request] = self.step
        self.context += self._length(request) + 1
        heappush(self.ends, (self.step + left, request.restarts, prompt.request))

    def _decode(self) -> None:
        """As many steps as nothing happens in, at the time of the middle one."""
        steps = self._next_end() - self.step
        sequences = len(self.running)
        room = self.limits.kv_cache_tokens
        if room is not None and sequences > 1:
            steps = min(steps, (room - self._used()) // sequences)
        mean = self.context / sequences
        steps = max(1, min(steps, LONGEST_JUMP + int(mean / 16)))
        if self.arrivals and len(self.running) < self.limits.max_num_seqs:
            each = self.model.decode_ms(sequences, mean)
            until = int((self.arrivals[0][0] - self.now) / each) + 1
            steps = max(1, min(steps, max(until, self.polled + self.limits.poll_steps - self.step)))
        ms = steps * self.model.decode_ms(sequences, mean + (steps - 1) / 2)
        if self.prompts or self.waiting:
            if len(self.running) + len(self.prompts) >= self.limits.max_num_seqs:
                self.outcome.slots_ms += ms
            else:
                self.outcome.full_ms += ms
        self._advance(ms, steps)

    def _next_end(self) -> int:
        while True:
            end, restarts, index = self.ends[0]
            if index in self.running and self.requests[index].restarts == restarts:
                return end
            heappop(self.ends)

    def _advance(self, ms: float, steps: int) -> None:
        sequences = len(self.running)
        outcome = self.outcome
        outcome.steps += steps
        outcome.sequence_steps += steps * sequences
        outcome.context_steps += steps * (self.context + sequences * (steps - 1) / 2)
        self.began = self.now + ms * (steps - 1) / steps
        self.now += ms
        self.step += steps
        self.context += steps * sequences
        self.to_come -= steps * sequences
        while self.ends and self.ends[0][0] <= self.step:
            _, restarts, index = heappop(self.ends)
            if index in self.running and self.requests[index].restarts == restarts:
                request = self.requests[index]
                self.context -= self._length(request) + self.step - request.started + 1
                del self.running[index]
                self._finish(index)

    def _finish(self, index: int) -> None:
        request = self.requests[index]
        request.last = self.now
        after = self.follow(request)
        if after is not None:
            self.requests.append(after)
            self._send(len(self.requests) - 1, after)
