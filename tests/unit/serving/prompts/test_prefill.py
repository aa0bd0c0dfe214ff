"""Plans of batches: never longer than the simple ones, as short as trying everything, and refused in a sentence."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from presim.cli import main
from presim.errors import InputError
from presim.hardware.cluster_choice import choose_cluster
from presim.serving.model_lookup import find
from presim.serving.prompts import assign, prefill
from presim.serving.prompts.assign import PromptBatch
from presim.serving.prompts.prompt_times import PromptTimes
from presim.serving.serving_plan import ServingPlan
from support.long_cases import examples

LENGTHS = st.lists(st.integers(1, 20_000), min_size=1, max_size=6)


@functools.cache
def prices(ranks: int = 4, gpu: str = "h100-sxm") -> PromptTimes:
    return PromptTimes(find("llama3-8b"), ServingPlan(), choose_cluster(gpu=gpu, world_size=ranks), ranks, 120_000)


@settings(max_examples=examples(8), deadline=None)
@given(LENGTHS)
def test_the_plan_found_is_never_longer_than_a_simple_one(lengths: list[int]) -> None:
    found = prefill.of_batch(prices(), lengths)
    assert all(found.gain(policy) >= -1e-3 for policy in found.policies)


def test_one_rank_has_one_plan() -> None:
    found = prefill.of_batch(prices(1), [3000, 100])
    assert len({one.ns for one in found.policies.values()}) == 1


def test_the_search_comes_close_to_trying_all_combinations(monkeypatch: pytest.MonkeyPatch) -> None:
    for lengths in ([16000, 900, 300], [5000, 5000, 4000], [9000, 20, 20]):
        batch = PromptBatch(prices(), lengths)
        exact = batch.best()
        monkeypatch.setattr(assign, "_MOST_TRIED", 0)
        searched = batch.best()
        monkeypatch.undo()
        assert exact.exact
        assert not searched.exact
        assert exact.ns <= searched.ns * (1 + 1e-3)
        assert searched.ns < 1.05 * exact.ns


def test_a_faster_link_makes_no_plan_longer() -> None:
    slow, fast = (prefill.of_batch(prices(4, gpu), [16000, 4000, 500]) for gpu in ("h100-pcie", "h100-sxm"))
    assert fast.dynamic.ns < slow.dynamic.ns


def test_long_prompts_are_split_and_short_ones_are_not() -> None:
    alone = prefill.of_batch(prices(), [30_000])
    equal = prefill.of_batch(prices(), [1000] * 4)
    assert [way.degree for way in alone.dynamic.ways] == [4]
    assert [way.degree for way in equal.dynamic.ways] == [1] * 4
    assert sorted(way.first for way in equal.dynamic.ways) == [0, 1, 2, 3]


def test_prompts_are_batched_in_their_order() -> None:
    assert prefill.batches([10, 20, 40, 5, 100, 1], 40) == [(10, 20), (40,), (5,), (100,), (1,)]


def test_the_report_its_json_and_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    words = ["prefill", "llama3-8b", "--gpu", "h100-sxm", "--sp", "4", "--lengths", "8192,512,512"]
    assert main.run([*words, "--html", str(page)]) == 0
    assert "each its own" in capsys.readouterr().out
    assert page.read_text().count("<rect") == 4 * (3 + 4 * 3)  # a legend, and a bar of three parts for each rank
    assert main.run([*words, "--json", "-"]) == 0
    first = capsys.readouterr().out
    found = json.loads(first)
    (batch,) = found["batches"]
    policy = batch["policies"]["dynamic"]
    assert policy["ms"] == pytest.approx(max(policy["ms_of_ranks"]))
    assert sum(policy["ms_of_the_slowest_by_part"].values()) == pytest.approx(policy["ms"])
    assert sum(policy["prices"].values()) == pytest.approx(1)
    assert main.run([*words, "--json", "-"]) == 0
    assert capsys.readouterr().out == first


def test_a_trace_is_planned_batch_by_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "azure.csv"
    rows = "".join(f"2023-11-16 18:00:0{place}.0,{1000 + 500 * place},10\n" for place in range(4))
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + rows)
    words = ["prefill", "llama3-8b", "--gpu", "h100-sxm", "--sp", "2", "--trace", str(trace), "--budget", "4000"]
    assert main.run([*words, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [len(one["prompts"]) for one in found["batches"]] == [2, 1, 1]
    assert main.run(words) == 0
    assert "3 batches, 4 prompts" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--lengths", "0"], "a prompt of 0 tokens"),
        (["--lengths", "many"], "not 'many'"),
        (["--lengths", "9999999"], "longer than the"),
        ([], "either --lengths"),
        (["--lengths", ",".join(["x"] * 1025)], "a file of numbers"),
    ],
)
def test_bad_prompts_are_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["prefill", "llama3-8b", "--gpu", "h100-sxm", "--sp", "2", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_model_that_a_rank_cannot_hold_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["prefill", "llama3-70b", "--gpu", "l40s", "--sp", "4", "--lengths", "5000"]) == 4
    assert "does not fit" in capsys.readouterr().err


def test_a_batch_that_does_not_fit_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its reason is in the report and the JSON, and the exit code is that of a job that does not fit."""

    def check(prefilled: prefill.Prefilled) -> None:
        if prefilled.lengths == (512,):
            raise InputError("it does not fit")

    monkeypatch.setattr(prefill, "check_memory", check)
    words = ["prefill", "llama3-8b", "--gpu", "h100-sxm", "--sp", "2", "--lengths", "600,512,700", "--budget", "700"]
    assert main.run(words) == 4
    printed = capsys.readouterr().out
    assert "2 batches, 2 prompts" in printed
    assert "not planned: batch 2: it does not fit" in printed
    assert main.run([*words, "--json", "-"]) == 4
    assert json.loads(capsys.readouterr().out)["refused"] == ["batch 2: it does not fit"]


def test_prompts_that_would_take_too_long_are_refused_with_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "lengths.txt").write_text("100\n" * 20_000)
    words = ["prefill", "llama3-8b", "--gpu", "h100-sxm", "--sp", "64", "--lengths", str(tmp_path / "lengths.txt")]
    assert main.run([*words, "--budget", "1000"]) == 2
    assert capsys.readouterr().err == (
        "presim: 20,000 prompts over 64 ranks would take about 32 minutes, more than the budget of 10 minutes: use at "
        "most 6,200, or raise --work-budget, e.g. --work-budget 2h\n"
    )
    assert main.run([*words, "--budget", "1000", "--work-budget", "soon"]) == 2
    assert capsys.readouterr().err.startswith("presim: --work-budget is a time, memory or both")
