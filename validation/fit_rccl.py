"""Fits two constants of AMD's GPUs between nodes, and tests each with every measurement left out.

    python validation/fit_rccl.py [papers/rccl.csv]

The measurements name algorithm and protocol, so that the fit does not depend on RCCL's choice. The LL128 bandwidth of a
channel is fitted to the rows of LL128, with one and with two passes of a tree. The entry into a ring is fitted to the
rows of rings with Simple. The results are `channel_GBps` and `ring_entry_us` of `[link.cdna4]` in
`src/presim/hardware/constants/collectives.toml`. Takes two seconds.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from presim import hardware
from presim.cli.script import sentences
from presim.cost.collectives.algorithms import FORMULAS, CollectiveCall
from presim.cost.collectives.collective_constants import LinkConstants
from presim.cost.collectives.group_placement import layout_of, links_of
from presim.cost.collectives.hierarchical import call_of
from presim.cost.collectives.nccl_environment import Tuning
from presim.errors import InputError
from presim.studies.validation.case_tables import read_table
from presim.trace.collective import Collective
from presim.trace.schema import Group

_PROTOCOLS = ("LL", "LL128", "Simple")
_COLUMNS = ("gpu", "nodes", "collective", "algorithm", "protocol", "size_bytes", "bus_GBps")
_LL128 = 1
_CHANNEL_GBPS, _ENTRY_US = np.arange(4.0, 40.0, 0.05), np.arange(0.0, 400.0, 1.0)


@dataclasses.dataclass(frozen=True)
class Measurement:
    """A bus bandwidth of known algorithm and protocol."""

    algorithm: str
    protocol: int
    seconds: float
    call: CollectiveCall

    @property
    def name(self) -> str:
        """Algorithm, protocol and size."""
        return f"{self.algorithm} {_PROTOCOLS[self.protocol]} of {self.call.size / 2**20:g} MiB"

    def error(self, link: LinkConstants) -> float:
        """Relative error of the price with these constants."""
        run = FORMULAS[self.algorithm](dataclasses.replace(self.call, link=link), self.protocol)
        assert run is not None
        return run.seconds / self.seconds - 1


def measurement_of(row: dict[str, str]) -> Measurement:
    """A line of the table."""
    cluster = hardware.choose_cluster(gpu=row["gpu"], nodes=int(row["nodes"]))
    ranks, size = cluster.world_size, int(row["size_bytes"])
    collective = Collective(row["collective"], size, "float32", 0)
    layout = layout_of(collective, Group("all", tuple(range(ranks)), ranks), cluster)
    call = call_of(collective, layout, links_of(cluster, layout, Tuning()), Tuning(), cluster)
    seconds = 2 * (ranks - 1) / ranks * size / (float(row["bus_GBps"]) * 1e9)
    return Measurement(row["algorithm"], _PROTOCOLS.index(row["protocol"]), seconds, call)


def channel_links(measurements: Sequence[Measurement], tree_passes: float) -> list[LinkConstants]:
    """Constants with each candidate of the LL128 bandwidth of a channel."""
    constants = measurements[0].call.link
    low_GBps, _, full_GBps = constants.channel_GBps
    return [
        msgspec.structs.replace(constants, channel_GBps=(low_GBps, float(GBps), full_GBps), tree_passes=tree_passes)
        for GBps in _CHANNEL_GBPS
    ]


def entry_links(measurements: Sequence[Measurement]) -> list[LinkConstants]:
    """Constants with each candidate of the entry into a ring."""
    constants = measurements[0].call.link
    return [msgspec.structs.replace(constants, ring_entry_us=float(entry_us)) for entry_us in _ENTRY_US]


def fitted(measurements: Sequence[Measurement], links: Sequence[LinkConstants]) -> LinkConstants:
    """The constants with the least squares of logarithmic errors."""
    return min(links, key=lambda link: sum(np.log1p(row.error(link)) ** 2 for row in measurements))


def print_fit(name: str, measurements: Sequence[Measurement], links: Sequence[LinkConstants]) -> None:
    """Print fitted constants, and errors with each measurement in and out of the fit."""
    if len(measurements) < 2:
        raise InputError(f"{len(measurements)} rows for {name}; a fit with one left out needs two")
    link = fitted(measurements, links)
    print(f"{name}: LL128 {link.channel_GBps[_LL128]:.2f} GB/s a channel, ring entry {link.ring_entry_us:.0f} us")
    for row in measurements:
        rest = fitted([other for other in measurements if other is not row], links)
        print(f"  {row.name}: {100 * row.error(link):+.1f} %, left out {100 * row.error(rest):+.1f} %")


def main() -> None:
    """Print both fits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", type=Path, default=Path(__file__).parent / "papers" / "rccl.csv")
    rows = read_table(parser.parse_args().table, _COLUMNS, "a row has")
    measurements = [measurement_of(row) for row in rows]
    ll128 = [row for row in measurements if row.protocol == _LL128]
    rings = [row for row in measurements if row.algorithm == "ring" and row.protocol != _LL128]
    for tree_passes in (1.0, 2.0):
        print_fit(f"LL128, {tree_passes:g} passes of a tree", ll128, channel_links(ll128, tree_passes))
    print_fit("rings with Simple", rings, entry_links(rings))


if __name__ == "__main__":
    with sentences():
        main()
