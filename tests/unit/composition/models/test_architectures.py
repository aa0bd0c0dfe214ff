"""Parameters of a description equal the class's own count, for text generators that vLLM serves."""

from __future__ import annotations

import functools
import json
import sys
from typing import Any

import pytest

from presim.composition.graph.take import run_exporter
from support.architectures import ARCHITECTURES
from support.export_server import forked

pytestmark = pytest.mark.torch_cuda
SHORT = ("Llama", "GptOss", "NemotronH", "Gemma3n", "Zamba2", "KimiLinear")  # the rest is of the same kinds


@functools.cache
def counted(names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    ended = forked(run_exporter)([sys.executable, "-m", "support.architectures", *names])
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(ended.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def check(count: dict[str, Any]) -> None:
    assert "refusal" not in count, count
    assert count["class"] == count["description"]
    assert 1 <= count["kinds"] <= count["layers"]


@pytest.mark.parametrize("name", SHORT)
def test_parameters_are_the_class_s_own(name: str) -> None:
    check(counted(SHORT)[name])


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in SHORT])
def test_parameters_of_every_text_generator_are_the_class_s_own(name: str) -> None:
    check(counted(tuple(ARCHITECTURES))[name])
