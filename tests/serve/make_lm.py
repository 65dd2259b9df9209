"""Make a tiny Qwen3 with random weights; run by the interpreter of the onnx environment: make_lm.py OUT."""

import sys
import warnings

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

warnings.filterwarnings("ignore")
OUT = sys.argv[1]
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'judge' %}{{ raise_exception('no judges') }}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

words = Tokenizer(models.BPE())
words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
words.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=320,
    special_tokens=MARKS,
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
)
words.train_from_iterator(["the quick brown fox jumps over the lazy dog and finds ünïcödé"], trainer)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token=MARKS[2], pad_token=MARKS[0])
tokenizer.chat_template = TEMPLATE
tokenizer.save_pretrained(OUT)

torch.manual_seed(3)
config = Qwen3Config(
    vocab_size=320,
    hidden_size=64,
    num_hidden_layers=2,
    intermediate_size=128,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,  # the smallest that attention of vLLM on a CPU takes
    max_position_embeddings=2048,
    tie_word_embeddings=True,
    eos_token_id=2,
    pad_token_id=0,
    bos_token_id=None,
)
model = Qwen3ForCausalLM(config).float()
with torch.no_grad():
    for parameter in model.parameters():
        if parameter.dim() > 1:
            # Wide weights: the best token stands out, so that rounding cannot change the answer.
            parameter.normal_(0.0, 0.15)
model.generation_config.eos_token_id = 2
model.save_pretrained(OUT)
