"""What names a framework for a search, and what is refused before anything is composed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from presim.errors import InputError
from presim.planner.frameworks import trainer
from presim.planner.frameworks.trainer import check_values, trainer_of, values_of
from presim.planner.search_options import SearchOptions


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer.megatron, "installed_versions", dict)
    monkeypatch.setattr(trainer.launched, "installed_versions", lambda framework: {})
    monkeypatch.setattr(trainer, "config_file", lambda model: None if model == "graph" else Path("config.json"))


def of(**options: Any) -> tuple[str, int]:
    named, plans = trainer_of("llama3-8b", SearchOptions(**options))
    return ("" if named is None else " ".join((named.framework, named.precision, *named.overrides))), plans


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("", 0)),
        ({"framework": "megatron"}, ("megatron bf16", 8)),
        ({"framework": "accelerate", "framework_plans": 2}, ("hf bf16", 2)),
        ({"framework": "megatron", "confirm": 3}, ("", 0)),
        ({"framework": "megatron", "confirm": 3, "framework_plans": 5}, ("megatron bf16", 5)),
        ({"framework": "megatron", "precision": "mxfp8", "framework_args": "a.b=1 c"}, ("megatron mxfp8 a.b=1 c", 8)),
    ],
)  # fmt: skip
def test_a_named_framework_prices_plans_unless_whole_captures_confirm_them(
    options: dict[str, Any], expected: tuple[str, int]
) -> None:
    assert of(**options) == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"framework_plans": 3}, "name it, as --framework megatron"),
        ({"precision": "mxfp8"}, "add --framework"),
        ({"framework": "megatron", "confirm": 2, "framework_args": "a.b=1"}, "--framework-plans beside --confirm"),
    ],
)
def test_options_without_a_framework_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        of(**options)


def test_a_model_without_a_config_is_refused() -> None:
    with pytest.raises(InputError, match="graph is no Hugging Face config, from which torchtitan builds"):
        trainer_of("graph", SearchOptions(framework="torchtitan"))


def test_knobs_have_the_framework_s_values() -> None:
    free = {"data_style": ("fsdp2", "hsdp", "zero1"), "tensor": (1, 2), "reshard": (True, False)}
    assert values_of("hf", free) == {"data_style": ("fsdp2", "hsdp"), "tensor": (1,), "reshard": (True, False)}
    check_values("hf", {"tensor": (1, 2)})
    with pytest.raises(InputError, match="--framework hf has no --tp 2, only 1"):
        check_values("hf", {"tensor": (2,)})
    with pytest.raises(InputError, match="--framework megatron does not take --reshard"):
        check_values("megatron", {"reshard": (True,)})
