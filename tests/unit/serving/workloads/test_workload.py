"""Workloads: made from a seed, saved and read back, and read from public traces with their bad rows counted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from presim.errors import InputError
from presim.serving.workloads.generate import Arrivals, Lengths, WorkloadRecipe, generate, lengths_of
from presim.serving.workloads.traces import read_trace
from presim.serving.workloads.workload import read, summary, write


def recipe(**changes: object) -> WorkloadRecipe:
    given = {"requests": 2000, "prompt": Lengths(500, 0.5), "output": Lengths(100), "rate": 10.0, **changes}
    return WorkloadRecipe(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("arrivals", ["poisson", "gamma", "constant", "burst"])
def test_requests_come_at_the_rate_that_was_asked(arrivals: Arrivals) -> None:
    made = generate(recipe(arrivals=arrivals, burstiness=0.5))
    assert summary(made)["request_rate"] == pytest.approx(10, rel=0.12)
    assert (np.diff(made.arrival_ns) >= 0).all()
    assert made.prompt.mean() == pytest.approx(500, rel=0.05)
    assert set(made.output) == {100}


def test_a_ramp_goes_from_one_rate_to_another() -> None:
    made = generate(recipe(arrivals="ramp", ramp_to=40.0))
    gaps = np.diff(made.arrival_ns) / 1e9
    assert 1 / gaps[:200].mean() < 20 < 1 / gaps[-200:].mean()


def test_the_seed_decides() -> None:
    one, same, other = (generate(recipe(seed=seed)) for seed in (1, 1, 2))
    assert one.arrival_ns.tolist() == same.arrival_ns.tolist()
    assert one.prompt.tolist() == same.prompt.tolist()
    assert one.arrival_ns.tolist() != other.arrival_ns.tolist()


def test_turns_hold_what_was_said_before() -> None:
    made = generate(recipe(requests=6, turns=3, prompt=Lengths(100), output=Lengths(10), shared_prefix=64, groups=2))
    assert made.prompt.tolist() == [164, 274, 384] * 2  # 64 + 100, + 10 + 100, + 10 + 100
    assert made.parent.tolist() == [-1, 0, 1, -1, 3, 4]
    assert made.segment_tokens == 64


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    made = generate(recipe(requests=50, turns=2, shared_prefix=32, concurrency=4))
    write(made, tmp_path / "w.jsonl")
    back = read(tmp_path / "w.jsonl")
    write(back, tmp_path / "again.jsonl")
    assert (tmp_path / "w.jsonl").read_bytes() == (tmp_path / "again.jsonl").read_bytes()
    assert summary(back) == summary(made)
    (tmp_path / "cut.jsonl").write_text("\n".join((tmp_path / "w.jsonl").read_text().splitlines()[:-3]))
    with pytest.raises(InputError, match="has 47 of 50 requests"):
        read(tmp_path / "cut.jsonl")


def test_lengths_are_read_from_words_and_files(tmp_path: Path) -> None:
    assert lengths_of("1024") == Lengths(1024)
    assert lengths_of("1024~0.5") == Lengths(1024, 0.5)
    (tmp_path / "lengths").write_text("3\n5\n")
    assert set(lengths_of(str(tmp_path / "lengths")).draw(np.random.default_rng(0), 100)) == {3, 5}
    with pytest.raises(InputError, match="a length is 1024"):
        lengths_of("many")


TRACES = {
    "azure": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"
        "2023-11-16 18:15:47.1805900,-1,4\n"
        "2023-11-16 18:15:48.6805900,396,109\n2023-11-16 18:15:49.1,,3\n",
        [(0, 374, 44), (2_000_000_000, 396, 109)],
        2,
    ),
    "azure 2024": (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\nyesterday,1,1\n",
        [(0, 2162, 5)],
        1,
    ),
    "burstgpt": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
        "45,ChatGPT,1087,0,1087,Conversation log\n118,GPT-4,417,276,693,Conversation log\n",
        [(0, 472, 18), (113_000_000_000, 417, 276)],
        1,
    ),
    "mooncake": (
        '{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}\n{"timestamp": 27}\n'
        "not json\n"
        '{"timestamp": 3000, "input_length": 600, "output_length": 7, "hash_ids": [0, 9]}\n',
        [(0, 1100, 5), (3_000_000_000, 600, 7)],
        2,
    ),
    "llmservingsim": (
        '{"input_toks": 10, "output_toks": 5, "arrival_time_ns": 100}\n'
        '{"input_toks": 11, "output_toks": 6, "arrival_time_ns": 300}\n',
        [(0, 10, 5), (200, 11, 6)],
        0,
    ),
    "sharegpt": (
        json.dumps(
            [
                {"conversations": [{"from": "human", "value": "x" * 40}, {"from": "gpt", "value": "y" * 80}]},
                {"conversations": [{"from": "human", "value": "x"}]},
            ]
        ),
        [(0, 10, 20)],
        1,
    ),
}


@pytest.mark.parametrize("name", TRACES)
def test_public_traces_are_read_as_published(name: str, tmp_path: Path) -> None:
    """Rows without a field or with a length below 1 are left out and counted."""
    text, rows, bad = TRACES[name]
    (tmp_path / "trace").write_text(text)
    made = read_trace(tmp_path / "trace")
    assert list(zip(made.arrival_ns, made.prompt, made.output)) == rows
    assert len(made.skipped) == bad
    if name == "mooncake":
        assert made.segments.tolist() == [0, 1, 0]  # whole pieces of 512 tokens
        assert made.segment_tokens == 512


def test_columns_that_are_not_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "azure").write_text(
        "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15 00:00:00.1,3,374,44\n"
    )
    (tmp_path / "burstgpt").write_text(TRACES["burstgpt"][0])
    assert read_trace(tmp_path / "azure").remarks == ("Columns of the trace that are not used: NumImages.",)
    assert read_trace(tmp_path / "burstgpt").remarks == ("Columns of the trace that are not used: Log Type, Model.",)


def test_a_row_without_a_length_does_not_hide_the_size_of_blocks(tmp_path: Path) -> None:
    rows = [{"timestamp": 9 * row, "input_length": 600, "output_length": 5, "hash_ids": [0, row]} for row in range(9)]
    rows[4]["input_length"] = -3
    (tmp_path / "trace").write_text("\n".join(map(json.dumps, rows)))
    made = read_trace(tmp_path / "trace")
    assert (made.segment_tokens, made.skipped) == (512, ("row 5: input_length is -3, below 1",))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="has no known trace format"):
        read_trace(tmp_path / "trace")
