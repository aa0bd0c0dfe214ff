"""Composed jobs, replayed by ASTRA-sim from the Chakra traces that presim writes, beside presim's own simulation.

    python validation/astra_sim.py BINARY [--out validation/results/astra-sim.md]

BINARY is ASTRA-sim's congestion-unaware analytical front end (astra-sim/astra-sim at 518bd51). It gets the files of
``presim simulate JOB --ranks-simulated all --chakra DIR`` as they are.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from presim.cli import main as presim
from presim.cli.script import sentences
from presim.errors import InputError
from presim.report.chakra import decode
from presim.system.files import check_writable, decode_foreign_json, read_bytes, write_file

_GPUS = 8
_LINK_GBps, _LINK_NS = 400.0, 936.25  # ASTRA-sim's HGX-H100-validated.yml
_LIMIT_S = 900
JOBS: Mapping[str, str] = {
    "FSDP2": "--seq 4096",
    "TP 4 with SP, DP 2": "--seq 4096 --tp 4 --sp",
    "PP 2, DP 4": "--seq 4096 --pp 2 --global-batch 32",
}
_NETWORK = f"topology: [ Switch ]\nnpus_count: [ {_GPUS} ]\nbandwidth: [ {_LINK_GBps} ]\nlatency: [ {_LINK_NS} ]\n"
_SYSTEM = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 2,
    "preferred-dataset-splits": 4,
    **{f"{kind}-implementation": ["ring"] for kind in ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")},
    "collective-optimization": "localBWAware",
    "local-mem-bw": 3350,
    "boost-mode": 0,
}
_HEAD = f"""# Jobs replayed by ASTRA-sim

`validation/astra_sim.py BINARY --out validation/results/astra-sim.md` wrote this page. Llama 3 8B on {_GPUS} H100, two
steps, composed and simulated rank by rank. ASTRA-sim (518bd51, congestion-unaware) reads the traces as they are and
times collectives by itself: rings over a switch with {_LINK_GBps:g} GB/s a GPU, its own description of an HGX H100. So
the compute is the same in both, and the time of communication is each one's own. The binary was built with Chakra's
feeder of branch `feederv3`, to which two names that ASTRA-sim uses were added.

| job | nodes in all files | ranks that finish | presim, two steps | ASTRA-sim | difference |
|---|---:|---:|---:|---:|---:|
"""


def replayed_s(binary: str, traces: Path, folder: Path) -> list[float]:
    """When each rank finishes, by ASTRA-sim, in seconds.

    Raises:
        InputError: it is no such program, or runs too long.
    """
    for name, text in (("network.yml", _NETWORK), ("system.json", json.dumps(_SYSTEM))):
        write_file(folder / name, text.encode())
    write_file(folder / "memory.json", b'{"memory-type": "NO_MEMORY_EXPANSION"}')
    files = {
        "workload": traces / "presim",
        "comm-group": traces / "presim.comm_groups.json",
        "system": folder / "system.json",
        "network": folder / "network.yml",
        "remote-memory": folder / "memory.json",
    }
    words = [binary, *(f"--{name}-configuration={path}" for name, path in files.items())]
    try:
        ended = subprocess.run(words, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InputError(f"{binary} does not run the traces: {error}; give ASTRA-sim's analytical binary") from error
    return [int(cycles) / 1e9 for cycles in re.findall(r"sys\[\d+\] finished, (\d+) cycles", ended.stdout)]


def row(name: str, plan: str, binary: str) -> str:
    """Compose, simulate, replay: a line of the table."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        job, traces, result = folder / "job", folder / "traces", folder / "result.json"
        compose = ["compose", "llama3-8b", "--gpu", "h100-sxm", "--world-size", str(_GPUS), *plan.split()]
        simulate = ["simulate", str(job), "--ranks-simulated", "all", "--chakra", str(traces), "--json", str(result)]
        for words in ([*compose, "--save", str(job)], simulate):
            with contextlib.redirect_stdout(io.StringIO()):
                if presim.run([*words, "-q"]) != 0:
                    raise InputError(f"presim {' '.join(words)} failed; run it by hand")
        steps = decode_foreign_json(read_bytes(result, "run again"))["steps"]["times_s"]
        count = sum(len(decode(path.read_bytes())[1]) for path in traces.glob("*.et"))
        ends_s = replayed_s(binary, traces, folder)
    own_s, replayed = sum(steps), max(ends_s, default=float("nan"))
    change = f"{replayed / own_s - 1:+.1%}"
    return f"| {name} | {count:,} | {len(ends_s)} of {_GPUS} | {own_s:.4f} s | {replayed:.4f} s | {change} |\n"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", help="ASTRA-sim's congestion-unaware analytical front end")
    parser.add_argument("--out", type=Path, help="the page; default: standard output")
    args = parser.parse_args()
    if args.out:
        check_writable(args.out)
    page = _HEAD + "".join(row(name, plan, args.binary) for name, plan in JOBS.items())
    if args.out:
        write_file(args.out, page.encode())
    else:
        print(page)


if __name__ == "__main__":
    with sentences():
        main()
