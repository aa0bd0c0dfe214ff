"""Describing a finding of PyTorch's sanitizer."""

from __future__ import annotations

import enum
import sys
from types import SimpleNamespace

import pytest

from presim.capture.adapters import sanitizer


class Found(Exception):
    """An error like the sanitizer's."""

    def __init__(self, errors: list[SimpleNamespace]) -> None:
        super().__init__()
        self.errors = errors


Way = enum.Enum("Way", ["READ", "WRITE"])


def found(now: Way, before: Way) -> SimpleNamespace:
    return SimpleNamespace(
        current_access=SimpleNamespace(operator="aten::mul_(Tensor self) -> Tensor", type=now, stream=7),
        previous_access=SimpleNamespace(operator=SimpleNamespace(name="aten::zeros"), type=before, stream=0),
    )


@pytest.fixture
def _imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.cuda._sanitizer", SimpleNamespace(CUDASanitizerErrors=Found))


@pytest.mark.usefixtures("_imported")
def test_both_accesses_are_named() -> None:
    one = "aten::mul_ reads a tensor on stream 7 without waiting for aten::zeros, which writes it on stream 0"
    error = found(Way.READ, Way.WRITE)
    assert sanitizer.explain(Found([error])) == one
    assert sanitizer.explain(Found([error, found(Way.WRITE, Way.READ), error])) == f"{one}, and 2 more such uses"


@pytest.mark.usefixtures("_imported")
def test_other_errors_give_nothing() -> None:
    assert sanitizer.explain(ValueError("no")) == ""
    assert sanitizer.explain(Found([])) == ""


def test_without_the_sanitizer_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch.cuda._sanitizer", raising=False)
    assert sanitizer.explain(Found([found(Way.READ, Way.READ)])) == ""
