"""Run a checkpoint in PyTorch over texts; in float32 it is the truth that others are compared with.

Request: `model` (folder), `task` (generate, embed, rerank), `samples` (JSONL), `out` (file of outputs, see
_outputs.py), `top_k`, `max_tokens`, `free` (None, or the lengths that _outputs_free.py asks for), `dtype`
(float32, bfloat16, float16; default float32), and `at`: null, or the reference's outputs when this checkpoint
is itself the candidate, whose token ids are then used. A candidate's attention is the one that transformers
chooses for it, as when it is served; the truth has the plain one.

Texts run one at a time, so that no padding can touch the truth. Code that lies in the folder is never
run, pickled weights are refused, and a tensor that the checkpoint lacks is an error: the library would fill
it with random numbers and go on. How vectors are pooled is read here anew, not taken from the code that
exported the candidate: a mistake there has to show.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

sys.path.append(str(Path(__file__).resolve().parent))
import _outputs
import _outputs_free
from _checkpoint import check_weights, most_tokens, read_config, read_json, require_loaded, require_tokenizer
from _contract import fail, main, progress

MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
}
SMALL = 20_000_000
"""Parameters below which a second thread costs more in hand-over than it computes."""
UNUSED_HEAD = r"(^|\.)pooler\."
NOTHING = r"(?!)"


def job(request: dict[str, Any]) -> dict[str, Any]:
    folder = Path(request["model"])
    config = read_config(folder)
    check_weights(folder)
    require_tokenizer(folder)
    pooling = pooling_of(folder, config) if request["task"] == "embed" else ""
    # Threads that wait by spinning take the cores from whoever else works on this machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch
    import transformers

    samples = _outputs.read_samples(request["samples"])
    reference = _outputs.Outputs(request["at"]) if request.get("at") else None
    dtype = request.get("dtype") or "float32"
    progress(f"load the model in {dtype}")
    model = load(folder, request["task"], pooling, dtype, plain=reference is None)
    tokenizer = _outputs.load_tokenizer(folder)
    longest = min(request["max_tokens"], most_tokens(folder, config))
    mine = _outputs.tokenize(tokenizer, samples, longest)
    tokens = reference.tokens() if reference else mine
    with torch.inference_mode():
        arrays = run(model, tokens, request, pooling, reference)
    about = {
        "engine": f"torch {torch.__version__}, transformers {transformers.__version__}",
        "dtype": dtype,
        "quantized": False,
        "pad_id": tokenizer.pad_token_id or 0,
        "padding_side": tokenizer.padding_side,
        "max_tokens": longest,
    }
    if reference:
        different, first = _outputs.first_difference(mine, tokens)
        about["token_ids"] = {"checked": len(tokens), "different": different, "first": first}
    _outputs.save(request["out"], tokens, arrays, about)
    return {"texts": len(tokens), "tokens": sum(len(text.ids) for text in tokens)}


def load(folder: Path, task: str, pooling: str, dtype: str = "float32", *, plain: bool = True) -> Any:
    """The model in one float type, every tensor of it from the checkpoint; `plain` has eager attention."""
    import torch
    import transformers

    kinds = {
        "generate": transformers.AutoModelForCausalLM,
        "embed": transformers.AutoModel,
        "rerank": transformers.AutoModelForSequenceClassification,
    }
    if task not in kinds:
        fail(
            "task", f"a model for `{task}` cannot be run by this worker", hint=[f"known: {', '.join(kinds)}"]
        )
    types = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype not in types:
        fail(
            "dtype",
            f"PyTorch does not run a checkpoint in `{dtype}` here",
            hint=[f"known: {', '.join(types)}"],
        )
    chosen = {"attn_implementation": "eager"} if plain else {}
    try:
        model, info = kinds[task].from_pretrained(
            str(folder),
            dtype=types[dtype],
            trust_remote_code=False,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            **chosen,
        )
    except (OSError, ValueError, RuntimeError, KeyError, ImportError, AttributeError) as error:
        _explain_load(folder, error)
    # BERT's pooler head has no part in a pooled vector; many checkpoints leave it out.
    require_loaded(sorted(info["missing_keys"]), unused=UNUSED_HEAD if pooling else NOTHING)
    if model.num_parameters() < SMALL:
        torch.set_num_threads(1)
    return model.eval()


def _explain_load(folder: Path, error: Exception) -> NoReturn:
    """Turn what the library says into what is wrong with the folder."""
    if "trust_remote_code" in str(error):
        fail(
            "remote-code",
            f"`{folder.name}` needs code that is shipped with it, which is never run",
            [_outputs.first_line(error)],
            ["use a model whose architecture the transformers library knows"],
        )
    fail(
        "broken-checkpoint",
        f"`{folder.name}` cannot be loaded",
        [_outputs.first_line(error)],
        ["check that config.json belongs to these weights"],
    )


def pooling_of(folder: Path, config: dict[str, Any]) -> str:
    """How the folder says that token vectors become one: cls, mean, last or max.

    An encoder that says nothing is pooled by mean, as sentence-transformers does.
    """
    listed = folder / "modules.json"
    if not listed.is_file():
        if "rms_norm_eps" in config:
            fail("pooling", f"nothing in `{folder.name}` says how its vectors are pooled")
        return "mean"
    modules = read_json(listed)
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    unknown = [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]
    if unknown or kinds.count("Pooling") != 1:
        fail("pooling", f"the modules of `{folder.name}` are not understood", [", ".join(kinds)])
    said = read_json(folder / Path(modules[kinds.index("Pooling")]["path"]).name / "config.json")
    found = [mode for key, mode in MODES.items() if said.get(key)]
    if "pooling_mode" in said:
        named = str(said["pooling_mode"])
        found = ["last" if named == "lasttoken" else named]
    if len(found) != 1:
        fail("pooling", f"`{folder.name}` names {len(found)} ways of pooling", [", ".join(found) or "none"])
    return found[0]


def run(
    model: Any, tokens: list[_outputs.Tokens], request: dict[str, Any], pooling: str, reference: Any
) -> dict[str, Any]:
    """The arrays of outputs for the request's task, as _outputs.py names them."""
    import numpy as np

    task = request["task"]
    if task == "generate":
        positions = []
        for number, (logits,) in enumerate(_forward(model, tokens, "logits")):
            asked = reference.asked(number) if reference else None
            following = tokens[number].ids[1:]
            positions.append(_outputs.reduce(logits[:-1], following, request["top_k"], asked))
        return {**_outputs.stack(positions), **_run_freely(model, tokens, request, reference)}
    if task == "embed":
        return {"vectors": np.stack(list(_vectors(model, tokens, pooling)))}
    return {"scores": np.stack([row[0] for row in _forward(model, tokens, "logits")])}


def _run_freely(
    model: Any, tokens: list[_outputs.Tokens], request: dict[str, Any], reference: Any
) -> dict[str, Any]:
    """What the model says when it reads its own words; {} where that is not asked or it keeps no cache."""
    free = _outputs_free.asked(request)
    if free is None or getattr(model.config, "use_cache", None) is None:
        return {}
    rows = _outputs_free.rows_like(reference) if reference else _outputs_free.rows_of(tokens, free)
    return _outputs_free.run(lambda: _step(model), tokens, rows, free)


def _step(model: Any) -> _outputs_free.Step:
    import torch

    cache: list[Any] = []

    def step(ids: Any) -> Any:
        given = {"past_key_values": cache.pop()} if cache else {}
        out = model(input_ids=torch.from_numpy(ids), use_cache=True, **given)
        cache.append(out.past_key_values)
        return out.logits[:, -1].float().numpy()

    return step


def _vectors(model: Any, tokens: list[_outputs.Tokens], pooling: str) -> Iterator[Any]:
    ways = {
        "cls": lambda hidden: hidden[0],
        "last": lambda hidden: hidden[-1],
        "mean": lambda hidden: hidden.mean(axis=0),
        "max": lambda hidden: hidden.max(axis=0),
    }
    if pooling not in ways:
        fail("pooling", f"pooling `{pooling}` is not known", hint=[f"known: {', '.join(ways)}"])
    for row in _forward(model, tokens, "last_hidden_state"):
        yield ways[pooling](row[0])


def _forward(model: Any, tokens: list[_outputs.Tokens], wanted: str) -> Iterator[Any]:
    """One output of the model for each text, alone in its batch, as a float32 array."""
    import inspect

    import torch

    accepted = inspect.signature(model.forward).parameters
    for number, text in enumerate(tokens):
        progress("reference outputs", number / len(tokens))
        ids = torch.from_numpy(text.ids.astype("int64"))[None]
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if "token_type_ids" in accepted:
            inputs["token_type_ids"] = torch.from_numpy(text.types.astype("int64"))[None]
        if "use_cache" in accepted:
            inputs["use_cache"] = False  # pyright: ignore[reportArgumentType]
        yield getattr(model(**inputs), wanted).float().numpy()


if __name__ == "__main__":
    main(job)
