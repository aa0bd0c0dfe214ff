"""Planners look for what recipes import: here it is there, and a test takes out what it is about."""

from __future__ import annotations

import pytest


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the packages that planners find."""
    names = {"bitsandbytes", "causal_conv1d", "litgpt", "mamba_ssm", "megatron", "torchao", "torchtitan"}
    names |= {"deepspeed", "nemo_automodel", "peft", "transformer_engine"}
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name in names else None)
    return names
