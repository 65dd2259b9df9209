"""What a model is for, how its token vectors become one, and how many labels it scores."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import cast

from model_optimizer.core import Task, UsageError

from . import config as keys_of
from .config import Config

ReadBeside = Callable[[str], "bytes | None"]
"""The content of a file beside config.json by its relative name, None when there is none."""

POOLING = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_weightedmean_tokens": "weighted_mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
}
BY_ARCHITECTURE: dict[str, Task] = {
    "ForSequenceClassification": "rerank",
    "ForImageClassification": "vision",
    "ForSegmentation": "vision",
    "ForCausalLM": "generate",
    "LMHeadModel": "generate",
    "ForConditionalGeneration": "generate",
    "ForMaskedLM": "embed",
    "Model": "embed",
}
# Names that end like an encoder's and are a language model all the same.
GENERATES = {"ChatGLMModel", "ChatGLMForConditionalGeneration"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Purpose:
    """`because` says where a task comes from that the architecture alone does not tell."""

    task: Task
    pooling: str | None = None
    labels: int | None = None
    because: str | None = None


def purpose(config: Config, name: str, labels: int, beside: ReadBeside) -> Purpose:
    """From sentence-transformers files, then the list of known models, then the architecture's name."""
    architecture = config.architecture
    if architecture.endswith("ForSequenceClassification"):
        return Purpose(task="rerank", labels=labels)
    if found := _sentence_transformers(beside):
        return found
    known = _known(name)
    if known:
        task, pooling, known_labels, source = known
        return Purpose(task=task, pooling=pooling, labels=known_labels, because=source)
    if architecture in GENERATES:
        return Purpose(task="generate")
    for ending, task in BY_ARCHITECTURE.items():
        if architecture.endswith(ending):
            return Purpose(task=task, labels=labels if task == "vision" else None)
    raise UsageError(
        f"what `{architecture}` is for is not known here",
        cause=(f"known endings: {', '.join(BY_ARCHITECTURE)}",),
        reference="model-architecture",
    )


def _sentence_transformers(beside: ReadBeside) -> Purpose | None:
    """modules.json lists the stages after the encoder; the pooling stage has a config of its own."""
    content = beside("modules.json")
    if content is None:
        return None
    import json

    try:
        modules = json.loads(content)
        stages = (
            [cast("dict[str, object]", m) for m in modules if isinstance(m, dict)]
            if isinstance(modules, list)
            else []
        )
    except ValueError as error:
        raise UsageError(
            "`modules.json` is not valid", cause=(str(error),), reference="model-config"
        ) from None
    kinds = [str(stage.get("type", "")).rpartition(".")[2] for stage in stages]
    if "Transformer" not in kinds:
        return None
    extra = [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]
    because = "modules.json of sentence-transformers" + (f", which adds {', '.join(extra)}" if extra else "")
    for stage, kind in zip(stages, kinds, strict=True):
        path = str(stage.get("path", ""))
        if kind == "Pooling" and path and "/" not in path and ".." not in path:
            content = beside(f"{path}/config.json")
            if content is not None:
                return Purpose(
                    task="embed",
                    pooling=_pooling(keys_of.parse(content, f"{path}/config.json")),
                    because=because,
                )
    return Purpose(task="embed", because=because)


def _pooling(keys: Mapping[str, object]) -> str | None:
    said = keys.get("pooling_mode")
    if isinstance(said, str):
        return {"lasttoken": "last"}.get(said, said)
    chosen = [name for key, name in POOLING.items() if keys.get(key) is True]
    return "+".join(chosen) or None


def _known(name: str) -> tuple[Task, str | None, int | None, str] | None:
    for row in _rows():
        if fnmatch(name.lower(), str(row["id"]).lower()):
            pooling, labels = row.get("pooling"), row.get("labels")
            return (
                cast("Task", row["task"]),
                pooling if isinstance(pooling, str) else None,
                labels if isinstance(labels, int) else None,
                str(row["source"]) + (" (unchecked)" if row.get("checked") is False else ""),
            )
    return None


@cache
def _rows() -> list[dict[str, object]]:
    import tomllib

    return cast(
        "list[dict[str, object]]",
        tomllib.loads(Path(__file__).with_name("known_tasks.toml").read_text())["model"],
    )
