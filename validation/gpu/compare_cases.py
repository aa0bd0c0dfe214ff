"""Hold what energy.py, latencies.py and quantised.py measured against what presim says, as Markdown.

    python validation/gpu/compare_cases.py DIR

Quantised work is timed again by the same script on the emulated GPU, whose clock is simulated. Latencies stand beside
presim's constants, power beside the shares of `presim/hardware/constants/power.toml`.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from campaign import HERE, SCRIPTS, lines_of

from presim.cli.script import sentences
from presim.cost.estimators import estimators
from presim.cost.profile.run_profile import gpu_named
from presim.errors import InputError
from presim.evaluation.options import RunOptions
from presim.hardware import choose_cluster
from presim.hardware.constants import value
from presim.hardware.power import shares
from presim.trace.schema import Kind
from presim.trace.signatures import Copy
from presim.verbs.run import run_and_evaluate

CAPTURE_S = 3600
PYTORCH_ONLY, MARK, MARK_STEP, BATCHES = "--pytorch-only", 8 << 20, 512, 15  # as latencies.py has them
# Classes of power.toml of each case of energy.py: shares of the time.
CLASSES = {
    "idle": {"idle": 1.0}, "norm": {"memory": 1.0}, "pointwise": {"memory": 1.0}, "softmax": {"memory": 1.0},
    "copy": {"memory": 1.0}, "host to device": {"communication": 1.0}, "device to host": {"communication": 1.0},
    "bf16 1x": {"memory": 1.0}, "bf16 16x": {"memory": 1.0}, "launch-bound": {"latency": 1.0},
    "half product": {"compute": 0.5, "memory": 0.5}, "gaps of 50 %": {"compute": 0.5, "idle": 0.5},
    "gaps of 10 %": {"compute": 0.9, "idle": 0.1},
}  # fmt: skip
# Constants of presim that a case of latencies.cu measures: of its ns, what else is taken off, and the constant.
CONSTANTS: tuple[tuple[str, str, str, float], ...] = (
    ("launch, one argument", "", "host.call.launch_ns", 1.0),
    ("h2d pinned of 4096 bytes: call", "", "host.call.transfer_ns", 1.0),
    ("event record, without timing", "", "host.call.event_ns", 1.0),
    ("stream waits for an event", "", "host.call.event_ns", 1.0),
    ("cudaMalloc of 2 MiB", "", "host.call.device_alloc_ns", 1.0),
    ("cudaMalloc of 1024 MiB", "cudaMalloc of 20 MiB", "host.call.device_alloc_MiB_ns", 1004.0),
    ("cudaFree of 2 MiB", "", "host.call.device_free_ns", 1.0),
    ("cudaFree of 1024 MiB", "cudaFree of 20 MiB", "host.call.device_free_MiB_ns", 1004.0),
    ("cudaHostAlloc of 1 MiB", "", "host.call.lock_ns", 1.0),
    ("cudaHostAlloc of 256 MiB", "", "host.call.lock_MiB_ns", 256.0),
    ("cudaFreeHost of 1 MiB", "", "host.call.unlock_ns", 1.0),
    ("cudaFreeHost of 256 MiB", "", "host.call.unlock_MiB_ns", 256.0),
    ("launch until a flag is seen", "launch, one argument", "device.launch_latency_ns", 1.0),
    ("launch and synchronise the stream", "launch until a flag is seen", "device.sync_latency_ns", 1.0),
    ("h2d pinned of 4 bytes: device", "", "copy.pcie_launch_us", 1e3),
    ("d2h pinned of 4 bytes: device", "", "copy.pcie_launch_us", 1e3),
)
QUEUE = "launches until the host waits"
COPY = re.compile(r"(h2d|d2h|d2d|memset)( pinned| pageable)? of (\d+) bytes: (device|call and synchronise)")


def power(folder: Path) -> Iterator[str]:
    """Power of each case beside the shares of its class, and the rate at which its work ran."""
    yield from ("## Power", "", "| case | W | of the limit | presim | range | SM MHz | °C | one run |")
    yield "|---|---:|---:|---:|---|---:|---:|---:|"
    for row in lines_of(folder / "energy.jsonl", "case", "watts", "limit_watts", "sm_MHz", "degrees", "run_s"):
        if "error" in row:
            yield f"| {row['case']} | {row['error']} | | | | | | |"
            continue
        limit = row["limit_watts"] or gpu_named(str(row["gpu"])).power_w
        parts = next((parts for name, parts in CLASSES.items() if row["case"].startswith(name)), {"compute": 1.0})
        low, middle, high = (
            sum(weight * getattr(shares()[name], end) for name, weight in parts.items())
            for end in ("low", "share", "high")
        )
        yield (
            f"| {row['case']} | {row['watts']:.0f} | {row['watts'] / limit:.3f} | {middle:.3f} | {low:.2f} to "
            f"{high:.2f} | {row['sm_MHz']:.0f} | {row['degrees']:.0f} | {row['run_s'] * 1e6:.1f} us |"
        )


def latencies(folder: Path) -> Iterator[str]:
    """Constants beside what was measured; copies beside their prices; then every case as it is."""
    rows = {str(row["case"]): row for row in lines_of(folder / "latencies.jsonl", "case")}
    yield from ("", "## Latencies", "", "| constant | presim | measured | by |", "|---|---:|---:|---|")
    for case, less, name, unit in CONSTANTS:
        if "ns" in rows.get(case, {}) and (not less or "ns" in rows.get(less, {})):
            found = (rows[case]["ns"] - (rows[less]["ns"] if less else 0)) / unit
            yield f"| {name} | {value(name):g} | {found:.2f} | {case}{f', less {less}' if less else ''} |"
    if "launches" in rows.get(QUEUE, {}):
        yield f"| device.queue_depth | {value('device.queue_depth'):g} | {rows[QUEUE]['launches']} | {QUEUE} |"
    if "context" in rows.get("memory", {}):
        gpu = gpu_named(str(rows["memory"]["gpu"]))
        for key in ("context", "with cuBLAS"):
            measured = rows["memory"][key] / (1 << 20)
            yield f"| context_MiB | {gpu.context_bytes / (1 << 20):.0f} | {measured:.0f} | {key} |"
    yield from copies(rows)
    yield from host_of_operators(rows)
    yield from ("", "| case | us | lowest tenth | CPU time |", "|---|---:|---:|---:|")
    for case, row in rows.items():
        if "ns" in row:
            used = f"{row['cpu_ns'] / 1e3:.2f}" if "cpu_ns" in row else ""
            yield f"| {case} | {row['ns'] / 1e3:.3f} | {row.get('low', row['ns']) / 1e3:.3f} | {used} |"
        else:
            yield f"| {case} | {row.get('error', '')} | | |"


def host_of_operators(rows: dict[str, dict[str, object]]) -> Iterator[str]:
    """CPU time of PyTorch's operators beside that of a capture: presim's own calls of the runtime, and the rest.

    The ratio is the host factor that the operator asks for: what was measured less the runtime's calls, over the
    capture's time of the reference host.
    """
    measured = {case: row for case, row in rows.items() if "calls" in row}
    if not measured:
        return
    yield from (
        "",
        "| operator | CPU time, us | presim | of it calls | capture | ratio |",
        "|---|---:|---:|---:|---:|---:|",
    )
    ratios = []
    for case, captured, calls, factor in captured_hosts(str(next(iter(measured.values()))["gpu"])):
        if case in measured:
            found = measured[case]["cpu_ns"] / 1e3
            ratios.append((found - calls) / max(captured, 1e-3))
            yield (
                f"| {case} | {found:.2f} | {captured * factor + calls:.2f} | {calls:.2f} | {captured:.2f} "
                f"| {ratios[-1]:.2f} |"
            )
    yield f"| median | | | | | {np.median(ratios):.2f} |"


def captured_hosts(gpu: str) -> Iterator[tuple[str, float, float, float]]:
    """By case, of one call: time of the reference host and calls of the runtime, in us; and the host factor."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "latencies.jsonl"
        command = [str(HERE / "latencies.py"), str(results), "1e9", PYTORCH_ONLY]
        made = run_and_evaluate(
            command, RunOptions(gpu=gpu_named(gpu).id, steps=0, limit=CAPTURE_S), stdout=subprocess.DEVNULL
        )
        rows = lines_of(results, "case")
    trace = made.priced.trace
    kind, value_of, host = (trace.columns[name].astype(np.int64) for name in ("kind", "value", "host_ns"))
    calls = made.device.calls.of(trace)
    syncs = np.flatnonzero(kind == Kind.DEVICE_SYNC)
    marks = [
        np.flatnonzero((kind == Kind.ALLOC) & (value_of == MARK + MARK_STEP * place)) for place in range(len(rows))
    ]
    for row, mark in zip(rows, marks):
        inside = syncs[syncs > mark[0]][: BATCHES + 1] if len(mark) and "calls" in row else syncs[:0]
        batches = [slice(first + 1, last + 1) for first, last in itertools.pairwise(inside)]
        if batches:
            each = [
                np.median([column[batch].sum() for batch in batches]) / row["calls"] / 1e3 for column in (host, calls)
            ]
            yield str(row["case"]), each[0], each[1], made.device.host_factor


def copies(rows: dict[str, dict[str, object]]) -> Iterator[str]:
    """Copies and memsets beside their prices."""
    gpu = next((gpu_named(str(row["gpu"])).id for row in rows.values() if "gpu" in row), "")
    if not gpu:
        return
    yield from ("", "| copy | us | presim | error | GB/s |", "|---|---:|---:|---:|---:|")
    asked = list(estimators(choose_cluster(gpu=gpu).gpu))
    for case, row in rows.items():
        if not (found := COPY.fullmatch(case)) or "ns" not in row:
            continue
        direction, memory, size = found[1], found[2] or "", int(found[3])
        signature = Copy(direction, size, pinned=memory == " pinned")  # type: ignore[arg-type]
        price = next(price for each in asked for price in each.price([signature]) if price)
        error = 100 * (price.duration_ns / row["ns"] - 1)
        yield (
            f"| {case} | {row['ns'] / 1e3:.2f} | {price.duration_ns / 1e3:.2f} | {error:+.0f} % "
            f"| {size / row['ns']:.1f} |"
        )


def quantised(folder: Path) -> Iterator[str]:
    """Every case beside the same on the emulated GPU, and the errors by kind of work."""
    rows = lines_of(folder / "quantised.jsonl", "case", "ns", "gpu")
    said = {str(row["case"]): row for row in emulated("quantised", str(rows[0]["gpu"]))} if rows else {}
    yield from ("", "## Quantised and other work", "", "| case | us | presim | error |", "|---|---:|---:|---:|")
    errors: dict[str, list[float]] = {}
    for row in rows:
        case, other = str(row["case"]), said.get(str(row["case"]), {})
        if "error" in row or "ns" not in other:
            measured = str(row["error"]) if "error" in row else f"{row['ns'] / 1e3:.1f}"
            yield f"| {case} | {measured} | {other.get('error', '')} | |"
            continue
        error = 100 * (other["ns"] / row["ns"] - 1)
        errors.setdefault(kind(case), []).append(error)
        yield f"| {case} | {row['ns'] / 1e3:.1f} | {other['ns'] / 1e3:.1f} | {error:+.1f} % |"
    yield from ("", "| kind | cases | mean error | bias (median) |", "|---|---:|---:|---:|")
    for name, each in sorted(errors.items()):
        yield f"| {name} | {len(each)} | {np.abs(each).mean():.1f} % | {np.median(each):+.1f} % |"


def kind(case: str) -> str:
    """A case's name without its sizes."""
    return re.sub(r"( of)? \d+(x\d+)*.*", "", case)


def emulated(name: str, gpu: str) -> Sequence[dict[str, object]]:
    """The rows of a script on the emulated GPU of presim.

    Raises:
        InputError: the script did not end, or wrote nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / f"{name}.jsonl"
        command = [sys.executable, "-m", "presim", "run", "--live", "--steps", "0", "--limit", str(CAPTURE_S), "-q",
                   "--gpu", gpu_named(gpu).id, str(HERE / f"{name}.py"), str(results), "1e9"]  # fmt: skip
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if not results.exists():
            raise InputError(f"{name}.py wrote nothing on the emulated GPU: {ended.stderr.strip()[-200:]}")
        return lines_of(results, "case", "ns")


def main() -> None:
    """Print the tables of the scripts whose results are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR", type=Path)
    folder: Path = parser.parse_args().folder
    found = {name: part for name, part in PARTS.items() if (folder / f"{name}.jsonl").is_file()}
    if not found:
        names = ", ".join(f"{name}.jsonl" for name in SCRIPTS)
        raise InputError(f"{folder} has none of {names}; name the folder that campaign.py --out filled")
    for part in found.values():
        print("\n".join(part(folder)))


PARTS = {"energy": power, "latencies": latencies, "quantised": quantised}

if __name__ == "__main__":
    with sentences():
        main()
