"""What bounds the batch of an engine, and what it reuses."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`max_num_seqs` and `max_num_batched_tokens` as vLLM names them. `kv_cache_tokens` is what the KV cache
    of one replica holds, None when it is not known and taken as enough.

    `cached_tokens` of each prompt are found in the prefix cache. `chunked` is chunked prefill: without it a
    prompt is computed in one step of its own. With `whole_prompts` a prompt starts only when all of it has
    room in the cache; without, its first chunk is enough, and it goes on as room becomes free. Without
    `mixed`, steps that compute prompts compute nothing else. A prompt starts only when `reserve` of the
    tokens that are still to be generated have room as well: 0 in vLLM, which takes room back when it must, 1
    where nothing is ever taken back. New requests are looked for every `poll_steps` steps of decoding. With
    `ahead`, what a step computes is decided when the one before it begins (asynchronous scheduling), so that
    a new request waits for one more step. `frontend_ms` and `frontend_token_us` pass before the engine sees a
    request, and for `frontend_busy_ms` of that the server in front of it can do nothing else, so that many at
    once wait for each other there.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    kv_cache_tokens: int | None = None
    cached_tokens: int = 0
    chunked: bool = True
    whole_prompts: bool = True
    mixed: bool = True
    reserve: float = 0.0
    poll_steps: int = 1
    ahead: bool = False
    frontend_ms: float = 0.0
    frontend_token_us: float = 0.0
    frontend_busy_ms: float = 0.0
