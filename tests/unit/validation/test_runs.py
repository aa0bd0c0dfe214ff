"""Plug-ins that prepare cases: found by their entry points, asked in turn."""

from __future__ import annotations

import dataclasses
import sys
import tomllib
from collections.abc import Collection
from importlib import import_module
from pathlib import Path

import pytest

from presim.studies.validation.cases import CannotBuildError, Case
from presim.studies.validation.providers import open_providers
from presim.studies.validation.runs import GROUP, Providers, Settings, UnknownCaseError, ValidationRun
from presim.system import plugins

ROOT = Path(__file__).parents[3]


@dataclasses.dataclass(frozen=True)
class Refusing:
    """Knows nothing, or raises what it is given."""

    error: CannotBuildError
    sources_of_tests: Collection[str] = ()

    def prepare(self, case: Case) -> ValidationRun:
        raise self.error

    def close(self) -> None:
        pass


def install(folder: Path, target: str) -> None:
    """What pip leaves of a package with one entry point."""
    info = folder / "example-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\nexample = {target}\n")


def test_the_package_of_published_runs_names_a_factory_that_exists() -> None:
    project = tomllib.loads((ROOT / "validation" / "pyproject.toml").read_text())["project"]
    ((_, target),) = project["entry-points"][GROUP].items()
    module, _, name = target.partition(":")
    assert callable(getattr(import_module(module), name))


def test_the_next_provider_is_tried_only_for_unknown_cases() -> None:
    case = Case({"id": "x", "gpu": "H100"})
    mine = Refusing(CannotBuildError("hidden is empty"))
    with pytest.raises(CannotBuildError, match=r"^hidden is empty$"):
        Providers((Refusing(UnknownCaseError("no")), mine)).prepare(case)
    with pytest.raises(CannotBuildError, match=r"^the case names neither a command nor a saved job"):
        Providers((Refusing(UnknownCaseError("no")),)).prepare(case)


def test_without_plug_ins_presim_has_its_own_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "factories", lambda group: {})
    with open_providers(Settings()) as providers:
        assert len(providers.providers) == 1
        assert not providers.sources_of_tests


def test_the_plug_in_of_the_documentation_works_once_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "extend" / "cases.md").read_text()
    (tmp_path / "my_cases.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    install(tmp_path, "my_cases:make")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "gemm.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.chdir(tmp_path)
    with open_providers(Settings()) as providers:
        run = providers.prepare(Case({"id": "x", "gpu": "H100", "benchmark": "gemm"}))
    assert run.what == "command"
    assert run.cluster.gpu.id == "h100-sxm"
