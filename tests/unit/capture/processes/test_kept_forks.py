"""Which zygotes are kept between captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.capture.processes.forks import RECIPE, Forks
from presim.capture.processes.kept_forks import MAX_KEPT, KeptForks
from presim.hardware.cluster_choice import choose_cluster

H100 = choose_cluster(gpu="h100-sxm", nodes=1, gpus_per_node=8)
A100 = choose_cluster(gpu="a100-80gb-sxm", nodes=1, gpus_per_node=8)


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Forks]:
    found: list[Forks] = []
    monkeypatch.setattr(Forks, "close", lambda there: found.append(there))
    return found


def scripts(folder: Path, count: int) -> list[Path]:
    made = [folder / f"train_{number}.py" for number in range(count)]
    for path in made:
        path.write_text("import torch\n")
    return made


def test_a_script_on_one_device_has_one_zygote(tmp_path: Path) -> None:
    (script,) = scripts(tmp_path, 1)
    kept = KeptForks()
    first = kept.of(script, H100)
    assert first.imports == (RECIPE, str(script))
    assert kept.of(script, choose_cluster(gpu="h100-sxm", nodes=4, gpus_per_node=8)) is first
    assert kept.of(script, A100) is not first


def test_a_changed_file_beside_the_script_needs_another_zygote(tmp_path: Path) -> None:
    (script,) = scripts(tmp_path, 1)
    kept = KeptForks()
    first = kept.of(script, H100)
    (tmp_path / "layers.py").write_text("import torch\n")
    assert kept.of(script, H100) is not first


def test_the_least_recently_used_zygote_ends_first(tmp_path: Path, ended: list[Forks]) -> None:
    paths = scripts(tmp_path, MAX_KEPT + 1)
    kept = KeptForks()
    made = [kept.of(path, H100) for path in paths[:MAX_KEPT]]
    kept.of(paths[0], H100)
    kept.of(paths[MAX_KEPT], H100)
    assert ended == [made[1]]


def test_close_ends_all_zygotes(tmp_path: Path, ended: list[Forks]) -> None:
    kept = KeptForks()
    made = [kept.of(path, H100) for path in scripts(tmp_path, 2)]
    kept.close()
    assert ended == made
