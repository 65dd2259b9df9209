"""How our own server workers are asked: the request of serve_generate, serve_embed or serve_tensors."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from model_optimizer.core import Launch, Plan, UsageError

JOBS = {
    "generate": "serve_generate",
    "embed": "serve_embed",
    "rerank": "serve_embed",
    "vision": "serve_tensors",
}
NUMBERS = ("threads", "max_model_len", "max_batch_size", "max_batched_tokens")
TAKES = frozenset({*NUMBERS, "batch_timeout_ms", "allow_spinning", "host"})
ON_A_GPU = TAKES - {"threads", "allow_spinning"}
ENGINES = ON_A_GPU | {"allow_engine_code"}
"""What servers of built engines take; the last lets a version-compatible engine run the code in it."""

KEY = "MOPT_API_KEY"


def served_name(plan: Plan) -> str:
    """What requests call the model: the last part of its name or path."""
    return PurePath(plan.model).name or "model"


def whole(plan: Plan, name: str) -> int | None:
    """A setting that is a whole number, None where the plan leaves it out. Raises UsageError."""
    value = plan.setting(name)
    if value is None:
        return None
    try:
        return int(value)
    except ValueError:
        raise UsageError(f"the setting `{name}` is a whole number, not `{value}`") from None


def yes(plan: Plan, name: str) -> bool:
    """A setting that is 1 or 0, False where the plan leaves it out. Raises UsageError."""
    value = plan.setting(name) or "0"
    if value not in ("0", "1"):
        raise UsageError(f"the setting `{name}` is 1 or 0, not `{value}`")
    return value == "1"


def launch(plan: Plan, port: int, backend: str, env: Mapping[str, str]) -> Launch:
    """`backend` is the worker's word for what computes; `plan.checkpoint` is what it loads."""
    task = plan.workload.task
    if task not in JOBS:
        raise UsageError(
            f"`{plan.engine}` cannot serve the task `{task}`", hint=(f"it does {', '.join(JOBS)}",)
        )
    timeout = plan.setting("batch_timeout_ms")
    request: dict[str, Any] = {
        "backend": backend,
        **({"task": task} if task == "rerank" else {}),
        "model": plan.checkpoint,
        "served_name": served_name(plan),
        "host": plan.setting("host") or "127.0.0.1",
        "port": port,
        **{name: whole(plan, name) for name in NUMBERS},
        "batch_timeout_ms": float(timeout) if timeout else None,
        "dtype": plan.scheme,
        **({"allow_engine_code": True} if yes(plan, "allow_engine_code") else {}),
        "spin": plan.setting("allow_spinning") == "1",
    }
    assert plan.environment is not None
    return Launch(
        environment=plan.environment,
        job=JOBS[task],
        request=request,
        env=env,
        served_name=served_name(plan),
    )
