"""Hold a campaign's measurements against what presim says, as Markdown on standard output.

    python validation/gpu/compare.py DIR

Operators are priced without the measured table; scripts are captured anew on the emulated GPU.
"""

from __future__ import annotations

import argparse
import collections
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from campaign import FAMILIES_RECIPE, RECIPE, ROLLOUT_RECIPE, lines_of

from presim.cli.script import sentences
from presim.cost.estimators import estimators
from presim.cost.measured import table
from presim.cost.overlap import Demand, added_time
from presim.cost.price import Origin, Price
from presim.cost.profile.run_profile import gpu_named
from presim.cost.resource_demand import MEMORY_REACHED, demand
from presim.errors import InputError
from presim.evaluation.evaluate_traces import Evaluation
from presim.evaluation.options import RunOptions
from presim.hardware import catalogue, choose_cluster
from presim.trace.signatures import Attention, Gemm, Normalization, Signature
from presim.verbs.run import run_and_evaluate

GIB = 1 << 30
STEPS = {"steps.jsonl": RECIPE, "families.jsonl": FAMILIES_RECIPE, "rollouts.jsonl": ROLLOUT_RECIPE}
OVERLAP = "overlap.jsonl"
MEASURED = ("step_s", "host_s", "peak_allocated", "peak_reserved", "kernels", "by_operator", "seconds_by_operator")
SHOWN_SHARE = 0.01  # of the step: smaller differences in an operator's device time are not listed
PAIR = ("gpu", "work", "beside", "alone_s", "beside_s", "neighbour_sms", "neighbour_GBps")
ROWS_BYTES = 2 * 65536 * 4096
WORKS: dict[str, Signature] = {  # as overlap.py makes them
    "gemm 8192^3": Gemm(8192, 8192, 8192, 1, "bfloat16"),
    "attention 2x32x4096x128": Attention("forward", 2, 32, 32, 4096, 4096, 128, 128, True, "bfloat16", "flash"),
    "layer norm 65536x4096": Normalization(ROWS_BYTES, ROWS_BYTES, ROWS_BYTES // 2, "bfloat16", row=4096),
}


def operators(folder: Path) -> Iterator[str]:
    """The error of learned and analytic prices by family."""
    yield from ("## Operators", "", "| GPU | family | by | points | mean error | median | bias | within stated |")
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    found: dict[tuple[str, str, str], list[tuple[float, bool]]] = collections.defaultdict(list)
    rows = table.read(table.find(folder)).rows
    for gpu in sorted({row.gpu for row in rows}):
        mine = [row for row in rows if row.gpu == gpu]
        asked = estimators(catalogue.gpu(gpu))
        answers = [each.price([row.signature for row in mine]) for each in asked]
        for row, *prices in zip(mine, *answers):
            price = next((price for price in prices if price), None)
            if price:
                ratio = price.duration_ns / row.duration_ns
                key = gpu, str(row.signature.__struct_config__.tag), price.estimator
                found[key].append((ratio - 1, abs(1 / ratio - 1) <= price.uncertainty))
    for (gpu, family, by), pairs in sorted(found.items()):
        errors = np.array([error for error, _ in pairs])
        figures = (
            np.abs(errors).mean(),
            np.median(np.abs(errors)),
            np.median(errors),
            np.mean([held for _, held in pairs]),
        )
        yield (
            f"| {gpu} | {family} | {by} | {len(pairs)} | "
            + " | ".join(f"{100 * figure:.1f} %" for figure in figures)
            + " |"
        )


def steps(folder: Path) -> Iterator[str]:
    """Time, host time, peaks and number of kernels of each script; then which operators launched more or fewer."""
    yield from ("", "## Steps", "", "| script | | measured | presim | error |", "|---|---|---:|---:|---:|")
    differ, slower, gpu = [], [], "h100-sxm"
    rows = [
        (recipe, row)
        for name, recipe in STEPS.items()
        for row in lines_of(folder / name, "arguments", "gpu", *MEASURED)
    ]
    for recipe, row in rows:
        gpu = gpu_named(str(row["gpu"])).id if "gpu" in row else gpu
        made = run_and_evaluate(
            [str(recipe), *str(row["arguments"]).split()], RunOptions(gpu=gpu), stdout=subprocess.DEVNULL
        )
        said = made.result
        if "error" in row:
            yield f"| {row['arguments']} | end | {str(row['error'])[:60]} | {said.exit} | |"
            continue
        for name, measured, predicted in (
            ("step, ms", row["step_s"] * 1e3, (said.step_time_s or 0.0) * 1e3),
            ("host, ms of CPU time", row["host_s"] * 1e3, host_s(made) * 1e3),
            ("peak allocated, GiB", row["peak_allocated"] / GIB, said.memory.peak_allocated_bytes / GIB),
            ("peak reserved, GiB", row["peak_reserved"] / GIB, said.memory.peak_reserved_bytes / GIB),
            ("kernels", row["kernels"], sum(family.count for family in said.families)),
            ("energy, J", row.get("joules") or 0.0, said.energy.joules if said.energy else 0.0),
        ):
            error = f"{100 * (predicted / measured - 1):+.1f} %" if measured else "not measured"
            yield f"| {row['arguments']} | {name} | {measured:.2f} | {predicted:.2f} | {error} |"
        differ += launches(
            str(row["arguments"]), row["by_operator"], {each.name: each.count for each in said.operators}
        )
        slower += device_times(row, {each.name: each.seconds for each in said.operators})
    yield from (
        "",
        "## Device time of operators",
        "",
        "| script | operator | measured, ms | presim, ms | of the step |",
    )
    yield "|---|---|---:|---:|---:|"
    yield from slower
    yield from ("", "## Launches that differ", "", "| script | operator | measured | presim |", "|---|---|---:|---:|")
    yield from differ


def device_times(row: dict[str, Any], predicted: dict[str, float]) -> list[str]:
    """The operators whose device time differs by so much of the measured step, largest difference first."""
    measured, step = row["seconds_by_operator"], row["step_s"]
    gaps = {name: predicted.get(name, 0.0) - measured.get(name, 0.0) for name in {*measured, *predicted}}
    return [
        f"| {row['arguments']} | {name} | {measured.get(name, 0.0) * 1e3:.2f} | {predicted.get(name, 0.0) * 1e3:.2f} "
        f"| {100 * gap / step:+.1f} % |"
        for name, gap in sorted(gaps.items(), key=lambda item: (-abs(item[1]), item[0]))
        if abs(gap) > SHOWN_SHARE * step
    ]


def host_s(made: Evaluation) -> float:
    """CPU time of the target's host in the last step: what was captured, and the calls that the emulation skips."""
    trace = made.priced.trace
    if not trace.steps():
        raise InputError(
            f"a script ran no step on the emulated GPU ({trace.manifest.error or 'it ended early'}); run it with "
            "`presim run`"
        )
    last = trace.steps()[-1]
    captured = trace.columns["host_ns"][last].astype(np.int64) * made.device.host_factor
    return float(captured.sum() + made.device.calls.of(trace)[last].sum()) / 1e9


def launches(script: str, measured: dict[str, int], captured: dict[str, int]) -> list[str]:
    """The operators that launched another number of kernels, largest difference first."""
    names = sorted({*measured, *captured}, key=lambda name: -abs(measured.get(name, 0) - captured.get(name, 0)))
    return [
        f"| {script} | {name} | {measured.get(name, 0)} | {captured.get(name, 0)} |"
        for name in names
        if measured.get(name, 0) != captured.get(name, 0)
    ]


def overlaps(folder: Path) -> Iterator[str]:
    """How much slower work was beside its neighbour, and would be by presim's figures of both."""
    yield from (
        "",
        "## Overlap",
        "",
        "| GPU | work | beside | its GB/s | slower by | presim |",
        "|---|---|---|---:|---:|---:|",
    )
    for row in lines_of(folder / OVERLAP, *PAIR):
        if "error" in row:
            yield f"| {row['gpu']} | {row['work']} | {row['beside']} | | {row['error']} | |"
            continue
        gpu = gpu_named(str(row["gpu"]))
        slower = 100 * (row["beside_s"] / row["alone_s"] - 1)
        bandwidth = gpu.memory_bytes_per_s * MEMORY_REACHED
        neighbour = Demand(
            channels=row["neighbour_sms"] / gpu.sm_count, memory=min(row["neighbour_GBps"] * 1e9 / bandwidth, 1.0)
        )
        predicted = 100 * added_time(asked(WORKS[row["work"]], row["alone_s"], gpu.id), neighbour)
        yield (
            f"| {gpu.id} | {row['work']} | {row['beside']} | {row['neighbour_GBps']:.0f} | {slower:.1f} % "
            f"| {predicted:.1f} % |"
        )


def asked(work: Signature, seconds: float, gpu: str) -> Demand:
    """What the work takes of its GPU, by the time that it took alone."""
    cluster = choose_cluster(gpu=gpu)
    bound = next(price.bound for each in estimators(cluster.gpu) for price in each.price([work]) if price)
    return demand(work, Price(round(seconds * 1e9), Origin.MEASURED, 0.0, "campaign", bound), (), cluster)


def main() -> None:
    """Print the three tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR", type=Path)
    folder = parser.parse_args().folder
    if not table.find(folder) and not any((folder / name).is_file() for name in (*STEPS, OVERLAP)):
        raise InputError(
            f"{folder} holds nothing that was measured (*{table.SUFFIX}, {', '.join(STEPS)}, {OVERLAP}); "
            "name the folder that campaign.py --out filled"
        )
    for part in (operators, steps, overlaps):
        print("\n".join(part(folder)))


if __name__ == "__main__":
    with sentences():
        main()
