"""Makes the models of test_planted_faults.py; run by the interpreter of the onnx environment.

    python make_models.py OUT TEXTS.jsonl

OUT gets `lm`, `bert` and `cross` (checkpoints with random weights) and one folder for each candidate made of
them, right or with one planted fault. All weights are random, so that the numbers say whether two models
are the same and nothing about quality.
"""

import copy
import json
import runpy
import shutil
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from onnxruntime.quantization import quantize_dynamic
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "<|end|>"]
OUT = Path(sys.argv[1])
TEXTS = [json.loads(line)["text"] for line in Path(sys.argv[2]).read_text().splitlines()]


def tokenizer(folder: Path, *, vocabulary: int, encoder: bool) -> None:
    """A byte-level BPE, with [CLS] and [SEP] for an encoder."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(TEXTS, trainer)
    if encoder:
        made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        eos_token="<|end|>",
        model_max_length=512,
        model_input_names=["input_ids", *(["token_type_ids"] if encoder else []), "attention_mask"],
    ).save_pretrained(folder)


def spread(model: torch.nn.Module) -> None:
    """Random weights large enough for every layer to matter."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=1.2 / parameter.shape[1] ** 0.5)


def genai(checkpoint: Path, out: str, precision: str = "fp32") -> None:
    """The builder's own command, in this process: its imports take longer than its work."""
    place = ["-m", str(checkpoint), "-i", str(checkpoint), "-o", str(OUT / out), "-c", str(OUT / "cache")]
    sys.argv = ["builder", *place, "-p", precision, "-e", "cpu"]
    runpy.run_module("onnxruntime_genai.models.builder", run_name="__main__")


def broken_lm(model: Qwen3ForCausalLM, name: str, fault: Callable[[Qwen3ForCausalLM], None]) -> None:
    """A checkpoint with one fault, and the candidate that is made of it."""
    wrong = copy.deepcopy(model)
    with torch.no_grad():
        fault(wrong)
    folder = OUT / f"checkpoint-{name}"
    wrong.save_pretrained(folder)
    for path in (OUT / "lm").glob("tokenizer*"):
        shutil.copy(path, folder)
    genai(folder, f"lm-{name}")


def transpose(model: Qwen3ForCausalLM) -> None:
    weight = model.model.layers[1].self_attn.o_proj.weight
    weight.copy_(weight.T.clone())


def double(model: Qwen3ForCausalLM) -> None:
    model.model.layers[0].mlp.down_proj.weight.mul_(2)


def swap_heads(model: Qwen3ForCausalLM) -> None:
    weight = model.model.layers[0].self_attn.k_proj.weight
    weight.copy_(weight.roll(16, dims=0).clone())


def other_base(model: Qwen3ForCausalLM) -> None:
    model.config.rope_parameters = {**model.config.rope_parameters, "rope_theta": 500.0}


def not_a_number(model: Qwen3ForCausalLM) -> None:
    model.model.layers[1].mlp.up_proj.weight[3, 5] = float("nan")


def language_models() -> None:
    config = Qwen3Config(
        vocab_size=640,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        eos_token_id=4,
        bos_token_id=4,
    )
    model = Qwen3ForCausalLM(config)
    spread(model)
    model.save_pretrained(OUT / "lm")
    tokenizer(OUT / "lm", vocabulary=600, encoder=False)
    genai(OUT / "lm", "lm-same")
    genai(OUT / "lm", "lm-int8", "int8")
    faults = {
        "transposed": transpose,
        "doubled": double,
        "heads": swap_heads,
        "rope": other_base,
        "nan": not_a_number,
    }
    for name, fault in faults.items():
        broken_lm(model, name, fault)
    shutil.copytree(OUT / "lm-same", OUT / "lm-tokenizer")
    tokenizer(OUT / "lm-tokenizer", vocabulary=500, encoder=False)
    shutil.copytree(OUT / "lm", OUT / "lm-incomplete")
    drop_a_tensor(OUT / "lm-incomplete")


def drop_a_tensor(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights.pop("model.layers.0.mlp.up_proj.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


class Pooled(torch.nn.Module):
    """Token ids in, one vector out."""

    def __init__(self, model: BertModel, pooling: str = "mean", *, masked: bool = True) -> None:
        super().__init__()
        self.model, self.pooling, self.masked = model, pooling, masked

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        seen = attention_mask if self.masked else torch.ones_like(attention_mask)
        hidden = self.model(input_ids=input_ids, attention_mask=seen).last_hidden_state
        if self.pooling == "cls":
            return hidden[:, 0]
        kept = attention_mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * kept).sum(1) / kept.sum(1)


class Scored(torch.nn.Module):
    """Token ids of a pair in, scores out."""

    def __init__(self, model: BertForSequenceClassification, *, types: bool = True) -> None:
        super().__init__()
        self.model, self.types = model, types

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> torch.Tensor:
        types = token_type_ids if self.types else token_type_ids * 0
        return self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=types).logits


def export(module: torch.nn.Module, name: str, inputs: list[str], output: str) -> Path:
    """With the older exporter, which takes a second instead of ten for these."""
    folder = OUT / name
    folder.mkdir()
    example = {n: torch.ones(2, 9, dtype=torch.long) for n in inputs}
    torch.onnx.export(
        module.eval(),
        tuple(example.values()),
        str(folder / "model.onnx"),
        input_names=inputs,
        output_names=[output],
        dynamic_axes={**{n: {0: "batch", 1: "sequence"} for n in inputs}, output: {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )
    return folder


def embedding_models() -> None:
    config = BertConfig(
        vocab_size=640,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=512,
        attn_implementation="eager",
    )
    model = BertModel(config)
    spread(model)
    folder = OUT / "bert"
    model.save_pretrained(folder)
    tokenizer(folder, vocabulary=600, encoder=True)
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    inputs, output = ["input_ids", "attention_mask"], "sentence_embedding"
    export(Pooled(model), "bert-same", inputs, output)
    export(Pooled(model, "cls"), "bert-pooling", inputs, output)
    export(Pooled(model, masked=False), "bert-mask", inputs, output)
    (OUT / "bert-int8").mkdir()
    quantize_dynamic(OUT / "bert-same" / "model.onnx", OUT / "bert-int8" / "model.onnx")
    half_precision(OUT / "bert-same" / "model.onnx", OUT / "bert-fp16")
    scaled = copy.deepcopy(model)
    with torch.no_grad():
        scaled.encoder.layer[0].attention.output.dense.weight.mul_(2)
    export(Pooled(scaled), "bert-doubled", inputs, output)


def half_precision(source: Path, folder: Path) -> None:
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    folder.mkdir()
    onnx.save(convert_float_to_float16(onnx.load(source)), folder / "model.onnx")


def cross_encoders() -> None:
    config = BertConfig(
        vocab_size=640,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=512,
        num_labels=1,
        attn_implementation="eager",
    )
    model = BertForSequenceClassification(config)
    spread(model)
    model.save_pretrained(OUT / "cross")
    tokenizer(OUT / "cross", vocabulary=600, encoder=True)
    inputs = ["input_ids", "attention_mask", "token_type_ids"]
    export(Scored(model), "cross-same", inputs, "scores")
    export(Scored(model, types=False), "cross-types", inputs, "scores")


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    language_models()
    embedding_models()
    cross_encoders()
