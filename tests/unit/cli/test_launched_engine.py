"""The option `--from` of `presim serve`: options beside it override, and what is not modelled is named."""

from __future__ import annotations

import click
import pytest

from presim.cli.launched_engine import expanded
from presim.cli.serve import command


def expand(*words: str) -> list[str]:
    return expanded(command, click.Context(command), list(words))


def test_words_of_a_launch_come_first_so_that_options_beside_it_override(capsys: pytest.CaptureFixture[str]) -> None:
    launch = "vllm serve a/b --tensor-parallel-size 4 --moe-backend marlin"
    assert expand("--tp", "2", "--from", launch) == ["--tp", "4", "a/b", "--tp", "2", "--from", launch]
    assert capsys.readouterr().err == "presim: not modelled, of the command: --moe-backend marlin\n"


def test_a_model_beside_the_launch_replaces_its_own() -> None:
    words = ["qwen3-8b", "--gpu", "h100-sxm", "--from=vllm serve a/b -pp 2"]
    assert expand(*words) == ["--pp", "2", *words]


def test_calls_without_a_launch_stay_as_they_are() -> None:
    assert expand("qwen3-8b", "--tp", "2") == ["qwen3-8b", "--tp", "2"]


@pytest.mark.parametrize(("model", "option"), [("qwen3-8b", "--replicas"), ("qwen3-30b-a3b", "--dp")])
def test_data_parallel_ranks_share_experts_if_there_are_some(model: str, option: str) -> None:
    launch = "vllm serve a/b -dp 2"
    assert expand(model, "--from", launch)[:2] == [option, "2"]
