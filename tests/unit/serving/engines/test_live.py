"""The live engine gives the same times as the simulation, and the endpoint hands out its tokens."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from presim.errors import InputError
from presim.serving.engines.engine import Fleet, Limits, Replica, constant_times
from presim.serving.engines.http import Server
from presim.serving.engines.live import LiveEngine
from presim.serving.engines.simulate import simulate
from presim.serving.workloads.workload import make

STEP = 1_000_000
LIMITS = Limits(num_gpu_blocks=60, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=400)
FLEET = Fleet((Replica(LIMITS, constant_times(STEP, LIMITS)),) * 2, "least-loaded", input_ns=1000, output_ns=500)


def test_requests_one_by_one_are_served_as_those_of_a_workload() -> None:
    rng = np.random.default_rng(0)
    arrival, prompt, output = np.sort(rng.integers(0, 40 * STEP, 30)), rng.integers(1, 150, 30), rng.integers(1, 20, 30)
    served = simulate(make("all", arrival, prompt, output), FLEET, compiled=False)
    engine, tokens = LiveEngine(FLEET), []
    for item in range(30):
        tokens += engine.advance(int(arrival[item]) - 1)
        engine.submit([item * 1000 + place for place in range(prompt[item])], int(output[item]), int(arrival[item]))
    tokens += engine.advance(1 << 60)
    assert engine.next_event_ns is None
    for item in range(30):
        mine = [token.when_ns for token in tokens if token.request == item]
        assert len(mine) == output[item]
        assert (mine[0], mine[-1]) == (served.first[item], served.last[item])


def test_equal_prompts_are_found_in_the_cache() -> None:
    engine = LiveEngine(Fleet((FLEET.replicas[0],)))
    prompt = list(range(100))
    for _ in range(2):
        engine.submit(prompt, 2, 0 if engine.next_event_ns is None else engine.next_event_ns)
        engine.advance(1 << 60)
    assert engine.state.hits == [0, 96]


def test_an_aborted_request_ends_with_its_next_token() -> None:
    engine = LiveEngine(FLEET)
    item = engine.submit([1, 2, 3], 300, 0)
    first = engine.advance(3 * STEP)
    engine.abort(item)
    rest = engine.advance(1 << 60)
    assert len(rest) <= 3
    assert [token.is_last for token in [*first, *rest]].count(True) == 1


def test_what_is_too_long_is_refused() -> None:
    with pytest.raises(InputError, match="exceed max_model_len 400"):
        LiveEngine(FLEET).submit([1] * 399, 10, 0)


async def _post(port: int, path: str, asked: dict[str, Any]) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(asked).encode()
    writer.write(f"POST {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    return answer


async def _talk() -> dict[str, bytes]:
    server = Server(FLEET, "some-model", speed=100.0)
    listening = await server.serve("127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    stream = {
        "prompt": "so many words " * 10,
        "max_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}
    _, going = await asyncio.open_connection("127.0.0.1", port)
    going.write(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
    going.close()  # a client that disconnects
    found = {
        "stream": await _post(port, "/v1/completions", stream),
        "chat": await _post(port, "/v1/chat/completions", chat),
        "ids": await _post(port, "/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 2}),
        "long": await _post(port, "/v1/completions", {"prompt": [1] * 500, "max_tokens": 2}),
        "models": await _post(port, "/v1/models", {}),
        "nowhere": await _post(port, "/v2", {}),
    }
    listening.close()
    await server.close()
    return found


def test_the_endpoint_answers_as_openai_s() -> None:
    found = asyncio.run(_talk())
    events = [line[6:] for line in found["stream"].decode().splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    parts = [json.loads(event) for event in events[:-1]]
    assert [part["choices"][0]["text"] for part in parts[:-1]] == [" token"] * 5
    assert parts[-2]["choices"][0]["finish_reason"] == "length"
    assert parts[-1]["usage"] == {"prompt_tokens": 35, "completion_tokens": 5, "total_tokens": 40}
    body = {name: json.loads(answer.partition(b"\r\n\r\n")[2]) for name, answer in found.items() if name != "stream"}
    assert body["chat"]["choices"][0]["message"]["content"] == " token" * 3
    assert body["ids"]["usage"]["prompt_tokens"] == 3
    assert "max_model_len 400" in body["long"]["error"]["message"]
    assert body["models"]["data"][0]["id"] == "some-model"
    assert found["nowhere"].startswith(b"HTTP/1.1 404")
