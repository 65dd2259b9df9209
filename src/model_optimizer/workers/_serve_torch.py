"""Decode with PyTorch: the plain baseline. One sequence at a time, greedy or sampled, with a KV cache.

This is what `model.generate` of transformers does, without its bookkeeping for each token.
"""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _checkpoint import check_weights, read_config, require_loaded
from _contract import fail
from _serve_decode import Cohort, Decoding, Finish, Step


class Torch:
    """A checkpoint folder of safetensors."""

    batches = False

    def __init__(self, folder: Path, *, dtype: str, threads: int | None, max_model_len: int | None) -> None:
        import torch

        if threads:
            torch.set_num_threads(threads)
        self._model = load(folder, "AutoModelForCausalLM", dtype)
        accepted = inspect.signature(self._model.forward).parameters
        # transformers renames its argument for the KV cache in 5.24; older releases know the second name.
        self._cache_name = "cache" if "cache" in accepted else "past_key_values"
        self._options = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        text = self._model.config.get_text_config()
        longest = getattr(text, "max_position_embeddings", None) or max_model_len
        if not longest:
            fail(
                "no-limit",
                f"`{folder.name}` does not say how long its texts may be",
                hint=["--max-model-len"],
            )
        self.max_model_len: int = min(max_model_len or longest, longest)
        self.vocabulary: int = text.vocab_size
        said = self._model.generation_config.eos_token_id
        if said is None:
            said = text.eos_token_id
        self.eos = frozenset([said] if isinstance(said, int) else said or ())

    @property
    def version(self) -> str:
        import torch
        import transformers

        return f"torch {torch.__version__}, transformers {transformers.__version__}"

    def begin(self, group: Sequence[Decoding]) -> Cohort:
        (decoding,) = group
        return _Alone(self, decoding)

    def forward(self, ids: Any, cache: Any) -> Any:
        """Logits [vocabulary] of the last position; the cache takes in the new ones."""
        held = {self._cache_name: cache}
        out = self._model(input_ids=ids, use_cache=True, **held, **self._options)
        return out.logits[0, -1].float()

    def new_cache(self) -> Any:
        from transformers import DynamicCache

        return DynamicCache(config=self._model.config)


class _Alone:
    def __init__(self, model: Torch, decoding: Decoding) -> None:
        import torch

        self._model = model
        self._eos = model.eos
        self._decoding = decoding
        self._next = torch.tensor([decoding.prompt])
        self._cache = model.new_cache()
        self._count = 0
        self._dice: Any = None
        if decoding.temperature > 0:
            self._dice = torch.Generator()
            if decoding.seed is not None:
                self._dice.manual_seed(decoding.seed)
            else:
                self._dice.seed()

    def step(self) -> list[Step]:
        import torch

        with torch.inference_mode():
            token = self._choose(self._model.forward(self._next, self._cache))
        self._next = torch.tensor([[token]])
        self._count += 1
        finish: Finish | None = None
        if token in self._eos and not self._decoding.ignore_eos:
            finish = "stop"
        elif self._count >= self._decoding.max_tokens:
            finish = "length"
        return [Step(self._decoding, token, finish)]

    def drop(self, decoding: Decoding) -> None:
        del decoding

    def _choose(self, logits: Any) -> int:
        import torch

        if self._decoding.ignore_eos and self._eos:
            logits[list(self._eos)] = -torch.inf
        if self._dice is None:
            return int(logits.argmax())
        likely = torch.softmax(logits / self._decoding.temperature, dim=-1)
        ordered, ids = likely.sort(descending=True)
        # Nucleus sampling keeps the token that reaches top_p, so the first is always there.
        ordered[ordered.cumsum(0) - ordered >= self._decoding.top_p] = 0
        return int(ids[torch.multinomial(ordered, 1, generator=self._dice)])


def load(folder: Path, kind: str, dtype: str, *, unused: str = "^$") -> Any:
    """A checkpoint in one precision, every tensor of it from the folder but those that match `unused`.

    Its own code is never run and no pickle is read.
    """
    import torch
    import transformers

    read_config(folder)
    check_weights(folder)
    transformers.logging.disable_progress_bar()
    try:
        model, loaded = getattr(transformers, kind).from_pretrained(
            str(folder),
            dtype={"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype],
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        fail(
            "checkpoint-unreadable",
            f"`{folder.name}` cannot be loaded by transformers {transformers.__version__}",
            [f"{type(error).__name__}: {str(error).strip().splitlines()[0][:300]}"],
            [
                "check that config.json belongs to these weights",
                "models that bring their own code are refused",
            ],
        )
    require_loaded(list(loaded["missing_keys"]), unused=unused)
    return model.eval()
