"""The verb `doctor`: its words and its exit code."""

from __future__ import annotations

import json

import pytest

from presim.capture.setup import doctor
from presim.capture.setup.doctor import CheckState, SetupCheck
from presim.cli import main

THERE = SetupCheck("PyTorch", CheckState.OK, "2.14.0, built for CUDA 13.0")
GONE = SetupCheck("disk", CheckState.MISSING, "1.0 MiB free in /tmp", "export TMPDIR=DIR")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[SetupCheck]:
    """What the checks say; a test appends to it."""
    checks: list[SetupCheck] = [THERE]
    monkeypatch.setattr(doctor, "examine", lambda machine: tuple(checks))
    return checks


def test_a_machine_that_can_run_exits_with_0(found: list[SetupCheck], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "ok       PyTorch  2.14.0, built for CUDA 13.0",
        "",
        "`presim run` works here.",
    ]


def test_a_machine_that_cannot_exits_with_1_and_ends_with_the_remedy(
    found: list[SetupCheck], capsys: pytest.CaptureFixture[str]
) -> None:
    found.append(GONE)
    assert main.run(["doctor"]) == 1
    assert capsys.readouterr().out.splitlines()[-3:] == [
        "`presim run` does not work here yet.",
        "To mend:",
        "  disk: export TMPDIR=DIR",
    ]


def test_json_says_the_same(found: list[SetupCheck], capsys: pytest.CaptureFixture[str]) -> None:
    found.append(GONE)
    assert main.run(["doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["works"] is False
    assert report["checks"][1] == {
        "name": "disk",
        "state": "missing",
        "found": "1.0 MiB free in /tmp",
        "mend": "export TMPDIR=DIR",
    }


def test_the_deep_check_is_left_out_where_something_is_missing(
    found: list[SetupCheck], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would only fail for the reason that is already named."""
    found.append(GONE)
    monkeypatch.setattr(doctor, "examine_deeply", lambda: pytest.fail("was called"))
    assert main.run(["doctor", "--deep"]) == 1
