"""What a user points at: a run, a plan, an artefact folder, or a model; to what is served and how."""

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from model_optimizer.core import (
    Artifact,
    Engine,
    Host,
    ModelSpec,
    MoptError,
    Plan,
    Run,
    Scheme,
    Setting,
    UsageError,
    codec,
)
from model_optimizer.core.digest import of_path
from model_optimizer.system import gguf_header, models
from model_optimizer.system.runs import RunFolder

from . import engine_files
from .plain import Wish, plain_plan, with_settings

FACTS = "mopt.json"
DUMMY = "load-format=dummy"
"""Weights that an engine makes up: what a shape needs, without its weights."""

SAME = {
    "max_model_len": ("max_model_len", "max-model-len", "ctx-size"),
    "max_num_seqs": ("max_num_seqs", "max-num-seqs", "max_batch_size", "parallel"),
    "max_num_batched_tokens": ("max_num_batched_tokens", "max-num-batched-tokens", "max_batched_tokens"),
}
"""What engines call the settings that every command has an option for."""

LENGTH = "max_model_len"
"""Of one request, where the engine counts all at once, too."""

GGUF = {"F32": "fp32", "F16": "fp16", "BF16": "bf16", "Q8_0": "int8_weight"}
"""Number formats of a GGUF file whose name says more than its bits; others are in 4 bits or near."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What `start` is given."""

    plan: Plan
    artifact: Artifact


class _Facts(msgspec.Struct, frozen=True):
    """What is read of the mopt.json in an artefact folder."""

    task: str | None = None
    scheme: str | None = None


def resolve(
    target: str, wish: Wish, host: Host, *, engines: Mapping[str, Engine], schemes: Mapping[str, Scheme]
) -> Order:
    """Read what `target` names. Raises UsageError when it cannot be served, MoptError when it must not be."""
    path = Path(target)
    if path.is_dir() and (path / "run.json").is_file():
        order = _winner(RunFolder(path))
    elif path.suffix == ".json" and path.name != "config.json":
        order = _planned(path, wish)
    else:
        return _plain(target, wish, host, engines, schemes)
    if wish.engine or wish.scheme:
        raise UsageError(
            f"`{target}` has decided engine and scheme",
            cause=(f"{order.plan.engine} in {order.plan.scheme}",),
            hint=("leave --engine and --scheme out, or name the model instead of the plan",),
        )
    engine = engines.get(order.plan.engine)
    return dataclasses.replace(order, plan=_set(order.plan, wish.settings, engine))


def _winner(run: RunFolder) -> Order:
    found = run.read(Run, "run")
    if found is None or found.winner is None:
        because = found.because if found else None
        raise UsageError(
            f"the run `{run.path.name}` chose nothing to serve",
            cause=(because,) if because else (),
            hint=(f"finish it with `mopt optimize --resume {run.path}`",),
        )
    return _candidate(run, found.winner)


def _candidate(run: RunFolder, name: str) -> Order:
    candidate = run.candidate(name)
    failed = [v for v in candidate.verdicts if v.outcome == "fail"]
    if failed:
        raise MoptError(
            f"`{name}` failed verification and is not served",
            cause=tuple(v.because or f"layer {v.layer}" for v in failed),
            hint=(f"`mopt report {run.path}` shows how far it is from the original",),
            reference="not-verified",
        )
    if candidate.artifact is None:
        raise UsageError(
            f"the artefact of `{name}` is not in the run",
            hint=(f"make it with `mopt optimize --resume {run.path}`",),
        )
    if models.content_digest(Path(candidate.artifact.path)) != candidate.artifact.digest:
        raise MoptError(
            f"the artefact of `{name}` is not the one that was verified",
            cause=(f"the content of {candidate.artifact.path} has changed",),
            hint=(f"make it again with `mopt optimize --resume {run.path}`",),
            reference="not-verified",
        )
    return Order(plan=candidate.plan, artifact=candidate.artifact)


def _planned(path: Path, wish: Wish) -> Order:
    """A plan.json: of a run, or one whose checkpoint needs no making, or one with random weights."""
    plan = codec.load(path, Plan)
    if (path.parent / "run.json").is_file():
        return _winner(RunFolder(path.parent))
    if path.parent.parent.name == "candidates":
        return _candidate(RunFolder(path.parents[2]), path.parent.name)
    if not plan.feasible or plan.path:
        raise UsageError(
            f"`{path}` plans an artefact that is not beside it",
            cause=(f"it is made by {', '.join(plan.path)}",) if plan.path else ("the plan is not feasible",),
            hint=("make it with `mopt quantize` or `mopt convert`, and serve its folder",),
        )
    if DUMMY in {f"{name.replace('_', '-')}={value}" for name, value in wish.settings.items()}:
        return Order(plan=plan, artifact=_without_weights(plan))
    return Order(plan=plan, artifact=models.checkpoint_artifact(models.read(plan.checkpoint)))


def _without_weights(plan: Plan) -> Artifact:
    """A folder whose config.json says the shape; the engine makes up the weights."""
    config = Path(plan.checkpoint) / "config.json"
    if not config.is_file():
        raise UsageError(
            f"`{plan.checkpoint}` is no folder with a config.json",
            hint=("random weights still need the shape and a tokenizer",),
        )
    return Artifact(
        path=str(config.parent.absolute()),
        format=plan.format,
        scheme=plan.scheme,
        task=plan.workload.task,
        bytes=0,
        digest=f"random weights, {of_path(config)}",
    )


def _plain(
    target: str, wish: Wish, host: Host, engines: Mapping[str, Engine], schemes: Mapping[str, Scheme]
) -> Order:
    folder = Path(target)
    if (folder / engine_files.FILE).is_file():
        plan, artifact = engine_files.planned(folder, wish, host, engines)
        return Order(plan=_set(plan, wish.settings, engines[plan.engine]), artifact=artifact)
    if folder.suffix.lower() == ".gguf":
        return _gguf(folder, wish, host, engines, schemes)
    model = models.read(target)
    made = _artifact(folder, wish.scheme, model.task) if folder.is_dir() else None
    artifact = made or models.checkpoint_artifact(model)
    if wish.scheme and wish.scheme not in schemes:
        raise UsageError(f"there is no scheme `{wish.scheme}`", hint=(f"known: {', '.join(schemes)}",))
    bare = dataclasses.replace(wish, settings={})
    plan = plain_plan(model, artifact, bare, host, engines=engines, schemes=schemes)
    engine = engines[plan.engine]
    plan = _set(plan, wish.settings, engine)
    return Order(plan=_followed(plan, model, schemes[plan.scheme], engine), artifact=artifact)


def _gguf(
    file: Path, wish: Wish, host: Host, engines: Mapping[str, Engine], schemes: Mapping[str, Scheme]
) -> Order:
    """A GGUF file, as it is. Raises UsageError when it is none."""
    found = gguf_header.model(file)
    model = dataclasses.replace(gguf_header.spec(found), name=file.stem)
    scheme = wish.scheme or GGUF.get(found.format, "int4_rtn")
    artifact = Artifact(
        path=str(file.absolute()),
        format="gguf",
        scheme=scheme,
        task="generate",
        bytes=file.stat().st_size,
        digest=f"{file.stat().st_size}-{int(file.stat().st_mtime)}",
    )
    bare = dataclasses.replace(wish, settings={})
    plan = plain_plan(model, artifact, bare, host, engines=engines, schemes=schemes)
    engine = engines[plan.engine]
    plan = _set(plan, wish.settings, engine)
    return Order(plan=_followed(plan, model, schemes[plan.scheme], engine), artifact=artifact)


def _artifact(folder: Path, scheme: str | None, task: str) -> Artifact | None:
    """An ONNX folder as the artefact that it is; None for a checkpoint. It needs no digest to be served."""
    if not any(folder.glob("*.onnx")):
        return None
    facts = _facts(folder / FACTS)
    form = "onnx_genai" if (folder / "genai_config.json").is_file() else "onnx"
    named = scheme or facts.scheme
    if named is None:
        raise UsageError(
            f"nothing says in which number format `{folder}` is",
            cause=(f"there is no {FACTS} in it",),
            hint=("add --scheme, for example --scheme int8",),
        )
    return Artifact(
        path=str(folder.absolute()),
        format=form,
        scheme=named,
        task=facts.task or ("generate" if form == "onnx_genai" else task),
        bytes=sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()),
        digest="",
    )


def _facts(path: Path) -> _Facts:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Facts)
    except FileNotFoundError:
        return _Facts()
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"`{path}` cannot be read", cause=(str(error),)) from error


def _set(plan: Plan, wished: Mapping[str, str], engine: Engine | None) -> Plan:
    """The plan with a user's settings, by the names that its engine has for them.

    UsageError for one that the engine would not be told: it would change nothing, and nobody would notice.
    """
    takes: frozenset[str] = getattr(engine, "TAKES", frozenset())
    mine = {spelled(name, plan, takes): value for name, value in wished.items()}
    made = with_settings(plan, mine)
    length = next((value for name, value in wished.items() if name.replace("-", "_") == LENGTH), "")
    own = spelled(LENGTH, plan, takes) if length.isdecimal() else ""
    shared: str | None = getattr(engine, "SHARED", {}).get(own)
    if shared is None:
        return made
    requests = made.setting(shared) or "1"
    if not requests.isdecimal() or int(requests) < 1:
        raise UsageError(
            f"`{shared}` is a number from 1 on, not `{requests}`",
            hint=(f"name how many requests are to be answered at once: --set {shared}=4",),
        )
    whole = Setting(
        name=own,
        value=str(int(length) * int(requests)),
        because=f"{length} tokens for each of {requests} requests at once",
        source="user",
    )
    return dataclasses.replace(made, settings=tuple(whole if s.name == own else s for s in made.settings))


def _followed(plan: Plan, model: ModelSpec, scheme: Scheme, engine: Engine) -> Plan:
    """What hangs on the settings that a user named."""
    follow: Callable[[Plan, ModelSpec, Scheme], Plan] | None = getattr(engine, "follow", None)
    return follow(plan, model, scheme) if follow else plan


def spelled(name: str, plan: Plan, takes: frozenset[str]) -> str:
    """The engine's own name for a setting, as a user may write it; UsageError for one that it is not handed.

    With no `takes` nothing is known of the engine, and the name stays as it is.
    """
    plain = name.replace("-", "_")
    words = (*SAME.get(plain, ()), plain, plain.replace("_", "-"))
    known = takes | {s.name for s in plan.settings}
    found = next((word for word in words if word in known), None)
    if found is not None:
        return found
    if not takes:
        return name
    near = difflib.get_close_matches(name, takes, n=2)
    raise UsageError(
        f"`{plan.engine}` has no setting `{name}` that mopt can hand it",
        hint=(
            *(f"did you mean `{word}`?" for word in near),
            f"it takes {', '.join(sorted(takes))}",
            "variables of its environment: --env NAME=VALUE",
        ),
    )
