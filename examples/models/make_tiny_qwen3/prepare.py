"""Make the tokenizer, the token file and the held-out texts.

    python prepare.py --packages UNPACKED --work WORK --model ../tiny-qwen3

UNPACKED is the folder into which python3.11-doc, wordnet-base, bible-kjv and bible-kjv-text were unpacked
with `dpkg -x`. WORK receives corpus.safetensors; the model folder receives tokenizer.json,
tokenizer_config.json and heldout.jsonl. Needs tokenizers, safetensors and numpy. The same packages give the
same bytes.
"""

import argparse
import json
import random
import re
from pathlib import Path

import numpy as np
from corpus import Document, documents
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

VOCABULARY = 4096
END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CORPORA = ("python", "wordnet", "bible", "chat")
HELDOUT_TEXTS = {"python": 60, "wordnet": 60, "bible": 40, "chat": 60}
HELDOUT_BYTES = 200_000

# The pre-tokenizer of the Qwen family, so that every engine splits this model's text as it splits Qwen3's.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """A byte-level BPE of `VOCABULARY` tokens; the three special tokens are 0, 1 and 2."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    specials = [
        AddedToken(token, special=True, normalized=False) for token in (END_OF_TEXT, TURN_START, TURN_END)
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=specials,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def tokenizer_config() -> dict[str, object]:
    """The settings that Transformers, vLLM and onnxruntime-genai read beside tokenizer.json."""
    return {
        "tokenizer_class": "Qwen2Tokenizer",
        "model_max_length": 2048,
        "bos_token": None,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "unk_token": None,
        "add_bos_token": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": False,
        "added_tokens_decoder": {
            str(at): {
                "content": token,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            }
            for at, token in enumerate((END_OF_TEXT, TURN_START, TURN_END))
        },
        "additional_special_tokens": [TURN_START, TURN_END],
        "chat_template": CHAT_TEMPLATE,
    }


def tokens(tokenizer: Tokenizer, found: list[Document], prefix: str) -> dict[str, np.ndarray]:
    """The documents' tokens end to end, each closed by <|endoftext|>, with their lengths and corpora."""
    encoded = [[*encoding.ids, 0] for encoding in tokenizer.encode_batch_fast([d.text for d in found])]
    return {
        f"{prefix}_tokens": np.concatenate([np.asarray(ids, dtype=np.uint16) for ids in encoded]),
        f"{prefix}_lengths": np.asarray([len(ids) for ids in encoded], dtype=np.int32),
        f"{prefix}_corpus": np.asarray([CORPORA.index(d.corpus) for d in found], dtype=np.uint8),
    }


def pieces(document: Document) -> list[str]:
    """The document cut into texts of 200 to 1500 characters, at paragraphs (at lines in verse)."""
    if document.corpus in ("wordnet", "chat"):
        parts = [document.text.strip()]
    else:
        separator = "\n\n" if document.corpus == "python" else "\n"
        parts, current = [], ""
        for paragraph in document.text.strip().split(separator):
            if current and len(current) + len(paragraph) > 900:
                parts.append(current)
                current = ""
            current = f"{current}{separator}{paragraph}" if current else paragraph
        parts.append(current)
    return [part for part in (piece.strip("\n") for piece in parts) if 200 <= len(part) <= 1500]


def heldout_texts(found: list[Document]) -> list[dict[str, str]]:
    """A sample from the held-out documents, in random order; none stands in a training document."""
    choice = random.Random(0)
    trained = re.sub(r"\s+", " ", "\n".join(d.text for d in found if not d.held_out))
    rows: list[dict[str, str]] = []
    for corpus, wanted in HELDOUT_TEXTS.items():
        texts = [text for d in found if d.held_out and d.corpus == corpus for text in pieces(d)]
        choice.shuffle(texts)
        fresh = (text for text in texts if re.sub(r"\s+", " ", text) not in trained)
        rows += [{"text": text, "corpus": corpus} for text, _ in zip(fresh, range(wanted), strict=False)]
    choice.shuffle(rows)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True)
    wanted = parser.parse_args()
    wanted.work.mkdir(parents=True, exist_ok=True)
    wanted.model.mkdir(parents=True, exist_ok=True)
    found = documents(wanted.packages)
    training = [document for document in found if not document.held_out]
    validation = [document for document in found if document.held_out]
    tokenizer = train_tokenizer([document.text for document in training])
    tokenizer.save(str(wanted.model / "tokenizer.json"))
    (wanted.model / "tokenizer_config.json").write_text(json.dumps(tokenizer_config(), indent=2) + "\n")
    arrays = tokens(tokenizer, training, "train") | tokens(tokenizer, validation, "validation")
    save_file(arrays, wanted.work / "corpus.safetensors")
    rows = heldout_texts(found)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if len(lines.encode()) > HELDOUT_BYTES:
        raise SystemExit(f"heldout.jsonl would have {len(lines.encode())} bytes, more than {HELDOUT_BYTES}")
    (wanted.model / "heldout.jsonl").write_text(lines, encoding="utf-8")
    for part in ("train", "validation"):
        for at, corpus in enumerate(CORPORA):
            of_corpus = arrays[f"{part}_corpus"] == at
            count = int(arrays[f"{part}_lengths"][of_corpus].sum())
            print(f"{part:>10} {corpus:>8} {int(of_corpus.sum()):>6} documents {count:>9} tokens")
    print(f"{len(rows)} held-out texts, {len(lines.encode())} bytes")


if __name__ == "__main__":
    main()
