"""True parameter counts, from the modules that transformers builds on the meta device (no download).

    python tools/count_parameters.py tests/data/models/configs.json tests/data/models/parameter_counts.json

Needs an environment with torch and transformers (`mopt env create onnx` makes one). The first file maps a
name to the keys of its config.json (for a multimodal model: those of text_config merged in, and
vision_config when its encoder is to be counted); the second is written from it. `--tensors` also prints
every weight with its shape, numbers in names replaced by `*`, which is how a new family is checked.

A key `as` counts an entry as something else: another model_type, or a whole config, for architectures that
transformers has under another name and with other keys.
"""

import argparse
import json
import re
import sys
from collections import Counter
from pathlib import Path

import torch
import transformers
from transformers import CONFIG_MAPPING

VISION = re.compile(r"(^|\.)(visual|vision_tower|vision_model|multi_modal_projector|embed_vision)\.")
SEQUENTIAL = re.compile(r"(?<=\.)\d+(?=\.)")


def expanded(keys: dict) -> dict:
    """Layers may be counted by kind; transformers wants one name a layer."""
    kinds = keys.get("layer_types")
    if not isinstance(kinds, dict):
        return keys
    return keys | {"layer_types": [kind for kind, count in kinds.items() for _ in range(count)]}


def configuration(keys: dict) -> transformers.PretrainedConfig:
    keys = expanded(keys)
    plain = {
        key: value for key, value in keys.items() if key not in ("as", "architectures", "quantization_config")
    }
    model_type = plain.pop("model_type")
    kind = CONFIG_MAPPING[model_type]
    if "text_config" not in kind.sub_configs or "text_config" in plain:
        return kind(**plain)
    outer = {
        key: plain.pop(key) for key in ("vision_config", "audio_config", "spatial_merge_size") if key in plain
    }
    if "tie_word_embeddings" in plain:
        outer["tie_word_embeddings"] = plain["tie_word_embeddings"]
    return kind(text_config=plain, **outer)


def build(keys: dict) -> torch.nn.Module:
    other = keys.get("as", keys)
    keys = {**keys, "model_type": other} if isinstance(other, str) else other
    kind = getattr(transformers, keys["architectures"][0], transformers.AutoModelForCausalLM)
    with torch.device("meta"):
        config = configuration(keys)
        return kind(config) if hasattr(kind, "config_class") else kind.from_config(config)


def count(keys: dict, *, show: bool) -> dict:
    model = build(keys)
    model.tie_weights()
    weights = dict(model.named_parameters())  # a tied weight appears once
    if show:
        shapes = Counter((SEQUENTIAL.sub("*", n), tuple(w.shape)) for n, w in weights.items())
        for (name, shape), copies in shapes.items():
            print(f"  {copies:5d} x {name} {shape}")
    try:
        embedding = model.get_input_embeddings()
    except NotImplementedError:  # convolutional networks look nothing up
        embedding = None
    head = model.get_output_embeddings()
    own_head = head is not None and getattr(embedding, "weight", None) is not head.weight
    return {
        "parameters": sum(w.numel() for w in weights.values()),
        "token_embedding": embedding.weight.numel() if hasattr(embedding, "weight") else 0,
        "head": sum(w.numel() for w in head.parameters()) if own_head else 0,
        "vision": sum(w.numel() for n, w in weights.items() if VISION.search(n)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("configs", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--only", help="a part of a name")
    parser.add_argument("--tensors", action="store_true")
    options = parser.parse_args()
    counts = {}
    for name, keys in json.loads(options.configs.read_text()).items():
        if options.only and options.only.lower() not in name.lower():
            continue
        try:
            counts[name] = count(keys, show=options.tensors)
        except Exception as error:  # noqa: BLE001 - one architecture that does not build must not hide the others
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        print(f"{name}: {counts[name]}")
    if options.out:
        made = {"transformers": transformers.__version__, "torch": torch.__version__.partition("+")[0],
                "device": "meta", "script": "tools/count_parameters.py"}  # fmt: skip
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in counts.items())
        options.out.write_text(f'{{\n "made_with": {json.dumps(made)},\n "counts": {{\n{rows}\n }}\n}}\n')


if __name__ == "__main__":
    main()
