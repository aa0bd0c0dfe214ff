"""Sources are found by their entry points, and the documentation's example works once it is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from presim.evaluation.evaluator import evaluate
from presim.hardware import choose_cluster
from presim.sources import source_conformance
from presim.sources.readers import open_files
from presim.sources.source import SourceRequest
from presim.trace.builder import TraceBuilder
from presim.trace.job import Job
from support.profiles import program

PAGE = Path(__file__).parents[3] / "docs" / "extend" / "sources.md"


def test_the_source_of_the_documentation_is_found_by_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PAGE.read_text()
    declared = text.partition("```toml\n")[2].partition("```")[0].replace("project.entry-points.", "")
    info = tmp_path / "example-1.dist-info"  # what pip leaves of a package
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1\n")
    (info / "entry_points.txt").write_text(declared.replace('"', ""))
    (tmp_path / "my_source.py").write_text(text.partition("```python\n")[2].partition("```")[0])
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    sizes = tmp_path / "a.products"
    sizes.write_text("4096 4096 4096\n8192 4096 1024\n")
    job = source_conformance.check_source(open_files([sizes], SourceRequest()))
    assert evaluate(job, choose_cluster(gpu="h100-sxm", world_size=1)).step_time_s


def test_a_saved_job_is_a_source(tmp_path: Path) -> None:
    Job((program(0), program(1))).save(tmp_path)
    job = source_conformance.check_source(open_files([tmp_path], SourceRequest()))
    assert len(job.traces) == 2


def test_conformance_refuses_what_a_job_must_not_be() -> None:
    trace = TraceBuilder().trace()
    with pytest.raises(AssertionError, match="ascending by rank"):
        source_conformance.check_job(Job((trace, trace)))
    with pytest.raises(AssertionError, match="only ranks with a trace"):
        source_conformance.check_job(Job((trace,), {3: [0]}))
    with pytest.raises(AssertionError, match="notes are sentences"):
        source_conformance.check_job(Job((trace,), notes=("unfinished",)))
