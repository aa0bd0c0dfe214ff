"""Analyses that a package registers; the documentation's example works once it is installed."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console

from presim.engine.simulation_options import Options
from presim.errors import InputError
from presim.evaluation.evaluate_traces import evaluate
from presim.hardware import choose_cluster
from presim.report import html, json, terminal
from presim.result import Analysis, Figure, Result
from presim.trace.job import Job
from support import workloads
from support.packages import install

PAGE = Path(__file__).parents[3] / "docs" / "extend" / "analyses.md"
CLUSTER = choose_cluster(gpu="h100-sxm", world_size=1)


def with_package(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str, declared: str) -> Result:
    """The result of a job where such a package is installed."""
    install(folder, declared)
    module = declared.rpartition("=")[2].partition(":")[0].strip()
    (folder / f"{module}.py").write_text(source)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.delitem(sys.modules, module, raising=False)
    return evaluate(Job.of(workloads.launch_bound(kernels=20)), CLUSTER, Options.of(host_factor=1.0)).result


def test_the_analysis_of_the_documentation_is_part_of_result_and_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PAGE.read_text()
    declared = text.partition("```toml\n")[2].partition("```")[0].replace("project.entry-points.", "").replace('"', "")
    result = with_package(tmp_path, monkeypatch, text.partition("```python\n")[2].partition("```")[0], declared)
    (analysis,) = result.analyses
    assert analysis.columns == ["rank", "kernels", "time"]
    assert int(analysis.rows[0][1]) > 0
    assert b"kernels below 5 us" in json.encode(result)
    assert "kernels below 5 us" in html.render(result)
    console = Console(file=io.StringIO(), width=100)
    terminal.write(result, console=console)
    assert "kernels below 5 us" in console.file.getvalue()  # type: ignore[attr-defined]


ANALYSIS = "from presim.result import Analysis, Figure\ndef one(job):\n    return "
DECLARED = "[presim.analyses]\nmine = {module}:one\n"


def test_notes_of_an_analysis_are_notes_of_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = f"{ANALYSIS}Analysis('a', [Figure('ranks', len(job.ranks))], ['The sky is clear.'])\n"
    result = with_package(tmp_path, monkeypatch, source, DECLARED.format(module="notes_of_mine"))
    assert result.analyses == [Analysis("a", [Figure("ranks", 1)], ["The sky is clear."])]
    assert "The sky is clear." in result.notes


@pytest.mark.parametrize(
    ("number", "returned", "message"),
    [
        (1, "1 / 0", "the analysis 'mine' of a package failed: ZeroDivisionError: division by zero"),
        (2, "7", "the analysis 'mine' returned int; it returns an Analysis or None"),
        (3, "Analysis('a', columns=['b'], rows=[[]])", "the analysis 'mine' has 1 columns and a row of another length"),
        (
            4,
            "Analysis('a', [Figure('b', float('nan'))])",
            "the analysis 'mine' gives no finite number for 'b'; leave out what is not known",
        ),
    ],
)
def test_an_analysis_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, returned: str, message: str
) -> None:
    with pytest.raises(InputError) as error:
        with_package(
            tmp_path, monkeypatch, f"{ANALYSIS}{returned}\n", DECLARED.format(module=f"failing_analysis_{number}")
        )
    assert str(error.value) == message
