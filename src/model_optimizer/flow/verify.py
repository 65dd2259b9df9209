"""Verify one candidate: by its file, or through a server when its engine loads the original checkpoint.

The file of such a candidate is the reference's own. To compare it with itself would always pass and say
nothing of the engine, so the engine is started on 127.0.0.1, answers the verifier alone, and is stopped.
"""

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from model_optimizer import verify
from model_optimizer.core import Artifact, Engine, Gate, MoptError, Plan, Progress, RunWorker, Verdict
from model_optimizer.serve import start
from model_optimizer.system import environments
from model_optimizer.verify import Endpoint, limits
from model_optimizer.verify.texts import Texts

CHECKPOINTS = frozenset({"safetensors", "compressed_tensors", "modelopt"})
"""Formats that an engine loads by itself: only a running server shows what it makes of them."""

KEY = "MOPT_API_KEY"
"""Where a server's key is read; the worker that asks the server reads the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Where a verification may write: a folder whose files serve the next one too, the log of a server."""

    scratch: Path
    log: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`served` is how the candidate will be served and by what, None when nothing but its file is known.

    `judge` is the layer: a function with the parameters of `verify_model`, which None stands for.
    """

    candidate: Artifact | Endpoint
    reference: Artifact
    gate: Gate
    texts: Texts
    max_texts: int = limits.MAX_TEXTS
    max_tokens: int = limits.MAX_TOKENS
    free_tokens: int = 0
    judge: Callable[..., Verdict] | None = None
    served: tuple[Plan, Engine] | None = None


def verify_candidate(case: Case, desk: Desk, progress: Progress) -> Verdict:
    """Layer `model`. Raises what `verify_model` and `start` raise, and ToolError for a server that ends."""
    if isinstance(case.candidate, Endpoint):
        return _verdict(case, case.candidate, desk, progress, run=_with_key())
    if case.served is None or not _loads_the_original(*case.served):
        return _verdict(case, case.candidate, desk, progress)
    plan, engine = case.served
    verify.run_reference(
        case.reference,
        run=environments.run_worker,
        scratch=desk.scratch,
        progress=progress,
        texts=case.texts,
        max_texts=case.max_texts,
        max_tokens=case.max_tokens,
        free_tokens=case.free_tokens,
    )
    with start(plan, case.candidate, engine=engine, log=desk.log, progress=progress) as server:
        asked = Endpoint(
            url=server.url, served_name=server.served_name, scheme=plan.scheme, task=case.reference.task
        )
        try:
            return _verdict(case, asked, desk, progress)
        except MoptError as error:
            if server.alive():
                raise
            raise server.why_ended() from error


def _loads_the_original(plan: Plan, engine: Engine) -> bool:
    """A checkpoint, quantized or not, for an engine other than PyTorch, which the verifier runs itself."""
    return plan.format in CHECKPOINTS and not getattr(engine, "BASELINE", False)


def _with_key() -> RunWorker:
    """Workers inherit no secrets; the one that asks a user's server is handed its key, when there is one."""
    key = os.environ.get(KEY, "").strip()
    return functools.partial(environments.run_worker, env={KEY: key}) if key else environments.run_worker


def _verdict(
    case: Case, subject: Artifact | Endpoint, desk: Desk, progress: Progress, *, run: RunWorker | None = None
) -> Verdict:
    judge = case.judge or functools.partial(verify.verify_model, free_tokens=case.free_tokens)
    return judge(
        subject,
        case.reference,
        case.gate,
        run=run or environments.run_worker,
        scratch=desk.scratch,
        progress=progress,
        texts=case.texts,
        max_texts=case.max_texts,
        max_tokens=case.max_tokens,
    )
