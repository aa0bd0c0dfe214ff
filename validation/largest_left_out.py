"""Tests the model of collectives beyond the sizes it was fitted on, with the largest logs of each source held out.

    python validation/largest_left_out.py --aiconfigurator DIR --vidur DIR --vtrain DIR --echo DIR --nccl-csv FILE \
        --out validation/results/collectives-largest.md

For every source, GPU and place (within a node, between nodes) with logs of several numbers of GPUs: the constants are
fitted to the logs of up to half of the largest number, all kinds together, and tested on the largest.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

import public_datasets
from collectives import logs
from presim.cli.script import sentences
from presim.cost.collective_logs.fit_collectives import FABRIC, LINK, SWITCH, Fitted, fit
from presim.cost.collectives.hierarchical import Hierarchical
from presim.cost.collectives.measurements import FEWEST, CollectiveMeasurement
from presim.system.files import check_writable, write_file
from presim.trace.schema import Group

_SIZES = 14  # of each log, spread evenly: a fit tries every constant on every size
_HEAD = """# The largest collectives left out

Constants of the white-box model fitted to the logs of up to half of the most GPUs, held against those of the most.
"as shipped" is the model with the constants that presim has, which may have seen the log. Relative errors; bias is the
signed median (positive: too slow); "from 64 MB" is the bias of sizes from 64 MB on. Made by
`validation/largest_left_out.py` from {datasets}.

Of {count} logs {good} are within a median error of 10 %.

All logs of eight GPUs within a node are met from logs of two and four, and both logs of four nodes from those of two.
NCCL's own rules carry over what no smaller log shows: reduction in the switch begins at eight GPUs, and trees between
two nodes are a special case. What larger fabrics lose cannot be told from these logs: none has more than four nodes.

| source | GPU | collective | fitted to GPUs | held: GPUs | sizes | median | bias | from 64 MB | as shipped |
|---|---|---|---|---:|---:|---:|---:|---:|---:|
"""


@dataclasses.dataclass(frozen=True)
class Held:
    """One log that was not used in the fit."""

    source: str
    gpu: str
    kind: str
    fitted: tuple[int, ...]  # GPUs of the logs that it was fitted to
    gpus: int
    errors: tuple[float, ...]
    large: tuple[float, ...]  # of 64 MB and more
    shipped: float  # median error with the constants that presim has

    @property
    def median(self) -> float:
        """Median of the absolute errors."""
        return float(np.median(np.abs(self.errors)))

    def row(self) -> str:
        """A line of the table."""
        large = f"{np.median(self.large):+.1%}" if self.large else ""
        fitted = ", ".join(map(str, self.fitted))
        return (
            f"| {self.source} | {self.gpu} | {self.kind} | {fitted} | {self.gpus} | {len(self.errors)} | "
            f"{self.median:.1%} | {np.median(self.errors):+.1%} | {large} | {self.shipped:.1%} |"
        )


def held_out(found: dict[tuple[str, str, str, int], list[CollectiveMeasurement]]) -> Iterator[Held]:
    """The largest logs of every source, with predictions from a fit to the smaller ones."""
    parts: dict[tuple[str, str, bool], dict[tuple[str, int], list[CollectiveMeasurement]]] = collections.defaultdict(
        dict
    )
    for (source, gpu, kind, ranks), points in found.items():
        thinned = points[:: max(len(points) // _SIZES, 1)]
        parts[source, gpu, "between" in kind][kind, ranks] = thinned
    for (source, gpu, is_between), of_part in parts.items():
        most = max(ranks for _, ranks in of_part)
        small = {key: points for key, points in of_part.items() if key[1] <= most // 2}
        known = [point for points in small.values() for point in points]
        if len(known) < FEWEST:
            continue
        fitted = _fitted(known, is_between=is_between)
        for (kind, ranks), points in of_part.items():
            seen = tuple(sorted({other for name, other in small if name == kind}))
            if ranks < most or not seen:
                continue
            errors = _errors(points, fitted)
            large = [error for error, point in zip(errors, points, strict=True) if point.collective.bytes >= 64e6]
            shipped = float(np.median(np.abs(_errors(points, None))))
            yield Held(source, gpu, kind, seen, ranks, tuple(errors), tuple(large), shipped)


def _fitted(points: Sequence[CollectiveMeasurement], *, is_between: bool) -> Fitted:
    if is_between:
        return fit(points, fabric=FABRIC)
    return fit(points, link=(*LINK, *SWITCH) if points[0].cluster.node.reduces_in_network else LINK)


def _errors(points: Sequence[CollectiveMeasurement], fitted: Fitted | None) -> list[float]:
    errors = []
    for point in points:
        constants = (
            {"link": msgspec.to_builtins(fitted.link), "fabric": msgspec.to_builtins(fitted.fabric)} if fitted else {}
        )
        cluster = msgspec.structs.replace(point.cluster, collectives=constants)
        price = Hierarchical().alone(point.collective, Group("all", point.ranks, len(point.ranks)), cluster)
        errors.append(price.duration_ns * 1e-9 / point.seconds - 1)
    return errors


def main() -> None:
    """Read, fit, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    public_datasets.options(parser, public_datasets.OF_COLLECTIVES)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.out:
        check_writable(options.out)
    given = public_datasets.given(options, public_datasets.OF_COLLECTIVES)
    held = list(held_out(logs(public_datasets.read(given, 600))))
    good = sum(each.median <= 0.1 for each in held)
    head = _HEAD.format(datasets=public_datasets.named(given), count=len(held), good=good)
    text = head + "\n".join(each.row() for each in held) + "\n"
    if options.out:
        write_file(options.out, text.encode())
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    with sentences():
        main()
