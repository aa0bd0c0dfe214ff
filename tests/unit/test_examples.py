"""Each example says how it is run, and means commands that there are."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path

import pytest

from presim.cli.run import command
from presim.hardware import catalogue

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: str(path.stem))
def test_the_first_command_of_an_example_is_one(example: Path) -> None:
    """What stands in its docstring: options that presim has, a GPU of the catalogue, and the example itself."""
    lines = (ast.get_docstring(ast.parse(example.read_text())) or "").splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith(("presim run ", "python examples/"))]
    assert commands, f"{example.name} does not say how it is run"
    for words in commands:
        assert f"examples/{example.name}" in words
        if words[0] == "presim":
            given = command.make_context("run", words[2:]).params
            assert catalogue.gpu(given["gpu"])
            assert given["script"] in (f"examples/{example.name}", "torchrun")
