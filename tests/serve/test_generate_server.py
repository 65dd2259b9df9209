"""The language model server on real engines: what a client sees."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from model_optimizer.core import MoptError, ToolError
from model_optimizer.serve import ServerHandle

from .conftest import Serve, start_plain
from .wire import at_once, events, get, post, stream

pytestmark = pytest.mark.engine

COMPLETE, CHAT = "/v1/completions", "/v1/chat/completions"
PROMPTS = ["fox", "the quick brown fox jumps over", "lazy " * 30, "a", "dog and " * 12, "ünïcödé" * 3]


@pytest.fixture(scope="session")
def genai(serving: Serve, genai_model: Path) -> ServerHandle:
    return serving(genai_model, "onnx_genai", "generate", settings={"max_batch_size": "4"})


@pytest.fixture(scope="session")
def torch(serving: Serve, language_model: Path) -> ServerHandle:
    return serving(language_model, "safetensors", "generate")


@pytest.fixture(params=["genai", "torch"])
def server(request: pytest.FixtureRequest) -> ServerHandle:
    return request.getfixturevalue(request.param)


def asked(prompt: Any, tokens: int = 12, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "max_tokens": tokens, "return_token_ids": True, **more}


def answer(server: ServerHandle, body: dict[str, Any], path: str = COMPLETE) -> dict[str, Any]:
    status, found = post(server.url, path, body)
    assert status == 200, found
    return found


def ids(found: dict[str, Any], index: int = 0) -> list[int]:
    return found["choices"][index]["token_ids"]


# -- answers


def test_both_backends_give_the_same_greedy_tokens(genai: ServerHandle, torch: ServerHandle) -> None:
    for prompt in PROMPTS:
        assert ids(answer(genai, asked(prompt))) == ids(answer(torch, asked(prompt))), prompt


def test_a_whole_answer_counts_its_tokens(server: ServerHandle) -> None:
    found = answer(server, asked("the quick", 7, ignore_eos=True))
    (choice,) = found["choices"]
    assert len(choice["token_ids"]) == 7
    assert choice["finish_reason"] == "length"
    prompt = len(choice["prompt_token_ids"])
    assert found["usage"] == {"prompt_tokens": prompt, "completion_tokens": 7, "total_tokens": prompt + 7}
    assert (found["object"], found["model"]) == ("text_completion", server.served_name)


def test_a_stream_is_the_whole_answer_in_pieces(server: ServerHandle) -> None:
    body = asked("the lazy dog", 16, ignore_eos=True)
    whole = answer(server, body)
    chunks = events(server.url, COMPLETE, {**body, "stream_options": {"include_usage": True}})
    *pieces, last = chunks
    assert "".join(c["choices"][0]["text"] for c in pieces) == whole["choices"][0]["text"]
    assert [t for c in pieces for t in ids(c)] == ids(whole)
    assert [c["choices"][0]["finish_reason"] for c in pieces] == [None] * 15 + ["length"]
    assert all(c["usage"] is None for c in pieces)
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]
    assert len({c["id"] for c in chunks}) == 1


def test_a_stream_without_options_has_no_usage(server: ServerHandle) -> None:
    chunks = events(server.url, COMPLETE, asked("fox", 3))
    assert len(chunks) == 3
    assert all("usage" not in chunk for chunk in chunks)


def test_usage_on_every_chunk_when_asked(genai: ServerHandle) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = events(genai.url, COMPLETE, asked("fox", 3, ignore_eos=True, stream_options=options))
    assert [c["usage"]["completion_tokens"] for c in chunks] == [1, 2, 3, 3]


def test_chat_goes_through_the_template(server: ServerHandle) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "fox"}]}]
    body = {"messages": messages, "max_tokens": 5, "return_token_ids": True, "ignore_eos": True}
    whole = answer(server, body, CHAT)
    (choice,) = whole["choices"]
    assert choice["message"]["role"] == "assistant"
    assert choice["prompt_token_ids"][0] == 1  # <|im_start|>, written by the template and not doubled
    assert choice["prompt_token_ids"].count(1) == 2
    chunks = events(server.url, CHAT, body)
    assert chunks[0]["object"] == "chat.completion.chunk"
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    assert all("role" not in c["choices"][0]["delta"] for c in chunks[1:])
    assert "".join(c["choices"][0]["delta"]["content"] for c in chunks) == choice["message"]["content"]


def test_chat_without_a_limit_fills_the_context_or_stops(genai: ServerHandle) -> None:
    body = {"messages": [{"role": "user", "content": "fox"}], "max_completion_tokens": 2, "ignore_eos": True}
    assert answer(genai, body, CHAT)["usage"]["completion_tokens"] == 2


def test_token_ids_are_a_prompt_too(server: ServerHandle) -> None:
    first = answer(server, asked("the quick brown"))
    again = answer(server, asked(first["choices"][0]["prompt_token_ids"]))
    assert ids(again) == ids(first)


def test_several_prompts_in_one_request(server: ServerHandle) -> None:
    alone = [ids(answer(server, asked(prompt))) for prompt in PROMPTS[:3]]
    together = answer(server, asked(PROMPTS[:3]))
    assert [ids(together, i) for i in range(3)] == alone
    chunks = events(server.url, COMPLETE, asked(PROMPTS[:3]))
    for index in range(3):
        mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert [t for c in mine for t in c["token_ids"]] == alone[index]


def test_requests_at_once_are_answered_as_if_alone(server: ServerHandle) -> None:
    """More requests than run at once, of many lengths, so that they begin and end at different times."""
    bodies = [asked(prompt, 5 + 3 * i, ignore_eos=True) for i, prompt in enumerate(PROMPTS * 2)]
    alone = [ids(answer(server, body)) for body in bodies]
    for _ in range(3):
        found = at_once(server.url, COMPLETE, bodies)
        assert [status for status, _ in found] == [200] * len(bodies)
        assert [ids(body) for _, body in found] == alone


def test_a_long_prompt_is_read_in_pieces(serving: Serve, genai_model: Path, torch: ServerHandle) -> None:
    in_pieces = serving(genai_model, "onnx_genai", "generate", settings={"max_batched_tokens": "64"})
    prompt = "the quick brown fox " * 40
    assert len(answer(torch, asked(prompt))["choices"][0]["prompt_token_ids"]) > 128
    assert ids(answer(in_pieces, asked(prompt))) == ids(answer(torch, asked(prompt)))


def test_a_stop_string_ends_an_answer_and_is_not_in_it(server: ServerHandle) -> None:
    body = asked("the lazy dog", 24, ignore_eos=True)
    text = answer(server, body)["choices"][0]["text"]
    assert len(text) > 8
    stop = text[4:7]
    expected = text[: text.index(stop)]
    found = answer(server, {**body, "stop": ["never-there", stop]})
    assert found["choices"][0]["text"] == expected
    assert found["choices"][0]["finish_reason"] == "stop"
    assert found["usage"]["completion_tokens"] < 24
    chunks = events(server.url, COMPLETE, {**body, "stop": stop})
    assert "".join(c["choices"][0]["text"] for c in chunks) == expected
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_sampling_follows_its_seed(server: ServerHandle) -> None:
    body = asked("the", 12, temperature=1.5, ignore_eos=True)
    first, again, other = (ids(answer(server, {**body, "seed": seed})) for seed in (1, 1, 2))
    assert first == again
    assert first != other


# -- refusals


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (COMPLETE, b"{", 400, "invalid_request"),
        (COMPLETE, b"[]", 400, "invalid_request"),
        (COMPLETE, b"[" * 100_000, 400, "invalid_request"),
        (COMPLETE, {"prompt": 7}, 400, "invalid_request"),
        (COMPLETE, {}, 400, "invalid_request"),
        (COMPLETE, {"prompt": ""}, 400, "empty_prompt"),
        (COMPLETE, {"prompt": []}, 400, "empty_prompt"),
        (COMPLETE, {"prompt": "a", "max_tokens": 0}, 400, "invalid_request"),
        (COMPLETE, {"prompt": "a", "max_tokens": 3000}, 400, "context_length_exceeded"),
        (COMPLETE, {"prompt": "fox " * 3000}, 400, "context_length_exceeded"),
        (COMPLETE, {"prompt": [5, 320]}, 400, "invalid_token"),
        (COMPLETE, {"prompt": [-1]}, 400, "invalid_token"),
        (COMPLETE, {"prompt": "a", "model": "another"}, 404, "model_not_found"),
        (COMPLETE, {"prompt": "a", "n": 2}, 400, "unsupported"),
        (COMPLETE, {"prompt": "a", "logprobs": 5}, 400, "unsupported"),
        (COMPLETE, {"prompt": "a", "temperature": -1}, 400, "invalid_request"),
        (CHAT, {"messages": []}, 400, "invalid_request"),
        (CHAT, {"messages": [{"role": "judge", "content": "a"}]}, 400, "chat_template"),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "unsupported"),
        ("/v1/embeddings", {"input": "a"}, 404, 404),
    ],
)
def test_what_cannot_be_answered_is_an_error_in_openais_shape(
    genai: ServerHandle, path: str, body: Any, status: int, code: str | int
) -> None:
    found, said = post(genai.url, path, body)
    assert (found, said["error"]["code"]) == (status, code)
    assert said["error"]["message"]
    assert set(said["error"]) == {"message", "type", "param", "code"}


def test_a_body_without_end_is_refused(genai: ServerHandle) -> None:
    status, said = post(genai.url, COMPLETE, b'{"prompt": "' + b"a" * (33 * 2**20) + b'"}')
    assert (status, said["error"]["code"]) == (413, "body_too_large")


def test_neutral_options_are_let_pass(genai: ServerHandle) -> None:
    neutral = {"n": 1, "best_of": 1, "logprobs": None, "repetition_penalty": 1.0, "tools": [], "user": "me"}
    assert ids(answer(genai, asked("fox", 3, **neutral))) == ids(answer(genai, asked("fox", 3)))


def test_a_server_without_a_template_says_so(language_model: Path, tmp_path: Path, serving: Serve) -> None:
    import shutil

    bare = tmp_path / "bare"
    shutil.copytree(language_model, bare)
    (bare / "chat_template.jinja").unlink()
    server = serving(bare, "safetensors", "generate")
    status, said = post(server.url, CHAT, {"messages": [{"role": "user", "content": "a"}]})
    assert (status, said["error"]["code"]) == (400, "no_chat_template")


# -- the server itself


def test_models_and_health(server: ServerHandle) -> None:
    assert get(server.url, "/health")[0] == 200
    status, body = get(server.url, "/v1/models")
    (card,) = json.loads(body)["data"]
    assert (status, card["id"], card["max_model_len"]) == (200, server.served_name, 2048)
    assert get(server.url, "/docs")[0] == 404


def test_a_client_that_hangs_up_stops_its_generation(torch: ServerHandle) -> None:
    before = _metric(torch, "mopt_generated_tokens_total")
    for path, body in (
        (COMPLETE, asked("the", 2000, ignore_eos=True)),
        (CHAT, {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1900, "ignore_eos": True}),
    ):
        chunks = stream(torch.url, path, body)
        next(chunks)
        chunks.close()  # type: ignore[attr-defined]
    for _ in range(600):
        if _metric(torch, "mopt_requests_running") == 0:
            break
        time.sleep(0.1)
    assert _metric(torch, "mopt_requests_running") == 0
    assert _metric(torch, "mopt_generated_tokens_total") - before < 3900


def _metric(server: ServerHandle, name: str) -> int:
    _status, body = get(server.url, "/metrics")
    return next(int(line.split()[1]) for line in body.decode().splitlines() if line.startswith(f"{name} "))


def test_a_key_is_asked_for_everywhere_but_health(genai_model: Path, tmp_path: Path) -> None:
    with start_plain(genai_model, "onnx_genai", "generate", tmp_path / "l.log", key="a-secret-key") as server:
        assert get(server.url, "/health")[0] == 200
        for path in (COMPLETE, CHAT):
            status, said = post(server.url, path, asked("fox"))
            assert (status, said["error"]["code"]) == (401, "invalid_api_key")
        assert get(server.url, "/v1/models")[0] == 401
        assert post(server.url, COMPLETE, asked("fox"), key="another")[0] == 401
        assert post(server.url, COMPLETE, asked("fox"), key="a-secret-key")[0] == 200
    written = "".join(p.read_text() for p in tmp_path.iterdir())
    assert "a-secret-key" not in written


def test_a_broken_artefact_is_said_and_leaves_nothing(genai_model: Path, tmp_path: Path) -> None:
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(genai_model, broken)
    (broken / "model.onnx.data").write_bytes(b"")
    with pytest.raises(ToolError, match="cannot load `broken`") as caught:
        start_plain(broken, "onnx_genai", "generate", tmp_path / "l.log")
    assert caught.value.reference == "artifact-unreadable"
    assert caught.value.cause


@pytest.mark.parametrize("missing", ["tokenizer.json", "genai_config.json"])
def test_a_missing_file_is_named(genai_model: Path, tmp_path: Path, missing: str) -> None:
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(genai_model, broken)
    (broken / missing).unlink()
    with pytest.raises(MoptError) as caught:
        start_plain(broken, "onnx_genai", "generate", tmp_path / "l.log")
    assert missing in f"{caught.value.message} {caught.value.cause}"
