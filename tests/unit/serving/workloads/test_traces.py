"""Traces whose units, blocks and sessions are recognised from what stands in them, and those that do not tell."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from presim.errors import InputError
from presim.serving.engines.engine import Fleet, Limits, Replica, constant_times
from presim.serving.engines.simulate_fleet import simulate
from presim.serving.workloads.traces import read_trace, stamp_s
from presim.serving.workloads.workload import Workload, read, write

STEP_NS = 1_000_000


def trace(tmp_path: Path, *rows: dict[str, Any], **options: Any) -> Workload:
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return read_trace(tmp_path / "trace.jsonl", **options)


def row(timestamp: float | None, prompt: int, ids: int = 0, **more: Any) -> dict[str, Any]:
    made = {"timestamp": timestamp, "input_length": prompt, "output_length": 4, **more}
    return {**made, "hash_ids": list(range(ids))} if ids else made


def served_at(load: Workload) -> tuple[list[int], list[int]]:
    """When requests are sent and end, in steps."""
    limits = Limits(num_gpu_blocks=4000, max_num_batched_tokens=8192, max_model_len=8192, async_scheduling=False)
    run = simulate(load, Fleet((Replica(limits, constant_times(STEP_NS, limits)),)), compiled=False)
    return (run.sent // STEP_NS).tolist(), (run.last // STEP_NS).tolist()


def test_bailian_has_seconds_and_blocks_of_16(tmp_path: Path) -> None:
    chat = {"chat_id": 3, "parent_chat_id": -1, "turn": 1}
    load = trace(tmp_path, row(0.5, 100, 6, **chat), row(2.5, 260, 17, **chat))
    assert load.arrival_ns.tolist() == [0, 2_000_000_000]
    assert load.segment_tokens == 16
    assert load.segments.tolist() == [*range(6), *range(16)]
    assert load.remarks[-1] == "Fields of the trace that are not used: chat_id, parent_chat_id, turn."


@pytest.mark.parametrize(
    ("rows", "unit_ns", "tokens"),
    [
        ([row(0, 1200, 3), row(27, 700, 2)], 1_000_000, 512),
        ([row(0.25, 100, 7), row(27.25, 90, 6)], 1_000_000_000, 16),
        ([row(0, 10), row(27, 10)], 1_000_000, 0),
    ],
)
def test_units_follow_from_the_numbers(tmp_path: Path, rows: list[Any], unit_ns: int, tokens: int) -> None:
    load = trace(tmp_path, *rows)
    assert load.arrival_ns.tolist() == [0, 27 * unit_ns]
    assert load.segment_tokens == tokens


@pytest.mark.parametrize(
    ("rows", "words", "options"),
    [
        ([row(0.5, 10), row(2, 10)], "give --trace-unit s or", {"unit": "s"}),
        ([row(1, 160, 10), row(2, 160, 10)], "give --trace-unit s or", {"unit": "ms"}),
        ([row(0, 100, 7), row(2, 1000, 7)], "give --trace-block-tokens", {"unit": "s"}),
    ],
)
def test_what_the_trace_does_not_tell_is_asked_for(
    tmp_path: Path, rows: list[Any], words: str, options: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=words):
        trace(tmp_path, *rows)
    if "block" not in words:
        assert len(trace(tmp_path, *rows, **options)) == 2


def test_a_size_of_blocks_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"512 does not fit the trace: a prompt of 100 tokens has 7 hash_ids"):
        trace(tmp_path, row(0, 100, 7), block_tokens=512)


def test_a_turn_starts_when_the_former_one_has_ended_and_has_it_in_front(tmp_path: Path) -> None:
    turns = [
        {"session_id": "a", "timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [7, 8]},
        {"session_id": "b", "timestamp": 1, "input_length": 100, "output_length": 2},
        {"session_id": "a", "delay": 3, "input_length": 50, "output_length": 2, "hash_ids": [9]},
    ]
    load = trace(tmp_path, *turns)
    assert load.prompt.tolist() == [600, 655, 100]
    assert load.parent.tolist() == [-1, 0, -1]
    assert load.segments.tolist() == [7, 7]  # a whole block of the first prompt, also in front of the second
    assert load.stream.tolist() == [0, 0, 1]
    sent, ended = served_at(load)
    assert sent[1] == ended[0] + 3


def test_turns_that_repeat_the_ids_before_have_their_whole_prompt(tmp_path: Path) -> None:
    load = trace(tmp_path, *(row(0, 512 * ids, ids, session_id="a") for ids in (2, 3, 5)))
    assert load.prompt.tolist() == [1024, 1536, 2560]


def test_agents_wait_for_all_they_started_and_for_their_tools(tmp_path: Path) -> None:
    """A root, two sub-agents, and a call that joins both; the tool of the first takes 20 ms."""
    rows = [
        {"request_id": "root", "timestamp": 5, "input_length": 64, "output_length": 3, "wait_for": []},
        {"request_id": "one", "input_length": 64, "output_length": 9, "wait_for": ["root"], "tool_wait_ms": 20},
        {"request_id": "two", "input_length": 64, "output_length": 2, "wait_for": ["root"], "delay": 1},
        {"request_id": "join", "input_length": 64, "output_length": 2, "wait_for": ["two", "one"], "delay": 2.5},
        {"request_id": "lost", "input_length": 64, "output_length": 2, "wait_for": ["nobody"]},
    ]
    load = trace(tmp_path, *rows)
    assert load.skipped == ("'lost' waits for 'nobody', which is not in the trace",)
    sent, ended = served_at(load)
    assert sent[1:3] == [ended[0] + 20, ended[0] + 1]
    assert sent[3] == max(ended[1:3]) + 2
    write(load, tmp_path / "saved")
    write(read(tmp_path / "saved"), tmp_path / "again")
    assert (tmp_path / "saved").read_bytes() == (tmp_path / "again").read_bytes()
    assert served_at(read(tmp_path / "saved")) == (sent, ended)
    assert load.at_once(8).joins.tolist() == [[3, 1], [7, 5]]


def test_requests_that_wait_for_each_other_are_skipped(tmp_path: Path) -> None:
    rows = [
        {"request_id": name, "input_length": 9, "output_length": 1, "wait_for": [other]} for name, other in ("ab", "ba")
    ]
    with pytest.raises(InputError, match=r"no usable row as agentic trace .* requests that wait for it"):
        trace(tmp_path, *rows)


def test_texts_count_their_characters(tmp_path: Path) -> None:
    load = trace(tmp_path, {"timestamp": 0, "text_input": "word " * 20, "output_length": 3})
    assert load.prompt.tolist() == [25]
    assert "Texts have a token for 4 characters." in load.remarks


@pytest.mark.parametrize("bad", [True, 1000.9, "many", None, -3, [5]])
def test_lengths_that_are_no_whole_numbers_are_named(tmp_path: Path, bad: Any) -> None:
    load = trace(tmp_path, row(0, 10), row(5, bad))
    assert len(load) == 1
    assert load.skipped[0].startswith("row 2: input_length is ")


WEKA = {
    "id": "trace_1", "models": ["m"], "block_size": 64, "hash_id_scope": "local", "tool_tokens": 0,
    "requests": [
        {"t": 0.0, "type": "n", "model": "m", "in": 200, "out": 5, "hash_ids": [1, 2, 3], "api_time": 0.004},
        {"t": 0.006, "type": "subagent", "agent_id": "x", "subagent_type": "Explore", "status": "completed",
         "requests": [{"t": 0.0, "type": "n", "model": "m", "in": 100, "out": 20, "hash_ids": [8]},
                      {"t": 0.1, "type": "s", "model": "m", "in": 160, "out": 2, "hash_ids": [8, 9],
                       "think_time": 0.003}]},
        {"t": 0.5, "type": "n", "model": "m", "in": 300, "out": 2, "hash_ids": [1, 2, 3, 4], "think_time": 0.001},
    ],
}  # fmt: skip


def test_sessions_of_coding_agents_wait_for_their_sub_agents(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(WEKA))
    load = read_trace(tmp_path)
    assert len(load) == 8
    assert sorted(load.prompt.tolist()) == sorted([200, 100, 160, 300] * 2)
    assert len(np.unique(load.segments)) == 2 * 6  # ids of two files are not the same contents
    one = read_trace(tmp_path / "a.json")
    sent, ended = served_at(one)
    order = one.prompt.tolist().index
    assert sent[order(160)] == ended[order(100)] + 3
    assert sent[order(300)] == ended[order(160)] + 1


@pytest.mark.parametrize(
    ("stamp", "seconds"),
    [
        ("2024-05-10 00:00:00.250000Z", 1715299200.25),
        ("2024-05-10T00:00:00Z", 1715299200.0),
        ("2024-05-09 17:00:00.5-07:00", 1715299200.5),
        ("2024-05-10 00:00:00.1234567", 1715299200.1234567),
        ("2024-05-10 02:00:00+0200", 1715299200.0),
        ("yesterday", None),
        ("", None),
    ],
)
def test_stamps_have_zones(stamp: str, seconds: float | None) -> None:
    assert stamp_s(stamp) == (None if seconds is None else pytest.approx(seconds, abs=1e-6))


def table(tmp_path: Path, name: str, text: str) -> Workload:
    (tmp_path / name).write_text(text)
    return read_trace(tmp_path / name)


def test_vidurs_tables_have_seconds(tmp_path: Path) -> None:
    load = table(tmp_path, "t.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n1.5,374,44\n4.5,396,109\n")
    assert load.arrival_ns.tolist() == [0, 3 * 10**9]
    assert (load.prompt.tolist(), load.output.tolist()) == ([374, 396], [44, 109])
    with pytest.raises(InputError, match="no column 'arrived_at'"):
        table(tmp_path, "t.csv", ",num_prefill_tokens,num_decode_tokens,pd_ratio\n0,374,44,8.5\n")


def test_stamps_with_and_without_a_zone_are_not_mixed(tmp_path: Path) -> None:
    rows = "2024-05-10 00:00:00+00:00,7,5\n2024-05-10 00:00:01,8,6\n2024-05-10 02:00:02.5+02:00,9,7\n"
    load = table(tmp_path, "t.csv", f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}")
    assert load.arrival_ns.tolist() == [0, 2_500_000_000]
    assert load.skipped == ("row 2: TIMESTAMP 2024-05-10 00:00:01 has no time zone, unlike the first row's",)


@pytest.mark.parametrize(("step", "rate"), [(1, 0), (0.1, "1e+04"), (3_053_000_000, "3.28e-07")])
def test_a_rate_that_no_trace_has_tells_that_stamps_are_not_ms(tmp_path: Path, step: float, rate: str | int) -> None:
    """Ten whole seconds of 100 requests in each ms, or microseconds."""
    rows = [row(int(step * number), 700, 2) for number in range(101)]
    if not rate:
        assert len(trace(tmp_path, *rows)) == 101
        return
    with pytest.raises(InputError, match=f"requests would be {re.escape(str(rate))} requests/s: give --trace-unit"):
        trace(tmp_path, *rows)
    assert len(trace(tmp_path, *rows, unit="s" if step < 1 else "ms")) == 101


@pytest.mark.parametrize("in_lines", [False, True])
def test_conversations_in_a_list_or_in_lines(tmp_path: Path, in_lines: bool) -> None:
    entry = {"conversations": [{"from": "human", "value": "x" * 40}, {"from": "gpt", "value": "y" * 80}]}
    text = "\n".join([json.dumps(entry)] * 3) if in_lines else json.dumps([entry] * 3)
    load = table(tmp_path, "t.json", text)
    assert (load.prompt.tolist(), load.output.tolist()) == ([10] * 3, [20] * 3)
    assert load.remarks == ("Texts have a token for 4 characters.",)


def test_rows_in_a_list_are_those_of_lines(tmp_path: Path) -> None:
    rows = [row(0, 700, 2), row(3000, 600, 2)]
    assert table(tmp_path, "t.json", json.dumps(rows)).arrival_ns.tolist() == [0, 3 * 10**9]


@pytest.mark.parametrize(
    ("result", "program"),
    [({"input_lens": [1], "output_lens": [2]}, "vllm bench serve"), ({"benchmarks": [{"requests": {}}]}, "GuideLLM")],
)
def test_results_of_benchmarks_are_no_traces(tmp_path: Path, result: dict[str, Any], program: str) -> None:
    with pytest.raises(InputError, match=f"is a result of {program}, not a trace of requests; give the trace"):
        table(tmp_path, "t.json", json.dumps(result))
