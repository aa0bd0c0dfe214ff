"""Options of engines that ``presim serve`` has by another name, or not at all."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from presim.cli import engine_flags, serve

LLAMA = ["llama3-8b", "--gpu", "h100-sxm"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tensor-parallel-size", "2"], "write --tp"),
        (["--tensor-parallel-size=2"], "write --tp"),
        (["--kv-cache-dtype", "fp8"], "write --kv"),
        (["--enforce-eager"], "write --eager"),
        (["--prefill-context-parallel-size", "2"], "prefill context parallelism is not modelled"),
        (["-pcp", "2"], "prefill context parallelism is not modelled"),
        (["-tp", "2"], "write --tp"),
        (["--enable-dbo"], "dual-batch overlap is not modelled"),
    ],
)
def test_an_engines_option_is_answered_by_presims(words: list[str], said: str) -> None:
    result = CliRunner().invoke(serve.command, [*LLAMA, *words])
    assert result.exit_code == 2
    assert said in result.output


def test_another_unknown_option_is_clicks() -> None:
    result = CliRunner().invoke(serve.command, [*LLAMA, "--rates", "2"])
    assert result.exit_code == 2
    assert "--rate" in result.output


def test_names_that_are_given_are_options_of_serve() -> None:
    flags = {flag for option in serve.command.params if isinstance(option, click.Option) for flag in option.opts}
    named = {word for text in engine_flags._NAMED.values() for word in text.split() if word.startswith("--")}
    assert {word.rstrip(",;") for word in named} <= flags
    assert not flags & (set(engine_flags._NAMED) | set(engine_flags._NOT_MODELLED))
