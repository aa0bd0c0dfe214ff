"""Compares models of collectives with public logs and tables, per log.

    python validation/collectives.py --aiconfigurator DIR --vidur DIR --vtrain DIR --echo DIR --nccl-csv FILE \
        --out validation/results/collectives.md

All datasets are optional. DIR is a checkout of the dataset's repository. The statistical model is fitted to every
second size of the logs of one GPU. Both models are evaluated on the other sizes.
"""

from __future__ import annotations

import argparse
import collections
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

import operator_tables as tables
import public_datasets
from presim import hardware
from presim.cli.script import sentences
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.measurements import CollectiveMeasurement
from presim.cost.collectives.statistical import Statistical, fit_statistical
from presim.cost.price import Price
from presim.errors import InputError
from presim.system.files import check_writable, write_file
from presim.trace.schema import Group
from presim.trace.signatures import Collective

_PER_LOG = 60  # sizes, spread evenly
_HEAD = """# Collectives against public logs

This table compares two models with public logs: the white-box model (`Hierarchical`) and TorchSim's statistical model.
The statistical model was fitted to every second size of the same GPU's logs; both are evaluated on the other sizes. A
log is one collective on one number of GPUs in one dataset. Errors are relative. Bias is the signed median (positive:
too slow). "Within" is the share inside the white-box model's 80 % interval. Its constants were fitted to sizes of these
logs, except for send/receive and RoCE. Made by `validation/collectives.py`.

Of {logs} logs {good} are within a median error of 10 %. The others:

- Echo's A100 with 40 GB: its LL takes twice as long within a node as in three other datasets, so its logs within a node
  were left out of the fit; between nodes it reaches 125 GB/s where ports of 200 Gb/s usually give 160. A fit to its own
  logs (`presim fit --nccl-tests`) meets them. Its smaller sizes within a node are left out: one thread launches for all
  GPUs.
- vidur's sends between two A100 are a quarter faster than the model.
- All-to-alls between two B200 are a tenth slower than the model.

Datasets: {datasets}.

## By kind and number of nodes

All sizes of all logs. The first sizes of public logs are often several times slower than the next larger ones; they
count, too.

{summary}

## By log

"""
_GOOD = 0.1


def points_of(case: tables.Case) -> CollectiveMeasurement:
    """A case as a point of a fit, on a cluster of its GPU's default nodes."""
    (work,) = case.signatures
    assert isinstance(work, Collective)
    gpu = hardware.gpu(case.gpu)
    node = hardware.node(gpu.default_node)
    fabric = hardware.fabric(case.fabric or node.default_fabric)
    cluster = hardware.Cluster(gpu, node, fabric, -(-case.ranks // case.per_node), case.per_node)
    return CollectiveMeasurement(work, tuple(range(case.ranks)), cluster, case.seconds, f"{case.source}|{case.kind}")


def logs(cases: Sequence[tables.Case]) -> dict[tuple[str, str, str, int], list[CollectiveMeasurement]]:
    """Points by log (source, GPU, kind with place, ranks), ordered by size."""
    found: dict[tuple[str, str, str, int], list[CollectiveMeasurement]] = collections.defaultdict(list)
    for case in cases:
        if all(isinstance(signature, Collective) for signature in case.signatures):
            found[case.source, case.gpu, case.kind, case.ranks].append(points_of(case))
    for points in found.values():
        points.sort(key=lambda point: point.collective.bytes)
        points[:] = points[:: max(len(points) // _PER_LOG, 1)]
    return dict(sorted(found.items()))


def statistical(found: dict[tuple[str, str, str, int], list[CollectiveMeasurement]]) -> dict[str, Statistical]:
    """The statistical model by GPU, fitted to every second size."""
    by_gpu: dict[str, list[CollectiveMeasurement]] = collections.defaultdict(list)
    for (_, gpu, _, _), points in found.items():
        by_gpu[gpu].extend(points[::2])
    models = {}
    for gpu, points in by_gpu.items():
        try:
            models[gpu] = Statistical(fit_statistical(points))
        except InputError:
            continue
    return models


def good(found: dict[tuple[str, str, str, int], list[CollectiveMeasurement]]) -> int:
    """Number of logs with a median error of at most 10 %."""
    return sum(float(np.median(np.abs(_errors(_prices(held), held)))) <= _GOOD for held in map(_held, found.values()))


def lines(
    found: dict[tuple[str, str, str, int], list[CollectiveMeasurement]], models: dict[str, Statistical]
) -> Iterator[str]:
    """The lines of the table."""
    yield "| log | GPU | collective | GPUs | sizes | median | p90 | bias | within | statistical: median |"
    yield "|---|---|---|---:|---:|---:|---:|---:|---:|---:|"
    for (source, gpu, kind, ranks), points in found.items():
        held = _held(points)
        prices = _prices(held)
        errors, inside = _errors(prices, held), _inside(prices, held)
        other = models.get(gpu)
        answers = [other.alone(point.collective, _everyone(point), point.cluster) if other else None for point in held]
        known = [(price, point) for price, point in zip(answers, held, strict=True) if price is not None]
        second = f"{np.median(np.abs(_errors(*zip(*known)))):.1%}" if known else ""
        figures = f"{np.median(np.abs(errors)):.1%} | {np.quantile(np.abs(errors), 0.9):.1%} | {np.median(errors):+.1%}"
        yield f"| {source} | {gpu} | {kind} | {ranks} | {len(held)} | {figures} | {inside:.0%} | {second} |"


def summary(found: dict[tuple[str, str, str, int], list[CollectiveMeasurement]]) -> Iterator[str]:
    """Errors by kind of collective and number of nodes, over all sizes."""
    by_span: dict[tuple[int, str], list[CollectiveMeasurement]] = collections.defaultdict(list)
    for points in found.values():
        for point in points:
            by_span[point.cluster.nodes, point.collective.kind].append(point)
    yield "| nodes | collective | points | median | p90 | bias | within |"
    yield "|---:|---|---:|---:|---:|---:|---:|"
    for (nodes, kind), points in sorted(by_span.items()):
        prices = _prices(points)
        errors = _errors(prices, points)
        figures = f"{np.median(np.abs(errors)):.1%} | {np.quantile(np.abs(errors), 0.9):.1%} | {np.median(errors):+.1%}"
        yield f"| {nodes} | {kind} | {len(points)} | {figures} | {_inside(prices, points):.0%} |"


def _held(points: Sequence[CollectiveMeasurement]) -> Sequence[CollectiveMeasurement]:
    """The sizes that no fit here has used."""
    return points[1::2] or points


def _prices(points: Sequence[CollectiveMeasurement]) -> list[Price]:
    return [Hierarchical().alone(point.collective, _everyone(point), point.cluster) for point in points]


def _everyone(point: CollectiveMeasurement) -> Group:
    return Group("all", point.ranks, len(point.ranks))


def _errors(prices: Sequence[Price], points: Sequence[CollectiveMeasurement]) -> np.ndarray:
    return np.array([price.duration_ns * 1e-9 / point.seconds - 1 for price, point in zip(prices, points, strict=True)])


def _inside(prices: Sequence[Price], points: Sequence[CollectiveMeasurement]) -> float:
    errors, widths = _errors(prices, points), np.array([price.uncertainty for price in prices])
    return float(np.mean(np.abs(1 / (1 + errors) - 1) <= widths))


def main() -> None:
    """Read, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    public_datasets.options(parser, public_datasets.OF_COLLECTIVES)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.out:
        check_writable(options.out)
    given = public_datasets.given(options, public_datasets.OF_COLLECTIVES)
    found = logs(public_datasets.read(given, 600))
    text = (
        _HEAD.format(
            datasets=public_datasets.named(given), logs=len(found), good=good(found), summary="\n".join(summary(found))
        )
        + "\n".join(lines(found, statistical(found)))
        + "\n"
    )
    if options.out:
        write_file(options.out, text.encode())
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    with sentences():
        main()
