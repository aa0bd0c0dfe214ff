"""Derives the host factor that published host-bound runs imply, by source and node type.

    python validation/host_factors.py CASES.csv... --captures DIR... [--most N] >table.md

Runs are priced and simulated like ``presim validate`` does, with two factors. Between them, and slightly outside, the
step time is assumed to be linear in the factor. Runs with a host time below two fifths of the step at the lower factor
are excluded.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np

from kept_runs import KeptRun, kept_runs, options
from presim.cli.script import sentences
from presim.engine.simulation_options import Options
from presim.studies.validation.error_summary import markdown
from presim_study.runs import simulate, step_s

FACTORS = (1.4, 2.0)
WAITS = 0.4  # of its step that a run's host takes at least, at the lower factor


def asked(kept: KeptRun) -> float | None:
    """The factor at which predicted and measured step times agree; None if the host has little effect."""
    times = [step_s(kept.plan, kept.traces, simulate(kept.plan, kept.traces, Options(host_factor=f))) for f in FACTORS]
    low, high = times
    if low is None or high is None:
        return None
    slope = (high - low) / (FACTORS[1] - FACTORS[0])
    if slope * FACTORS[0] < WAITS * low:
        return None
    return max(FACTORS[0] + (kept.measured_s - low) / slope, 0.1)


def main() -> None:
    """Print one row per source and node type."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for kept in kept_runs(parser.parse_args()):
        factor = asked(kept)
        if factor is not None:
            found[kept.plan.cluster.node.id, kept.source].append(factor)
    rows = []
    for (node, source), factors in sorted(found.items()):
        least, middle, most = np.percentile(factors, [25, 50, 75])
        rows.append((node, source, str(len(factors)), f"{middle:.2f}", f"{least:.2f} to {most:.2f}"))
    print(markdown(("node type", "source", "runs", "asks for", "quartiles"), rows))


if __name__ == "__main__":
    with sentences():
        main()
