"""The endpoint answers as vLLM's does: shapes, errors, and clients that leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

pytest.importorskip("starlette")
from starlette.testclient import TestClient

from presim.serving.endpoint.app import Endpoint, application
from presim.serving.engines.engine import Fleet, Limits, Replica, constant_times

STEP_NS = 1_000_000
LIMITS = Limits(num_gpu_blocks=400, max_num_seqs=64, max_num_batched_tokens=512, max_model_len=400)
MODEL = "some-model"


def endpoint(**changes: Any) -> Endpoint:
    limits = Limits(**{**{name: getattr(LIMITS, name) for name in LIMITS.__dataclass_fields__}, **changes})
    return Endpoint(Fleet((Replica(limits, constant_times(STEP_NS, limits)),)), MODEL, speed=100.0)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(application(endpoint()), base_url="http://localhost:8000") as made:
        yield made


def completion(client: TestClient, **body: Any) -> Any:
    return client.post("/v1/completions", json={"model": MODEL, "max_tokens": 3, **body}).json()


def events(client: TestClient, path: str, **body: Any) -> list[dict[str, Any]]:
    answer = client.post(path, json={"model": MODEL, "max_tokens": 3, "stream": True, **body})
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_each_prompt_of_a_list_has_n_choices(client: TestClient) -> None:
    answer = completion(client, prompt=["hello there", "good bye"], n=2)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert {choice["text"] for choice in answer["choices"]} == {" token" * 3}
    assert answer["usage"] == {"prompt_tokens": 3 + 2, "completion_tokens": 12, "total_tokens": 17}
    assert len(completion(client, prompt=[[1, 2], [3, 4, 5]])["choices"]) == 2
    assert completion(client, prompt=[1, 2, 3])["usage"]["prompt_tokens"] == 3


def test_a_stream_ends_with_its_usage(client: TestClient) -> None:
    parts = events(client, "/v1/completions", prompt="so many words " * 10, stream_options={"include_usage": True})
    assert [part["choices"][0]["text"] for part in parts[:-1]] == [" token"] * 3
    assert [part["choices"][0]["finish_reason"] for part in parts[:-1]] == [None, None, "length"]
    assert parts[-1]["usage"] == {"prompt_tokens": 35, "completion_tokens": 3, "total_tokens": 38}
    assert parts[-1]["choices"] == []


def test_a_chat_begins_with_its_role(client: TestClient) -> None:
    asked = {"messages": [{"role": "user", "content": "hello"}], "n": 2}
    parts = events(client, "/v1/chat/completions", **asked)
    assert [part["choices"][0]["delta"] for part in parts[:2]] == [{"role": "assistant", "content": ""}] * 2
    assert len(parts) == 2 + 2 * 3
    whole = client.post("/v1/chat/completions", json=asked | {"max_tokens": 2}).json()
    assert [choice["message"]["content"] for choice in whole["choices"]] == [" token token"] * 2


def test_absent_limits_are_16_tokens_of_a_completion_and_all_that_fit_of_a_chat(client: TestClient) -> None:
    assert client.post("/v1/completions", json={"prompt": "x"}).json()["usage"]["completion_tokens"] == 16
    answer = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x" * 900}]}).json()
    assert answer["usage"]["total_tokens"] == 400
    assert completion(client, prompt=[1] * 395, max_tokens=20)["usage"]["completion_tokens"] == 5


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_string_ends_the_text_before_it(client: TestClient, stream: bool) -> None:
    asked = {"prompt": "x", "max_tokens": 9, "stop": ["never", "n tok"]}
    if stream:
        parts = events(client, "/v1/completions", **asked)
        text = "".join(part["choices"][0]["text"] for part in parts)
        choice = parts[-1]["choices"][0]
    else:
        choice = completion(client, **asked)["choices"][0]
        text = choice["text"]
    assert (text, choice["finish_reason"], choice["stop_reason"]) == (" toke", "stop", "n tok")
    assert completion(client, prompt="x", max_tokens=9, stop="zzz")["choices"][0]["finish_reason"] == "length"
    assert completion(client, prompt="x", max_tokens=9, stop=" token", min_tokens=4)["usage"]["completion_tokens"] == 4


def test_logprobs_have_an_entry_for_each_token(client: TestClient) -> None:
    logprobs = completion(client, prompt="x", logprobs=1)["choices"][0]["logprobs"]
    assert logprobs["tokens"] == [" token"] * 3
    assert logprobs["text_offset"] == [0, 6, 12]
    asked = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2, "logprobs": True, "top_logprobs": 1}
    content = client.post("/v1/chat/completions", json=asked).json()["choices"][0]["logprobs"]["content"]
    assert [len(entry["top_logprobs"]) for entry in content] == [1, 1]


def test_echo_repeats_the_prompt(client: TestClient) -> None:
    assert completion(client, prompt="hello", max_tokens=0, echo=True)["choices"][0]["text"] == "hello"
    assert completion(client, prompt="hello", max_tokens=1, echo=True)["choices"][0]["text"] == "hello token"


@pytest.mark.parametrize(
    ("body", "code", "kind", "words"),
    [
        ({"model": "other", "prompt": "x"}, 404, "NotFoundError", "The model `other` does not exist."),
        ({"prompt": "x", "max_tokens": 0}, 400, "BadRequestError", "max_tokens must be at least 1, got 0."),
        ({"prompt": "x", "max_tokens": 401}, 400, "BadRequestError", "cannot be greater than max_model_len=400"),
        ({"prompt": [1] * 401}, 400, "BadRequestError", "maximum context length is 400 tokens"),
        ({"prompt": [1] * 400}, 400, "BadRequestError", "max_tokens must be at least 1, got 0."),
        ({"prompt": ""}, 400, "BadRequestError", "prompt cannot be empty"),
        ({"prompt": []}, 400, "BadRequestError", "prompt cannot be empty"),
        ({}, 400, "BadRequestError", "Either prompt or prompt_embeds"),
        ({"prompt": {"a": 1}}, 400, "Bad Request", "body.prompt"),
        ({"prompt": "x", "max_tokens": "many"}, 400, "Bad Request", "body.max_tokens"),
        ({"prompt": "x", "max_tokens": True}, 400, "Bad Request", "body.max_tokens"),
        ({"prompt": "x", "n": 0}, 400, "BadRequestError", "n must be at least 1, got 0."),
        ({"prompt": "x", "n": 1_000_000}, 400, "BadRequestError", "n must be at most 10000, got 1000000."),
        ({"prompt": "x", "min_tokens": -1}, 400, "BadRequestError", "min_tokens must be greater than or equal to 0"),
        ({"prompt": "x", "suffix": "y"}, 400, "BadRequestError", "suffix is not currently supported"),
        ({"prompt": "x", "stop": [""]}, 400, "BadRequestError", "stop cannot contain an empty string"),
        ({"prompt": "x", "stop": 5}, 400, "Bad Request", "body.stop"),
        ({"prompt": "x", "stream": "yes"}, 400, "Bad Request", "body.stream"),
        ({"prompt": "x", "stream_options": {}}, 400, "BadRequestError", "Stream options can only be defined"),
        ({"prompt": "x", "logprobs": 21}, 400, "BadRequestError", "greater than max allowed: 20"),
        ([1, 2], 400, "Bad Request", "valid dictionary"),
        ("not json", 400, "Bad Request", "JSON decode error"),
    ],
)
def test_bad_bodies_get_vllm_s_error(client: TestClient, body: Any, code: int, kind: str, words: str) -> None:
    content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    answer = client.post("/v1/completions", content=content)
    assert answer.status_code == code
    error = answer.json()["error"]
    assert error["code"] == code
    assert error["type"] == kind
    assert words in error["message"]


def test_other_addresses_and_other_sites_are_refused(client: TestClient) -> None:
    assert client.get("/v2").json()["error"] == {
        "message": "Not Found",
        "type": "Not Found",
        "param": None,
        "code": 404,
    }
    assert client.get("/v1/completions").status_code == 405
    assert client.get("/v1/models", headers={"host": "example.com"}).status_code == 400
    assert client.get("/v1/models", headers={"origin": "http://example.com"}).status_code == 403
    assert client.get("/v1/models", headers={"origin": "http://localhost:8000"}).status_code == 200


def test_pieces_of_a_text_are_counted_and_put_together(client: TestClient) -> None:
    answer = client.post("/tokenize", json={"prompt": "hello wörld", "return_token_strs": True}).json()
    assert (answer["count"], answer["max_model_len"]) == (3, 400)
    assert answer["token_strs"] == ["hell", "o wö", "rld"]
    assert client.post("/detokenize", json={"tokens": answer["tokens"]}).json() == {"prompt": "hello wörld"}
    assert client.post("/tokenize", json={"prompt": 5}).status_code == 400


def test_metrics_count_what_was_served() -> None:
    with TestClient(application(endpoint()), base_url="http://127.0.0.1") as client:
        completion(client, prompt=list(range(40)))
        completion(client, prompt=list(range(40)))
        lines = client.get("/metrics").text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    labels = f'{{engine="0",model_name="{MODEL}"}}'
    assert values[f"vllm:prompt_tokens_total{labels}"] == "80"
    assert values[f"vllm:generation_tokens_total{labels}"] == "6"
    assert values[f"vllm:prefix_cache_hits_total{labels}"] == "32"
    assert values[f"vllm:time_to_first_token_seconds_count{labels}"] == "2"
    assert values[f"vllm:inter_token_latency_seconds_count{labels}"] == "4"
    assert values[f"vllm:num_requests_running{labels}"] == "0"


def test_adapters_are_models_of_their_own() -> None:
    with TestClient(application(endpoint(max_loras=2)), base_url="http://localhost") as client:
        assert completion(client, prompt="x", model="my-adapter")["model"] == "my-adapter"
        assert [entry["id"] for entry in client.get("/v1/models").json()["data"]] == [MODEL, "my-adapter"]


def test_every_page_is_free_after_many_clients_of_which_half_leave() -> None:
    async def visit(client: httpx.AsyncClient, number: int) -> None:
        asked = {"prompt": [number] * (1 + number % 90), "max_tokens": 200 if number % 2 else 5, "stream": True}
        async with client.stream("POST", "/v1/completions", json=asked) as answer:
            async for _ in answer.aiter_lines():
                if number % 2:
                    return  # leaves after the first event

    async def all_visits() -> tuple[int, int, int]:
        import uvicorn

        served = endpoint(num_gpu_blocks=300)
        config = uvicorn.Config(application(served), port=0, log_level="error")
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0)
        port = server.servers[0].sockets[0].getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            await asyncio.gather(*(visit(client, number) for number in range(120)))
        clients = served.clients
        while clients.engine.next_event_ns is not None or clients.waiting:
            await asyncio.sleep(0)
        server.should_exit = True
        await task
        return clients.used_pages()[0], len(clients.waiting), clients.gauges.finished

    used, waiting, finished = asyncio.run(all_visits())
    assert (used, waiting, finished) == (0, 0, 120)
