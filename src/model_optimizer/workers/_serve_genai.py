"""Decode with onnxruntime-genai: a generator for one sequence, its engine for several that begin together."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _contract import brief, fail
from _serve_decode import Cohort, Decoding, Finish, Step

EVENTS_EACH = 4
"""Room in the event buffer for one sequence: a token, its end, and what an engine may add."""


class Genai:
    """A folder that the builder of onnxruntime-genai made."""

    batches = True

    def __init__(
        self,
        folder: Path,
        *,
        threads: int | None,
        spin: bool,
        max_model_len: int | None,
        running: int,
        prefill_tokens: int | None,
    ) -> None:
        import onnxruntime_genai

        self._genai = onnxruntime_genai
        about = _about(folder)
        self.eos = _ids(about["eos_token_id"])
        self.vocabulary: int = about["vocab_size"]
        self.max_model_len: int = min(max_model_len or about["context_length"], about["context_length"])
        self._piece = prefill_tokens or self.max_model_len
        config = onnxruntime_genai.Config(str(folder))
        config.overlay(json.dumps({"engine": {"static_batching": {"max_batch_size": running}}}))
        options: dict[str, Any] = {"session.intra_op.allow_spinning": "1" if spin else "0"}
        if threads:
            options["intra_op_num_threads"] = threads
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        try:
            self._model = onnxruntime_genai.Model(config)
        except RuntimeError as error:
            fail(
                "artifact-unreadable",
                f"onnxruntime-genai {onnxruntime_genai.__version__} cannot load `{folder.name}`",
                [brief(error)],
                ["check that model.onnx and model.onnx.data are whole, or make the artefact again"],
            )

    @property
    def version(self) -> str:
        return f"onnxruntime-genai {self._genai.__version__}"

    def begin(self, group: Sequence[Decoding]) -> Cohort:
        if len(group) == 1:
            return _Alone(self._genai, self._model, self.eos, group[0], self._piece)
        return _Together(self._genai, self._model, group)


class _Alone:
    """One sequence. The KV cache holds its prompt and its longest answer.

    A long prompt is read in pieces, one a step: the logits of all its positions are computed and would
    fill the memory at once, and the others would wait for all of it.
    """

    def __init__(self, genai: Any, model: Any, eos: frozenset[int], decoding: Decoding, piece: int) -> None:
        whole = len(decoding.prompt) + decoding.max_tokens
        options: dict[str, Any] = {
            "max_length": whole,
            "min_length": whole if decoding.ignore_eos else 0,
            "do_sample": decoding.temperature > 0,
            "repetition_penalty": 1.0,
            "no_repeat_ngram_size": 0,
        }
        if decoding.temperature > 0:
            options |= {"temperature": decoding.temperature, "top_p": decoding.top_p, "top_k": 0}
            options["random_seed"] = -1 if decoding.seed is None else decoding.seed
        parameters = genai.GeneratorParams(model)
        parameters.set_search_options(**options)
        self._generator = genai.Generator(model, parameters)
        self._unread = decoding.prompt
        self._piece = piece
        self._decoding = decoding
        self._eos = frozenset[int]() if decoding.ignore_eos else eos

    def step(self) -> list[Step]:
        if self._unread:
            piece, self._unread = self._unread[: self._piece], self._unread[self._piece :]
            self._generator.append_tokens(np.array([piece], dtype=np.int32))
            if self._unread:
                return []
        self._generator.generate_next_token()
        token = int(self._generator.get_next_tokens()[0])
        finish: Finish | None = None
        if token in self._eos:
            finish = "stop"
        elif self._generator.is_done():
            finish = "length"
        return [Step(self._decoding, token, finish)]

    def drop(self, decoding: Decoding) -> None:
        del decoding


class _Together:
    """Several greedy sequences in one batch, padded by the engine to the longest."""

    def __init__(self, genai: Any, model: Any, group: Sequence[Decoding]) -> None:
        self._genai = genai
        self._engine = genai.Engine(model)
        self._events = self._engine.create_event_buffer(EVENTS_EACH * len(group))
        self._requests = [(self._request(decoding), decoding) for decoding in group]

    def step(self) -> list[Step]:
        steps = [self._read(event) for event in self._engine.run(self._events)]
        for step in steps:
            if step.finish:
                self._close(step.decoding)
        return steps

    def drop(self, decoding: Decoding) -> None:
        request = next(r for r, d in self._requests if d is decoding)
        request.cancel_turn(1)
        self._close(decoding)

    def _request(self, decoding: Decoding) -> Any:
        room = self._genai.RequestOptions()
        room.set_max_session_tokens(len(decoding.prompt) + decoding.max_tokens)
        request = self._engine.create_request(options=room)
        turn = self._genai.TurnOptions(request)
        turn.set_do_sample(False)
        turn.set_repetition_penalty(1.0)
        turn.set_max_generated_tokens(decoding.max_tokens)
        if decoding.ignore_eos:
            turn.set_min_generated_tokens(decoding.max_tokens)
        request.begin_turn(np.array(decoding.prompt, dtype=np.int32), turn)
        return request

    def _read(self, event: Any) -> Step:
        reasons = self._genai.FinishReason
        finish: dict[Any, Finish | None] = {
            reasons.NONE: None,
            reasons.EOS: "stop",
            reasons.STOP_STRING: "stop",
            reasons.MAX_GENERATED_TOKENS: "length",
            reasons.MAX_SESSION_TOKENS: "length",
        }
        decoding = next(d for r, d in self._requests if r == event.request)
        token = None if event.token is None else int(event.token)
        because = None if event.finish_reason in finish else f"{event.finish_reason}, {event.error_code}"
        return Step(decoding, token, finish.get(event.finish_reason, "error"), because)

    def _close(self, decoding: Decoding) -> None:
        next(r for r, d in self._requests if d is decoding).close()
        self._requests = [(r, d) for r, d in self._requests if d is not decoding]


def _about(folder: Path) -> dict[str, Any]:
    path = folder / "genai_config.json"
    try:
        return json.loads(path.read_text(encoding="utf-8"))["model"]
    except (OSError, ValueError, KeyError) as error:
        fail(
            "artifact-unreadable",
            f"`{folder.name}` is not a model of onnxruntime-genai",
            [f"{path.name}: {error}"],
            ["make the artefact again"],
        )


def _ids(said: int | list[int]) -> frozenset[int]:
    return frozenset([said] if isinstance(said, int) else said)
