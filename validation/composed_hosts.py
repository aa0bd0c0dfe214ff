"""Launch times for `presim compose`, by framework style: medians over captured jobs, written to `hosts.json`.

    python validation/composed_hosts.py FOLDER

FOLDER contains the captures of `composed.py`. Only the first of the two jobs of a family is used, so that the other one
tests the table; `composed.py` marks the used ones. Time of entries that composed jobs lack (memory blocks, waits of the
host) counts for the next entry.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from composed import RESULT, ROOT, folder_of
from composed_cases import CASES, fitted
from presim.cli.script import sentences
from presim.errors import InputError
from presim.trace import job_store
from presim.trace.schema import Kind, Phase, Trace

OUT = ROOT / "src" / "presim" / "compose" / "hosts.json"
STYLES = {
    "HF + FSDP2": "eager",
    "HF + HSDP": "eager",
    "HF + DDP": "ddp",
    "HF + TP (DTensor) + FSDP2": "dtensor",
    "torchtitan's order + TP + SP": "dtensor-sequence",
    "Megatron-core": "megatron",
}
TIMED = (Kind.WORK, Kind.COLLECTIVE, Kind.EVENT_RECORD, Kind.STREAM_WAIT, Kind.STEP)


def times(trace: Trace) -> Iterator[tuple[str, str, int]]:
    """Phase, label and host time of each entry in the last step."""
    (*_, last) = trace.steps()
    columns = {
        name: trace.columns[name][last].tolist() for name in ("kind", "phase", "operator", "signature", "host_ns")
    }
    held = 0
    for kind, phase, operator, signature, host in zip(*columns.values()):
        held += host
        if kind not in TIMED:
            continue
        name = ""
        if kind == Kind.COLLECTIVE:
            name = getattr(trace.signatures[signature], "kind", "")
        elif kind == Kind.WORK and operator >= 0:
            name = trace.operators[operator]
        yield Phase(phase).name, Kind(kind).name, held
        if name:
            yield Phase(phase).name, f"{Kind(kind).name} {name}", held
        held = 0


def table(traces: list[Trace]) -> dict[str, dict[str, int]]:
    """Phase -> label -> median over jobs of the mean time in ns."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for trace in traces:
        own: dict[tuple[str, str], list[int]] = defaultdict(list)
        for phase, label, host in times(trace):
            own[phase, label].append(host)
        for key, values in own.items():
            found[key].append(statistics.fmean(values))
    made: dict[str, dict[str, int]] = {}
    for (phase, label), means in sorted(found.items()):
        made.setdefault(phase, {})[label] = round(statistics.median(means))
    return made


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    by_style: dict[str, list[Trace]] = {}
    for case in CASES:
        kept = folder_of(case, folder)
        if case.family in STYLES and fitted(case) and (kept / "job.json").exists():
            traces = job_store.load(kept).traces
            by_style.setdefault(STYLES[case.family], []).append(traces[min(traces)])
    if not by_style:
        raise InputError(f"{folder} has no captured job; make them with `validation/composed.py {folder}`")
    known = json.loads(OUT.read_text())["styles"]
    styles = {**known, **{style: table(traces) for style, traces in by_style.items()}}
    source = f"validation/composed_hosts.py; the jobs are those marked in {RESULT.relative_to(ROOT)}"
    OUT.write_text(json.dumps({"source": source, "styles": styles}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    with sentences():
        main()
