"""Readers side by side, each cut by a limit of its own: one that hangs costs its answer, not the others'."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """`read` never gets longer than `limit_s`; `otherwise` stands for what it did not answer."""

    read: Callable[[], Any]
    limit_s: float
    otherwise: Any


def together(readers: Mapping[str, Reader]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What each said, and a line for each that was cut or broke."""
    answers: dict[str, Any] = {}
    broken: dict[str, str] = {}

    def work(name: str, read: Callable[[], Any]) -> None:
        try:
            answers[name] = read()
        except Exception as error:  # noqa: BLE001 - a reader's bug must not cost the whole picture
            broken[name] = f"{type(error).__name__}: {error}"[:200]

    begun = time.monotonic()
    threads = {
        name: threading.Thread(target=work, args=(name, one.read), daemon=True)
        for name, one in readers.items()
    }
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        thread.join(max(0.0, begun + readers[name].limit_s - time.monotonic()))
    found = {name: answers.get(name, one.otherwise) for name, one in readers.items()}
    notes = [
        f"{name}: {broken[name]}" if name in broken else f"{name}: no answer within {one.limit_s:g} s"
        for name, one in readers.items()
        if name not in answers
    ]
    return found, tuple(notes)
