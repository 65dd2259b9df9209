"""Layer `service`: ask a server alone and at once, load it with the bench client, look at its counters."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from statistics import median

from model_optimizer.bench.options import BenchOptions
from model_optimizer.bench.run import measure
from model_optimizer.bench.target import Target
from model_optimizer.core import (
    Lengths,
    LoadPoint,
    MoptError,
    Progress,
    Scheme,
    Task,
    UsageError,
    Verdict,
    Workload,
)
from model_optimizer.serve import list_served
from model_optimizer.system import files, telemetry
from model_optimizer.verify.service import slows_down, starves, verify_service
from model_optimizer.verify.service_seen import Feature, Resting, Said, Seen, Told

from .verify_inside import Inside
from .verify_service_ask import KEY, PROMPTS, TIMEOUT_S, TOKENS, Asker
from .verify_service_features import features

IDLE_S = 5.0
SERVERS = "servers"
"""Where `mopt serve` keeps its servers, in the folder of the user's data."""


def verify(
    url: str, inside: Inside, *, progress: Progress, seed: int = 0, told: Told | None = None
) -> Verdict:
    """Layer `service` of a server on this machine. Raises HostError, UsageError when it cannot be asked.

    `told` is the number format that it computes in, None where nobody says it.
    """
    asker = Asker(url, inside.model)
    progress("one at a time", 0.0)
    ask, task, alone = _alone(asker)
    glance = telemetry.Glance(telemetry.What(url=url, pid=None, host=False, key_env=KEY))
    try:
        before, work = _at_rest(glance), yardstick_s()
        progress(f"{inside.concurrency} at a time", 0.2)
        with ThreadPoolExecutor(inside.concurrency) as pool:
            order = [(n * 7 + n // PROMPTS) % PROMPTS for n in range(inside.requests)]
            together = tuple(pool.map(ask, order))
            odd = slows_down(together, inside.concurrency) or starves(together, inside.concurrency)
            again = tuple(pool.map(ask, order)) if odd else ()
        slower = yardstick_s() / work if again else 1.0
        listed = asker.embed_all() if task == "embed" else ()
        # What may end a server comes last: a model without a grammar for its tokens has done so.
        progress("load", 0.5)
        point, broke = _load(url, asker.model, inside, seed, task)
        if point and point.rises:  # others may have worked here too
            progress("load, once more", 0.65)
            point, broke = _load(url, asker.model, inside, seed, task)
        promised: tuple[Feature, ...] = ()
        if task == "generate":
            progress("what the interface promises", 0.8)
            promised = features(asker, inside.concurrency)
        after = _at_rest(glance)
    finally:
        glance.close()
    seen = Seen(
        url=url, concurrency=inside.concurrency, markers=asker.markers, alone=alone, together=together,
        again=again, listed=listed, point=point, broke=broke, machine_slower=slower, features=promised,
        told=told or Told(),
        resting=Resting(
            running=after.get("engine.running"),
            kv_before=before.get("engine.kv_usage"),
            kv_after=after.get("engine.kv_usage"),
        ),
    )  # fmt: skip
    return verify_service(seen, inside.slo)


def yardstick_s() -> float:
    """Seconds on the clock for a few milliseconds of work, the median of some: others make it longer."""

    def once() -> float:
        began = time.perf_counter()
        sum(n * n for n in range(100_000))
        return time.perf_counter() - began

    return median(once() for _ in range(15))


def told_of(url: str, scheme: Scheme | None, schemes: Callable[[str], Scheme]) -> Told:
    """The number format of a server: what the user names, else what `mopt serve` keeps of it."""
    if scheme is not None:
        return Told(scheme=scheme, by="--scheme")
    port = url.rpartition(":")[2]
    for served in list_served(files.data_home() / SERVERS):
        if served.url.rpartition(":")[2] == port:
            with suppress(MoptError):  # it may be of a scheme that was taken out again
                return Told(scheme=schemes(served.scheme), by="`mopt serve`")
    return Told()


def _alone(asker: Asker) -> tuple[Callable[[int], Said], Task, tuple[Said, ...]]:
    """How this server is asked, and its answers one at a time: completions, else vectors."""
    texts = (asker.ask_plainer(), *(asker.ask(n) for n in range(1, PROMPTS)))
    if not all(said.error for said in texts):
        return asker.ask, "generate", texts
    vectors = tuple(asker.embed(n) for n in range(PROMPTS))
    if not all(said.error for said in vectors):
        return asker.embed, "embed", vectors
    raise MoptError(
        f"{asker.url} answers no completion and no embedding",
        cause=(f"/v1/completions: {texts[0].error}", f"/v1/embeddings: {vectors[0].error}"),
        hint=("this layer asks models that generate or embed",),
    )


def _at_rest(glance: telemetry.Glance) -> dict[str, float]:
    """The engine's counters when it says that nothing runs, or after a while."""
    until = time.monotonic() + IDLE_S
    values, _ = glance()
    while values.get("engine.running", 0.0) > 0 and time.monotonic() < until:
        time.sleep(0.1)
        values, _ = glance()
    return values


def _load(url: str, model: str, inside: Inside, seed: int, task: Task) -> tuple[LoadPoint | None, str | None]:
    """The point of the load, or why there is none."""
    work = Workload(
        concurrency=inside.concurrency, requests=inside.requests, prompt_tokens=Lengths.fixed(32),
        output_tokens=Lengths.fixed(TOKENS), task=task,
    )  # fmt: skip
    target = Target(url=url, model=model, api_key_env=KEY if os.environ.get(KEY, "").strip() else None)
    try:
        found = measure(
            target, work, inside.slo, progress=lambda _t, _s: None, seed=seed,
            options=BenchOptions(timeout_s=TIMEOUT_S),
        )  # fmt: skip
    except UsageError:
        raise
    except MoptError as error:
        return None, error.message  # it answered before, and is gone or completes nothing now
    return found.points[-1], None
