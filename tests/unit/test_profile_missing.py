"""`--profile-missing` says before any capture what would keep its measurements from being used."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim import hardware
from presim.cli import api
from presim.cost.profile import run_profile
from presim.errors import InputError


def script(path: Path) -> Path:
    (path / "train.py").write_text("raise SystemExit('must not run')\n")
    return path / "train.py"


def test_it_needs_a_place(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--profile-missing needs a folder for its measurements: add --prices DIR"):
        api.run(script(tmp_path), gpu="h100-sxm", profile_missing=True)


def test_another_card_than_the_clusters_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_profile, "local_gpu", lambda: hardware.gpu("l4"))
    with pytest.raises(InputError, match=r"this machine has a NVIDIA L4 \(l4\), the cluster h100-sxm"):
        api.run(script(tmp_path), gpu="h100-sxm", prices=[tmp_path / "out"], profile_missing=True)
    assert not (tmp_path / "out").exists()


def test_folders_are_checked_before_the_capture(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no folder"):
        api.run(script(tmp_path), gpu="h100-sxm", prices=[tmp_path / "absent"])
