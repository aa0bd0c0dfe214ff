"""Errors of published steps with products priced by their share of the step, and element-wise kernels by instructions.

    python validation/product_share.py CASES.csv... --captures DIR... [--most N] [--gpu ID]... [--out FILE]

Runs are priced and simulated like ``presim validate`` does; nothing is captured. presim prices products at the clocks
of a GPU that does nothing else. Here their speed lies between that (all of the device time is arithmetic) and the speed
in tables (none of it is), by the share of arithmetic (docs/decisions/sustained-clocks.md). Only GPUs of 700 W change,
or those that ``--gpu`` names.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from kept_runs import KeptRun, kept_runs, options
from presim.cli.script import sentences
from presim.cost.analytic.analytic_estimator import AnalyticEstimator, slowdown_at_work
from presim.cost.analytic.element_access import instructions_ns
from presim.cost.analytic.gpu_figures import device_of
from presim.cost.chain import demands_of, price_trace
from presim.cost.price import Price, PricedTrace
from presim.errors import InputError, PresimError
from presim.hardware import Cluster, Gpu, catalogue
from presim.system.files import check_writable, write_file
from presim.trace.schema import Trace
from presim.trace.signatures import Attention, Collective, Convolution, Copy, Elementwise, Gemm, GroupedGemm
from presim_study.runs import simulate, step_s

ARITHMETIC = (Gemm, GroupedGemm, Attention, Convolution)
RESTING_GPUS = ("h100-sxm", "h200")
ROUNDS = 20  # the share depends on the prices that depend on it
VARIANTS = (
    "element-wise kernels by bytes",
    "as priced",
    "element-wise kernels by instructions",
    "and products by their share",
)
OUT = Path(__file__).parent / "results" / "product-share.md"
ABOUT = """# Products by their share of the step

Written by `validation/product_share.py` from kept captures: errors of published step times, with all element-wise
kernels by their bytes; as presim prices them; with element-wise kernels by their instructions on
{} too; and with products between the speed of a busy GPU and that of tables, by the share of
arithmetic in the device's time (last column, median). Nothing here is fitted to these runs.

| source | GPU | runs | prices | median error | mean | median sign | in the interval | arithmetic |
|---|---|---:|---|---:|---:|---:|---:|---:|
"""


def by_instructions(trace: Trace, prices: Sequence[Price], cluster: Cluster) -> list[Price]:
    """Prices in which kernels that access operands one by one take at least the time of their instructions."""
    device = device_of(cluster.gpu)
    least_ns = [
        instructions_ns(signature, device) if isinstance(signature, Elementwise) else 0.0
        for signature in trace.signatures
    ]
    return [
        msgspec.structs.replace(price, duration_ns=max(price.duration_ns, round(least)))
        for price, least in zip(prices, least_ns)
    ]


@dataclasses.dataclass(frozen=True)
class DeviceTimes:
    """Device time of a trace: of each product, by its signature's index, and of all other work."""

    product_ns: dict[int, float]
    rest_ns: float

    @property
    def share(self) -> float:
        """Share of the products."""
        total_ns = sum(self.product_ns.values())
        return total_ns / max(total_ns + self.rest_ns, 1.0)


def device_times(trace: Trace, prices: Sequence[Price]) -> DeviceTimes:
    """The device time of a trace by these prices, without collectives and copies."""
    numbers = trace.columns["signature"].astype(np.int64)
    launches = np.bincount(numbers[numbers >= 0], minlength=len(trace.signatures)).tolist()
    product_ns, rest_ns = {}, 0.0
    for index, (signature, price, count) in enumerate(zip(trace.signatures, prices, launches)):
        if isinstance(signature, ARITHMETIC) and price.bound == "compute":
            product_ns[index] = float(price.duration_ns * count)
        elif not isinstance(signature, Collective | Copy):
            rest_ns += price.duration_ns * count
    return DeviceTimes(product_ns, rest_ns)


def by_share(trace: Trace, prices: Sequence[Price], cluster: Cluster) -> list[Price]:
    """Prices in which arithmetic is as much faster than on a busy GPU as the rest of the device's time allows."""
    times = device_times(trace, prices)
    indices = list(times.product_ns)
    signatures = [trace.signatures[index] for index in indices]
    busy_prices = AnalyticEstimator(cluster.gpu).price(signatures)
    slower = dict(zip(indices, slowdown_at_work(cluster.gpu, signatures, busy_prices)))
    share = 1.0
    for _ in range(ROUNDS):
        product_ns = {index: ns * slower[index] ** (share - 1) for index, ns in times.product_ns.items()}
        share = DeviceTimes(product_ns, times.rest_ns).share
    changed = list(prices)
    for index in indices:
        duration_ns = max(1, round(changed[index].duration_ns * slower[index] ** (share - 1)))
        changed[index] = msgspec.structs.replace(changed[index], duration_ns=duration_ns)
    return changed


def vectorised(trace: Trace) -> Trace:
    """The trace as if all element-wise kernels loaded several elements at once."""
    signatures = [
        msgspec.structs.replace(signature, strided_operands=0, cast_operands=0)
        if isinstance(signature, Elementwise)
        else signature
        for signature in trace.signatures
    ]
    return dataclasses.replace(trace, signatures=tuple(signatures))


def priced_variant(variant: str, trace: Trace, cluster: Cluster, gpus: Sequence[str]) -> PricedTrace:
    """A trace with the prices of a variant, which changes these GPUs."""
    priced = price_trace(vectorised(trace) if variant == VARIANTS[0] else trace, cluster)
    if variant in VARIANTS[:2] or cluster.gpu.id not in gpus:
        return priced
    prices = by_instructions(trace, priced.prices, cluster)
    if variant == VARIANTS[3]:
        prices = by_share(trace, prices, cluster)
    demands = demands_of(trace.signatures, prices, trace.manifest.groups, cluster, trace.manifest.nccl)
    return dataclasses.replace(priced, prices=tuple(prices), demands=demands)


@dataclasses.dataclass(frozen=True)
class StepError:
    """A predicted step beside the published one."""

    error: float  # relative
    is_inside: bool  # the published time lies in the predicted interval
    share: float  # of arithmetic in the first captured rank's device time


def step_error(run: KeptRun, variant: str, gpus: Sequence[str]) -> StepError:
    """The step with the prices of a variant."""
    pricer = functools.partial(priced_variant, variant, gpus=gpus)
    evaluation = simulate(run.plan, run.traces, pricer=pricer)
    result, predicted_s = evaluation.result, step_s(run.plan, run.traces, evaluation) or 0.0
    measured_s = run.measured_s * (result.step_time_s or 0.0) / (predicted_s or 1.0)  # of as long a step as captured
    is_inside = (result.step_time_low_s or 0.0) <= measured_s <= (result.step_time_high_s or 0.0)
    trace = run.traces[0]
    share = device_times(trace, pricer(trace, run.plan.cluster).prices).share
    return StepError(predicted_s / run.measured_s - 1, is_inside, share)


def rows(errors: dict[tuple[str, str], list[list[StepError]]]) -> Iterator[str]:
    """Lines by source and GPU, one for each variant."""
    for (source, gpu), runs in sorted(errors.items()):
        for variant, steps in zip(VARIANTS, zip(*runs)):
            values = [step.error for step in steps]
            sizes = [abs(value) for value in values]
            yield (
                f"| {source} | {gpu} | {len(values)} | {variant} | {statistics.median(sizes):.1%} | "
                f"{statistics.fmean(sizes):.1%} | {statistics.median(values):+.1%} | "
                f"{sum(step.is_inside for step in steps)} | {statistics.median(step.share for step in steps):.0%} |"
            )


def main() -> None:
    """Price all kept runs in each way and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options(parser)
    parser.add_argument("--gpu", action="append", choices=catalogue.ids(Gpu), metavar="ID", help="that changes")
    parser.add_argument("--out", type=Path, default=OUT)
    chosen = parser.parse_args()
    gpus = chosen.gpu or RESTING_GPUS
    check_writable(chosen.out)
    errors: dict[tuple[str, str], list[list[StepError]]] = {}
    for run in kept_runs(chosen):
        try:
            found = [step_error(run, variant, gpus) for variant in VARIANTS]
        except PresimError as error:
            print(error, file=sys.stderr)
            continue
        errors.setdefault((run.source, run.plan.cluster.gpu.id), []).append(found)
    if not errors:
        raise InputError("no run could be priced and simulated; the lines above say why")
    write_file(chosen.out, (ABOUT.format(" and ".join(gpus)) + "\n".join(rows(errors)) + "\n").encode())


if __name__ == "__main__":
    with sentences():
        main()
