"""How far host time of one program is apart that was captured at different times, with known stretches and without.

    python validation/host_repeats.py FOLDER... >table.md

Each FOLDER holds kept captures (`presim validate --captures`). Captures are of one program where script, arguments,
rank, GPU and world are the same and a steady step launches as much.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
from kept_runs import jobs

from presim.cli.script import sentences
from presim.errors import InputError
from presim.trace import store
from presim.trace.recurring import steadied
from presim.trace.schema import Kind, Trace
from presim.trace.speedometer import alone
from presim.validation.summary import markdown

BOUNDS = (0.0, 0.1, 0.3, 0.6, np.inf)


def steady_ns(trace: Trace) -> float:
    """Host time of the steps after the first, without what disturbed it, ns."""
    steps = trace.steps()
    return float(steadied([trace])[0].columns["host_ns"][steps[1].start : steps[-1].stop].astype(np.int64).sum())


def program(trace: Trace) -> tuple[object, ...]:
    """What tells programs from each other."""
    steps, manifest = trace.steps(), trace.manifest
    script = re.sub(r"^\S*/", "", manifest.script)
    launches = int(trace.mask(Kind.WORK, Kind.COLLECTIVE)[steps[1].start : steps[-1].stop].sum())
    return script, manifest.gpu, manifest.world_size, manifest.gpus_per_node, manifest.rank, launches, len(steps)


def main() -> None:
    """Read, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    programs: dict[tuple[object, ...], dict[float, float]] = defaultdict(dict)
    for job in jobs(parser.parse_args().folders):
        trace = next(iter(store.load(job).traces.values()))
        if trace.manifest.reference_host and len(trace.steps()) > 1:
            programs[program(trace)][steady_ns(trace)] = steady_ns(alone(trace))
    pairs = [pair for times in programs.values() for pair in itertools.combinations(times.items(), 2)]
    if not pairs:
        raise InputError("no program was captured twice; give folders of captures that were made at different times")
    apart = np.abs(np.log([(one[0] / other[0], one[1] / other[1]) for one, other in pairs]))
    rows = []
    for least, most in itertools.pairwise(BOUNDS):
        some = apart[(apart[:, 0] >= least) & (apart[:, 0] < most)]
        if len(some):
            figures = [f"{value:.2f}" for share in (50, 90) for value in np.percentile(some, share, axis=0)]
            rows.append((f"{least:g} to {most:g}", str(len(some)), *figures))
    whole = np.sqrt((apart**2).mean(axis=0))
    rows.append(("all, root of the mean square", str(len(apart)), f"{whole[0]:.2f}", f"{whole[1]:.2f}", "", ""))
    print(markdown(("apart without", "pairs", "median without", "with", "nine in ten without", "with"), rows))


if __name__ == "__main__":
    with sentences():
        main()
