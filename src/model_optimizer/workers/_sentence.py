"""How an embedding model turns hidden states into one vector, as its sentence-transformers files say."""

from pathlib import Path
from typing import Any

from _checkpoint import read_json
from _contract import fail

POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
}


def read_sentence(folder: Path, config: dict[str, Any]) -> tuple[str, bool, str | None]:
    """(pooling, normalize, note): mean, cls or lasttoken, and whether vectors get length 1.

    Without modules.json an encoder is pooled by mean without normalisation, as sentence-transformers
    does, and the note says so; for a decoder there is no such custom and it is refused.
    """
    modules = folder / "modules.json"
    if not modules.is_file():
        return _without_modules(config)
    listed = read_json(modules)
    if not isinstance(listed, list) or not all(isinstance(module, dict) for module in listed):
        fail("broken-checkpoint", "modules.json is not a list of modules")
    pooling, normalize = None, False
    for module in listed:
        kind = str(module.get("type", "")).rpartition(".")[2]
        if kind == "Pooling":
            pooling = _pooling(_inside(folder, str(module.get("path", ""))) / "config.json")
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer":
            fail(
                "unsupported-model",
                f"the embedding model has a module `{kind}`, which is not supported",
                hint=["Transformer, Pooling and Normalize are"],
            )
    if pooling is None:
        fail("unsupported-model", "modules.json names no pooling")
    return pooling, normalize, None


def _without_modules(config: dict[str, Any]) -> tuple[str, bool, str | None]:
    if str(config["architectures"][0]).endswith("ForCausalLM") or _is_decoder(config):
        fail(
            "unsupported-model",
            "nothing says how this model pools its hidden states",
            ["there is no modules.json"],
            ["copy modules.json and 1_Pooling/ of the original model beside its weights"],
        )
    return "mean", False, "no modules.json: pooled by mean, not normalised, as sentence-transformers does"


def _is_decoder(config: dict[str, Any]) -> bool:
    """RMS normalisation or key-value heads: the marks of today's decoders in config.json."""
    return "rms_norm_eps" in config or "num_key_value_heads" in config


def _pooling(path: Path) -> str:
    config = read_json(path)
    named = config.get("pooling_mode")
    chosen = [named] if isinstance(named, str) else [k for k in config if k in POOLINGS and config[k] is True]
    chosen = [POOLINGS.get(name, name) for name in chosen]
    extra = [k for k in config if k.startswith("pooling_mode_") and k not in POOLINGS and config[k] is True]
    if len(chosen) != 1 or extra or chosen[0] not in POOLINGS.values():
        asked = ", ".join([*chosen, *(name.removeprefix("pooling_mode_") for name in extra)]) or "none"
        fail(
            "unsupported-model",
            f"pooling by `{asked}` is not supported",
            hint=["mean, cls and lasttoken are, one at a time"],
        )
    return chosen[0]


def _inside(folder: Path, part: str) -> Path:
    """A path from a file of the model, which must not lead out of its folder."""
    path = (folder / part).resolve()
    if not path.is_relative_to(folder.resolve()):
        fail("broken-checkpoint", "modules.json points outside the model's folder", [part])
    return path
