"""Timelines that were looked at once and must not change unnoticed.

After a change that is meant: ``PYTHONPATH=src:tests python tests/golden/test_timelines.py`` writes them anew.
"""

from __future__ import annotations

import pathlib

import pytest

from golden.scenarios import OPTIONS, SCENARIOS
from presim.engine.simulate import simulate_job
from presim.trace.schema import Kind

FOLDER = pathlib.Path(__file__).parent / "timelines"


def rendered(name: str, *, compiled: bool) -> str:
    """One line an entry: rank, kind, stream, issue, start, end."""
    job = SCENARIOS[name]()
    timelines = simulate_job(job, options=OPTIONS, compiled=compiled)
    lines = [f"# {(SCENARIOS[name].__doc__ or '').strip()}", f"# {'rank kind':16} stream   issue   start     end"]
    for item in job:
        columns, timeline = item.trace.columns, timelines[item.trace.manifest.rank]
        times = zip(timeline.issue_ns.tolist(), timeline.start_ns.tolist(), timeline.end_ns.tolist())
        for kind, stream, (issue, start, end) in zip(columns["kind"].tolist(), columns["stream"].tolist(), times):
            label = f"{item.trace.manifest.rank:4} {Kind(kind).name.lower()}"
            lines.append(f"{label:18} {stream:6} {issue:7} {start:7} {end:7}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", SCENARIOS)
def test_timeline_is_as_it_was(name: str, compiled: bool) -> None:
    """Both ways of running the loop give the kept answer."""
    assert rendered(name, compiled=compiled) == (FOLDER / f"{name}.txt").read_text()


if __name__ == "__main__":
    for scenario in SCENARIOS:
        (FOLDER / f"{scenario}.txt").write_text(rendered(scenario, compiled=False))
