"""Measures the spread of host time between captures of one program, with and without known stretches.

    python validation/host_repeats.py FOLDER... >table.md

Each FOLDER holds captures of `presim validate --captures`. Captures are of the same program if script, arguments, rank,
GPU and world size agree and a steady step has the same number of launches. The first table shows the share of host time
that was removed as disturbance.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from kept_runs import jobs
from presim.cli.script import sentences
from presim.errors import InputError
from presim.studies.validation.error_summary import markdown
from presim.trace import job_store
from presim.trace.capture_speed import on_idle_machine
from presim.trace.host_noise import without_host_noise
from presim.trace.schema import Kind, Trace

# Of host time, ns: as it came, without what disturbed it, and with known stretches.
Times = tuple[float, float, float]
BOUNDS = (0.0, 0.1, 0.3, 0.6, np.inf)


def host_ns(trace: Trace) -> float:
    """Host time of the steps after the first, ns."""
    steps = trace.steps()
    return float(trace.columns["host_ns"][steps[1].start : steps[-1].stop].astype(np.int64).sum())


def program(trace: Trace) -> tuple[object, ...]:
    """Key of a program."""
    steps, manifest = trace.steps(), trace.manifest
    script = re.sub(r"^\S*/", "", manifest.script)
    launches = int(trace.mask(Kind.WORK, Kind.COLLECTIVE)[steps[1].start : steps[-1].stop].sum())
    return script, manifest.gpu, manifest.world_size, manifest.gpus_per_node, manifest.rank, launches, len(steps)


def apart_table(programs: Mapping[tuple[object, ...], Collection[Times]]) -> str:
    """How far captures of one program are apart, by how far that was without known stretches.

    Raises:
        InputError: no program was captured twice.
    """
    pairs = [pair for times in programs.values() for pair in itertools.combinations(sorted(times), 2)]
    if not pairs:
        raise InputError("no program was captured twice; give folders of captures that were made at different times")
    apart = np.abs(np.log([np.divide(*pair) for pair in pairs]))  # [pair, how it is counted]
    rows = []
    for least, most in itertools.pairwise(BOUNDS):
        some = apart[(apart[:, 1] >= least) & (apart[:, 1] < most)]
        if len(some):
            figures = [f"{value:.2f}" for share in (50, 90) for value in np.percentile(some, share, axis=0)]
            rows.append((f"{least:g} to {most:g}", str(len(some)), *figures))
    whole = [f"{value:.2f}" for value in np.sqrt((apart**2).mean(axis=0))]
    rows.append(("all, root of the mean square", str(len(apart)), *whole, "", "", ""))
    counted = ("as it came", "without", "with")
    heads = [f"{share} {how}" for share in ("median", "nine in ten") for how in counted]
    return markdown(("apart without", "pairs", *heads), rows)


def disturbed_table(disturbed: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Removed share of host time by recipe, and the share of the machine that other processes used."""
    rows = []
    for recipe, captures in sorted(disturbed.items()):
        ratios, shares = zip(*captures, strict=True)
        low, middle, high = np.percentile(ratios, (10, 50, 90))
        rows.append((recipe, str(len(ratios)), f"{np.median(shares):.1f}", f"{middle:.2f}", f"{low:.2f} to {high:.2f}"))
    return markdown(("recipe", "captures", "others had", "as it came over what is left", "eight of ten"), rows)


def main() -> None:
    """Read, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    programs: dict[tuple[object, ...], set[Times]] = defaultdict(set)
    disturbed: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for job in jobs(parser.parse_args().folders):
        trace = next(iter(job_store.load(job).traces.values()))
        if trace.manifest.reference_host and len(trace.steps()) > 1:
            times = (
                host_ns(trace),
                host_ns(without_host_noise([trace])[0]),
                host_ns(without_host_noise([on_idle_machine(trace)])[0]),
            )
            programs[program(trace)].add(times)
            recipe = Path(trace.manifest.script.split(" ")[0]).name
            disturbed[recipe].append((times[0] / times[1], trace.manifest.neighbours))
    print(disturbed_table(disturbed), apart_table(programs), sep="\n")


if __name__ == "__main__":
    with sentences():
        main()
