"""From the keys of a config.json, and the headers beside it where there are any, to a ModelSpec."""

from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType

from model_optimizer.core import ModelSpec, UsageError, plugins
from model_optimizer.system.safetensors_header import Tensor

from . import headers, quantization
from .config import Config
from .decoder import label_count
from .headers import Counted
from .shape import Shape
from .task import ReadBeside, purpose

FAMILIES = "model_optimizer.system.models.families"
NAMES = {
    "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64", "F32": "fp32", "F16": "fp16",
    "BF16": "bf16", "F64": "fp64", "F8_E4M3": "fp8", "F8_E5M2": "fp8", "I8": "int8",
}  # fmt: skip
# Of the count from the config, beyond which the headers are said to disagree with it.
TOLERANCE = 0.001


def build(
    config: Config,
    *,
    name: str,
    provenance: str,
    path: str | None = None,
    beside: ReadBeside = lambda _: None,
    tensors: Mapping[str, Tensor] | None = None,
    checkpoint_bytes: int | None = None,
    sidecar: Mapping[str, object] | None = None,
) -> ModelSpec:
    """`sidecar` is ModelOpt's hf_quant_config.json. UsageError when the config cannot be understood."""
    family = family_of(config)
    shape: Shape = family.shape(config)
    if any(w.copies < 0 or min(w.shape) < 0 for w in shape.weights):
        config.contradiction("numbers of layers that do not add up")
    config.require_complete()
    use = purpose(config, name, label_count(config), beside)
    if use.task == "embed" and not config.architecture.endswith("ForMaskedLM"):
        # An embedding model made of a language model is stored and served without the head.
        shape = _without(shape, "head")
    if config.architecture.endswith("Model") and use.task != "generate":
        shape = replace(
            shape, weights=tuple(replace(w, name=w.name.removeprefix("model.")) for w in shape.weights)
        )
    format_of = quantization.read(config.outer, sidecar)
    counted = None
    if tensors:
        counted = headers.count(tensors, layers=shape.layers, tied=shape.tied, quantization=format_of)
    if counted and not counted.further:
        shape = _without(shape, "mtp")
    expected = _parameters(shape)
    notes = [*config.notes, *_notes(config, shape, counted, expected, use.because)]
    return ModelSpec(
        name=name,
        path=path,
        architecture=config.architecture,
        model_type=config.model_type,
        task=use.task,
        parameters=counted.parameters if counted else expected,
        active_parameters=_active(shape, counted, expected),
        embedding_parameters=_of_role(shape, "embedding"),
        head_parameters=_of_role(shape, "head"),
        parameters_source="header" if counted else "config",
        checkpoint_bytes=checkpoint_bytes,
        dtype=_dtype(config, counted),
        layers=shape.layers,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        vocab_size=shape.vocab_size,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        attention=shape.attention,
        groups=tuple(g for g in shape.groups if g.layers),
        experts=shape.experts,
        tied_embeddings=shape.tied,
        max_position=shape.max_position,
        pooling=use.pooling,
        labels=use.labels,
        quantization=format_of,
        config=config.outer,
        provenance=provenance,
        vision_parameters=_encoder(shape, counted),
        mtp_parameters=counted.further if counted else _of_role(shape, "mtp"),
        weights=tuple(w for w in (*shape.weights, *(shape.encoder or ())) if w.copies),
        remote_code=not shape.in_transformers,
        notes=tuple(notes),
    )


def family_of(config: Config) -> ModuleType:
    """The file in families/ that knows this model_type. UsageError names what is known when none does."""
    wanted = config.model_type
    if not config.architecture and not wanted:
        raise UsageError(
            f"`{config.name}` names no architecture",
            cause=("`architectures` and `model_type` are missing",),
            hint=("this is not the config.json of a transformers model; take the one beside the weights",),
            reference="model-architecture",
        )
    if not wanted or not config.architecture:
        lacks = "model_type" if not wanted else "architectures"
        raise UsageError(
            f"`{config.name}` does not name the architecture completely",
            cause=(f"missing: `{lacks}`",),
            hint=("take config.json from the model's own repository, unchanged",),
            reference="model-architecture",
        )
    near = wanted.replace("-", "_")
    for name in sorted(plugins.names(FAMILIES), key=lambda n: (-len(n) if near.startswith(n) else 0, n)):
        module = plugins.load(FAMILIES, name)
        if wanted in module.MODEL_TYPES:
            return module
    raise _unknown(config)


def _unknown(config: Config) -> UsageError:
    from difflib import get_close_matches

    known = sorted(t for m in plugins.load_all(FAMILIES).values() for t in m.MODEL_TYPES)
    near = get_close_matches(config.model_type, known, n=3)
    hint = [f"the nearest that are known: {', '.join(near)}"] if near else []
    hint.append(f"known model types: {', '.join(known)}")
    if config.outer.get("auto_map"):
        return UsageError(
            f"`{config.model_type}` loads only with Python code from its repository",
            cause=(
                "`auto_map` in its config.json points to that code, and the product never runs foreign code",
                "no family here knows the architecture by itself",
            ),
            hint=(*hint, "a release of the model in transformers' own architecture can be read"),
            reference="remote-code",
        )
    return UsageError(
        f"the architecture `{config.model_type}` ({config.architecture}) is not known here",
        cause=(f"not understood: `model_type` {config.model_type}, so its sizes cannot be worked out",),
        hint=tuple(hint),
        reference="model-architecture",
    )


def _without(shape: Shape, role: str) -> Shape:
    return replace(shape, weights=tuple(w for w in shape.weights if w.role != role))


def _parameters(shape: Shape) -> int:
    return sum(w.parameters for w in (*shape.weights, *(shape.encoder or ())) if w.role != "mtp")


def _of_role(shape: Shape, role: str) -> int:
    return sum(w.parameters for w in shape.weights if w.role == role)


def _encoder(shape: Shape, counted: Counted | None) -> int | None:
    if counted:
        return counted.encoder
    return None if shape.encoder is None else sum(w.parameters for w in shape.encoder)


def _active(shape: Shape, counted: Counted | None, expected: int) -> int:
    """Of the text model: all weights but those of experts that a token does not visit."""
    idle = sum(w.parameters - w.active_parameters for w in shape.weights if w.role != "mtp")
    if counted:
        return counted.parameters - counted.encoder - idle
    return expected - sum(w.parameters for w in shape.encoder or ()) - idle


def _dtype(config: Config, counted: Counted | None) -> str | None:
    said = config.text("torch_dtype") or config.text("dtype")
    found = said or (counted.dtype if counted else None)
    return NAMES.get(found.removeprefix("torch."), found) if found else None


def _notes(
    config: Config, shape: Shape, counted: Counted | None, expected: int, because: str | None
) -> list[str]:
    notes = [f"task: {because}"] if because else []
    if not shape.in_transformers:
        notes.append(
            f"transformers loads `{config.model_type}` only with Python code from its repository, which is "
            "refused here; engines with an implementation of their own (vLLM) do without"
        )
    elif config.outer.get("auto_map"):
        notes.append(
            "the repository brings Python code, which is not used: the architecture is known without it"
        )
    if counted and shape.encoder is not None and abs(counted.parameters - expected) > TOLERANCE * expected:
        notes.append(
            f"the headers hold {counted.parameters:,} parameters, its config.json describes {expected:,}: "
            "the headers count"
        )
    return notes
