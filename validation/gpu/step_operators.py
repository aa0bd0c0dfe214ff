"""Hold the device time of operators in measured steps against prices of two kinds: products and element-wise kernels.

    python validation/gpu/step_operators.py CAPTURES --out validation/results/step-operators.md

CAPTURES is a folder in which each script is captured once, which takes half a minute; later calls read it. The measured
steps are those of `results/h100` and `results/h200`. Products are priced at the clocks of a busy GPU and at those of
tables; element-wise operators by their bytes, and by instructions where kernels access operands element by element
(`presim.cost.analytic.element_access`). Only operators all of whose kernels are element-wise count.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import math
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from campaign import RECIPE, lines_of

from presim.cli.script import sentences
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.analytic.element_access import instructions_ns
from presim.cost.analytic.gpu_figures import device_of
from presim.cost.learned.learned_estimator import LearnedEstimator
from presim.cost.measured import table
from presim.cost.profile.run_profile import gpu_named
from presim.errors import InputError
from presim.hardware import Gpu, catalogue
from presim.system.files import check_writable, write_file
from presim.trace import job_store
from presim.trace.signatures import Elementwise, Gemm, Signature

RESULTS = Path(__file__).parents[1] / "results"
FOLDERS = ("h100", "h200")
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
ARITHMETIC = (*PRODUCTS, "attention", "convolution")  # parts of names
SAME_LAUNCHES, LEAST_MS = 0.15, 0.3  # an operator counts if as many kernels were measured, and for so long
ABOUT = """# Device time of operators in measured steps

Written by `validation/gpu/step_operators.py` from the steps in `h100/` and `h200/` (PyTorch 2.11). A column of products
at the clocks of tables shows what a resting GPU would take ([why](../../docs/decisions/sustained-clocks.md)).
"""


@dataclasses.dataclass(frozen=True)
class StepWork:
    """The signatures of a captured step, each with its number of launches and its duration in ms."""

    signatures: Sequence[Signature]
    launches: Sequence[int]
    busy_ms: Sequence[float]
    table_ms: Sequence[float]

    def sums(self, kind: type, durations_ms: Sequence[float]) -> float:
        """Device time of all work of a kind."""
        works = zip(self.signatures, self.launches, durations_ms)
        return sum(count * ms for signature, count, ms in works if isinstance(signature, kind))


@dataclasses.dataclass(frozen=True)
class OperatorTimes:
    """Device time of one element-wise operator in a step, in ms."""

    name: str
    measured: float
    by_bytes: float
    by_instructions: float


def captured_step(arguments: str, folder: Path) -> tuple[Sequence[Signature], Sequence[int]]:
    """The signatures of the last step of a script, and how often each is launched.

    Raises:
        InputError: the script cannot be captured.
    """
    job = folder / re.sub(r"\W+", "-", arguments).strip("-")
    if not (job / job_store.JOB_FILE).exists():
        command = [sys.executable, "-m", "presim", "run", "--quiet", "--gpu", "h200", "--save", str(job), str(RECIPE)]
        if subprocess.run([*command, *arguments.split()], stdout=subprocess.DEVNULL, check=False).returncode:
            raise InputError(f"{RECIPE.name} {arguments} could not be captured; the lines above say why")
    (trace,) = job_store.load(job).traces.values()
    numbers = trace.columns["signature"][trace.steps()[-1]].astype(np.int64)
    counts = collections.Counter(numbers[numbers >= 0].tolist())
    return [trace.signatures[number] for number in counts], list(counts.values())


def priced_step(signatures: Sequence[Signature], launches: Sequence[int], gpu: Gpu) -> StepWork:
    """A captured step with prices at the clocks of a busy GPU and of tables, both by bytes."""
    durations = []
    for burst in (False, True):
        estimators = (LearnedEstimator(gpu, burst=burst), AnalyticEstimator(gpu, burst=burst))
        learned, analytic = (estimator.price(list(signatures)) for estimator in estimators)
        prices = [first or second for first, second in zip(learned, analytic)]
        durations.append([price.duration_ns * 1e-6 if price else 0.0 for price in prices])
    return StepWork(signatures, launches, *durations)


def elementwise_times(work: StepWork, row: dict[str, object], gpu: Gpu) -> Iterator[OperatorTimes]:
    """Operators with kernels that access operands element by element, as measured and as priced."""
    measured, launched = row["seconds_by_operator"], row["by_operator"]
    assert isinstance(measured, dict)
    assert isinstance(launched, dict)
    device = device_of(gpu)
    members: dict[str, list[int]] = collections.defaultdict(list)
    for index, signature in enumerate(work.signatures):
        members[getattr(signature, "operator", "")].append(index)
    for name, indices in members.items():
        count = sum(work.launches[index] for index in indices)
        by_bytes, by_instructions = 0.0, 0.0
        for index in indices:
            signature = work.signatures[index]
            least_ms = instructions_ns(signature, device) * 1e-6 if isinstance(signature, Elementwise) else math.inf
            by_bytes += work.launches[index] * work.busy_ms[index]
            by_instructions += work.launches[index] * max(work.busy_ms[index], least_ms)
        measured_ms = measured.get(name, 0.0) * 1e3
        is_comparable = measured_ms >= LEAST_MS and abs(count / launched[name] - 1) <= SAME_LAUNCHES
        if is_comparable and by_bytes < by_instructions < math.inf:
            yield OperatorTimes(name, measured_ms, by_bytes, by_instructions)


def product_row(work: StepWork, row: dict[str, object], gpu: Gpu) -> str:
    """A line of the table of products."""
    seconds = row["seconds_by_operator"]
    assert isinstance(seconds, dict)
    kernels_ms = 1e3 * sum(value for name, value in seconds.items() if "::" in name)
    arithmetic_ms = 1e3 * sum(value for name, value in seconds.items() if any(part in name for part in ARITHMETIC))
    measured_ms = 1e3 * sum(seconds.get(name, 0.0) for name in PRODUCTS)
    busy_ms, table_ms = work.sums(Gemm, work.busy_ms), work.sums(Gemm, work.table_ms)
    return (
        f"| {row['arguments']} | {gpu.id} | {arithmetic_ms / kernels_ms:.0%} | {measured_ms:.1f} | {busy_ms:.1f} | "
        f"{busy_ms / measured_ms - 1:+.0%} | {table_ms:.1f} | {table_ms / measured_ms - 1:+.0%} |"
    )


def sweep_row(folder: str) -> str:
    """A line on the single products in 16 bits of a card's sweep, which were timed on a resting GPU."""
    rows = [
        row
        for row in table.read(table.find(RESULTS / folder)).rows
        if isinstance(row.signature, Gemm) and row.signature.dtype == "bfloat16"
    ]
    gpu = catalogue.gpu(rows[0].gpu)
    work = priced_step([row.signature for row in rows], [1] * len(rows), gpu)
    cells = []
    for durations_ms in (work.busy_ms, work.table_ms):
        errors = [ms * 1e6 / row.duration_ns - 1 for ms, row in zip(durations_ms, rows)]
        cells += [f"{statistics.fmean(map(abs, errors)):.1%}", f"{statistics.median(errors):+.1%}"]
    return f"| {gpu.id} | {len(rows)} | {' | '.join(cells)} |"


def page(captures: Path) -> str:
    """All tables."""
    products, elementwise, errors = [], [], collections.defaultdict[str, list[float]](list)
    for folder in FOLDERS:
        for row in lines_of(RESULTS / folder / "steps.jsonl", "arguments", "gpu", "seconds_by_operator", "by_operator"):
            if "error" in row or "--compile" in str(row["arguments"]):
                continue
            gpu = catalogue.gpu(gpu_named(str(row["gpu"])).id)
            work = priced_step(*captured_step(str(row["arguments"]), captures), gpu)
            if any(isinstance(signature, Gemm) and signature.dtype == "bfloat16" for signature in work.signatures):
                products.append(product_row(work, row, gpu))
            for times in elementwise_times(work, row, gpu):
                ratios = (times.by_bytes / times.measured - 1, times.by_instructions / times.measured - 1)
                for name, ratio in zip(("bytes", "instructions"), ratios):
                    errors[f"{gpu.id} {name}"].append(abs(ratio))
                elementwise.append(
                    f"| {row['arguments']} | {gpu.id} | {times.name} | {times.measured:.2f} | {times.by_bytes:.2f} | "
                    f"{ratios[0]:+.0%} | {times.by_instructions:.2f} | {ratios[1]:+.0%} |"
                )
    lines = [ABOUT, "## Products in 16 bits", ""]
    lines += ["| script | GPU | arithmetic | measured, ms | busy GPU, ms | | tables, ms | |", "|---|---|" + "---:|" * 6]
    lines += [*products, "", "## Single products in 16 bits", ""]
    lines += ["| GPU | products | busy GPU: mean error | median sign | tables: mean error | median sign |"]
    lines += ["|---|" + "---:|" * 5, *map(sweep_row, FOLDERS)]
    lines += ["", "## Element-wise operators with kernels that access operands one by one", ""]
    for name, values in sorted(errors.items()):
        lines.append(f"- {name}: mean error {statistics.fmean(values):.1%} of {len(values)} operators")
    lines += ["", "| script | GPU | operator | measured, ms | by bytes, ms | | by instructions, ms | |"]
    return "\n".join([*lines, "|---|---|---|" + "---:|" * 5, *elementwise, ""])


def main() -> None:
    """Capture what is missing, price, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "captures", metavar="CAPTURES", type=Path, help="folder of saved jobs, made where it is missing"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "step-operators.md")
    options = parser.parse_args()
    check_writable(options.out)
    if options.captures.is_file():
        raise InputError(f"{options.captures} is a file; name a folder of saved jobs, or a new one")
    options.captures.mkdir(parents=True, exist_ok=True)
    write_file(options.out, page(options.captures).encode())


if __name__ == "__main__":
    with sentences():
        main()
