"""Makes the tiny models of the worker tests; run by the interpreter of the onnx environment.

    python make_models.py OUT

OUT gets bert (mean, normalised), qwen (last token, normalised), cross (a cross-encoder), lm, untied and sliding, all with random
weights: the numbers say whether two models are the same and nothing about quality.
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2Model,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3Model,
)

warnings.filterwarnings("ignore")
OUT = Path(sys.argv[1])
VOCABULARY = 320
LONGEST = 128


def save_tokenizer(folder: Path) -> None:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["[PAD]", "<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(["the quick brown fox jumps over the lazy dog"], trainer)
    PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", eos_token="<|end|>").save_pretrained(
        folder
    )


def say_pooling(folder: Path, mode: str) -> None:
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    modes = {f"pooling_mode_{m}": m == mode for m in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 64, **modes}))


def save(name: str, model: torch.nn.Module, pooling: str | None = None) -> None:
    """Weights are spread wide, so that a difference in the computation is one in the answer."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.15)
    model.save_pretrained(OUT / name)
    save_tokenizer(OUT / name)
    if pooling:
        say_pooling(OUT / name, pooling)


torch.manual_seed(0)
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": LONGEST,
}


def variant(**changed: Any) -> Qwen3Config:
    settings = {
        **SIZES,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "eos_token_id": 1,
        "bos_token_id": None,
        "pad_token_id": 0,
    }
    return Qwen3Config(**{**settings, **changed})


DECODER = variant()
save("bert", BertModel(BertConfig(**SIZES)), "mean_tokens")
save("qwen", Qwen3Model(DECODER), "lasttoken")
ABSOLUTE = {
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": LONGEST,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
save("gpt2", GPT2Model(GPT2Config(vocab_size=VOCABULARY, **ABSOLUTE)), "lasttoken")
save("cross", BertForSequenceClassification(BertConfig(**SIZES, num_labels=1)))
save("lm", Qwen3ForCausalLM(DECODER))
save("untied", Qwen3ForCausalLM(variant(tie_word_embeddings=False)))
save("narrow", Qwen3ForCausalLM(variant(head_dim=8)))
save("sliding", MistralForCausalLM(MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=64)))
