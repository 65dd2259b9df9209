"""Texts to tokens and back, piece by piece, never a broken character."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _contract import fail


class NoTemplate(Exception):
    """The model has no chat template, so messages cannot become a prompt."""


class Texts:
    """The tokenizer of an artefact folder.

    transformers' wrapper of the Rust tokenizer is used by its own name: the automatic choice would import
    PyTorch, which is four times the memory of a small model's whole server.
    """

    def __init__(self, folder: Path) -> None:
        from transformers import PreTrainedTokenizerFast

        if not (folder / "tokenizer.json").is_file():
            fail(
                "tokenizer",
                f"`{folder.name}` has no tokenizer.json",
                hint=[
                    "save the tokenizer once with `AutoTokenizer.from_pretrained(...).save_pretrained(...)`"
                ],
            )
        try:
            self._tokenizer = PreTrainedTokenizerFast.from_pretrained(str(folder), local_files_only=True)
        except Exception as error:  # noqa: BLE001 - the Rust library raises bare exceptions
            fail("tokenizer", f"the tokenizer of `{folder.name}` cannot be loaded", [str(error)[:300]])
        self._fast = self._tokenizer.backend_tokenizer
        self._fast.no_truncation()
        self._fast.no_padding()

    def encode(self, text: str) -> list[int]:
        """With the special tokens that the tokenizer puts around a text."""
        return self._fast.encode(text).ids

    def encode_typed(self, text: str) -> tuple[list[int], list[int]]:
        """Token ids, and the type ids that BERT-like models take."""
        found = self._fast.encode(text)
        return found.ids, found.type_ids

    def encode_pair(self, first: str, second: str) -> tuple[list[int], list[int]]:
        """Two texts as cross-encoders read them, with type ids that tell them apart."""
        found = self._fast.encode(first, second)
        return found.ids, found.type_ids

    def encode_chat(self, messages: list[dict[str, Any]]) -> list[int]:
        """By the model's chat template, which writes special tokens itself. Raises NoTemplate."""
        if not self._tokenizer.chat_template:
            raise NoTemplate
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return self._fast.encode(text, add_special_tokens=False).ids

    def pieces(self, stop: Sequence[str]) -> "Pieces":
        return Pieces(self._fast, stop)

    @property
    def pad_id(self) -> int:
        return self._tokenizer.pad_token_id or 0


class Pieces:
    """Text of one answer as its tokens come in: whole characters, and never a stop string.

    `stopped` says that one was met.
    """

    def __init__(self, tokenizer: Any, stop: Sequence[str]) -> None:
        from tokenizers.decoders import DecodeStream

        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=True)
        self._stops = Stops(stop)

    @property
    def stopped(self) -> bool:
        return self._stops.met

    def add(self, token: int) -> str:
        """The text that this token sets free; often one word, sometimes nothing."""
        piece = self._stream.step(self._tokenizer, token)
        return self._stops.add(piece) if piece else ""

    def end(self) -> str:
        """What was held back in fear of a stop string."""
        return self._stops.end()


class Stops:
    """Lets text through up to the first stop string, and holds back what could be the beginning of one."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(s for s in stop if s)
        self._held = ""
        self.met = False

    def add(self, piece: str) -> str:
        text = self._held + piece
        found = [at for at in (text.find(stop) for stop in self._stop) if at >= 0]
        if found:
            self.met = True
            self._held = ""
            return text[: min(found)]
        keep = max((_overlap(text, stop) for stop in self._stop), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def end(self) -> str:
        left, self._held = self._held, ""
        return left


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of `text` are the beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if stop.startswith(text[-n:])), 0)
