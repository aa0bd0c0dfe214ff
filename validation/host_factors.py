"""Which factor of host time published runs ask for that wait for their hosts, by source and node type.

    python validation/host_factors.py CASES.csv... --captures DIR... [--most N] >table.md

Runs are priced and simulated as ``presim validate`` does, with two factors; between them, and a little beyond, a step's
time is a straight line. Runs whose host takes less than two fifths of the step at the lower factor are left out.
"""

from __future__ import annotations

import argparse
from collections import defaultdict

import numpy as np

from kept_runs import KeptRun, kept_runs, options
from presim.cli.script import sentences
from presim.engine.options import Options
from presim.validation.summary import markdown
from presim_study.runs import simulate, step_s

FACTORS = (1.4, 2.0)
WAITS = 0.4  # of its step that a run's host takes at least, at the lower factor


def asked(kept: KeptRun) -> float | None:
    """The factor with which the predicted step would take as long as the measured one; None: hosts matter little."""
    times = [step_s(kept.plan, kept.traces, simulate(kept.plan, kept.traces, Options(host_factor=f))) for f in FACTORS]
    low, high = times
    if low is None or high is None:
        return None
    slope = (high - low) / (FACTORS[1] - FACTORS[0])
    if slope * FACTORS[0] < WAITS * low:
        return None
    return max(FACTORS[0] + (kept.measured_s - low) / slope, 0.1)


def main() -> None:
    """One row for each source and node type."""
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
