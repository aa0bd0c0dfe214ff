"""The answer of `presim network`: the shape of a network, a collective on it, and its busiest links."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import msgspec
import numpy as np

from presim.hardware.network.exchange import ExchangeOutcome, seconds_of_flows
from presim.hardware.network.topology import Topology
from presim.units import seconds

_SHOWN = 8  # links in the table
_FULL = 0.999  # of the highest utilisation: links that limit


class BusyLink(msgspec.Struct, frozen=True):
    """A link and what a collective does on it."""

    link: str
    GBps: float
    utilisation: float
    flows: int
    groups: int


class Relief(msgspec.Struct, frozen=True):
    """What twice the bandwidth of the links that limit a collective would give."""

    links: str  # their ends without numbers, e.g. leaf -> spine
    count: int
    seconds: float


class NetworkAnswer(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The shape of a network; with a collective also its time, and links where they are shared."""

    gpus: int
    vertices: int
    links: int  # one way each
    collective: str = ""
    groups: int = 0
    ranks: int = 0  # of each group
    seconds: float | None = None
    flows: int = 0
    classes: int | None = None  # of equal flows
    events: int | None = None
    busiest_links: list[BusyLink] | None = None
    relief: Relief | None = None
    note: str = ""  # what of the file has no effect
    schema: str

    def __repr__(self) -> str:
        shape = f"{self.gpus:,} GPUs, {self.vertices:,} vertices, {self.links:,} links"
        took = "" if self.seconds is None else f": {self.collective} of {self.ranks:,} ranks in {seconds(self.seconds)}"
        return f"<NetworkAnswer of {shape}{took}>"


def shape(topology: Topology) -> NetworkAnswer:
    """The numbers of GPUs, vertices and links."""
    return NetworkAnswer(
        gpus=topology.gpus, vertices=len(topology.names), links=topology.links, schema="presim-network/1"
    )


def answer(topology: Topology, outcome: ExchangeOutcome, groups: list[tuple[int, ...]], kind: str) -> NetworkAnswer:
    """The time of a collective of ``groups``, and its busiest links where links are shared."""
    timed = msgspec.structs.replace(
        shape(topology),
        collective=kind,
        groups=len(groups),
        ranks=len(groups[0]),
        seconds=max(outcome.seconds),
        flows=len(outcome.flows.bytes),
    )
    if outcome.shared is None:
        return timed
    used = outcome.shared.utilisation(topology)
    worst = np.argsort(-used, kind="stable")[:_SHOWN]
    return msgspec.structs.replace(
        timed,
        classes=outcome.shared.classes,
        events=outcome.shared.events,
        busiest_links=[
            _busy_link(topology, outcome, link, float(used[link])) for link in worst.tolist() if used[link] > 0
        ],
    )


def _busy_link(topology: Topology, outcome: ExchangeOutcome, link: int, utilisation: float) -> BusyLink:
    crossing = (outcome.flows.paths == link).any(axis=1)
    return BusyLink(
        topology.link_name(link),
        float(topology.bandwidth_Bps[link] / 1e9),
        utilisation,
        int(crossing.sum()),
        len(np.unique(outcome.flows.owner[crossing])),
    )


def with_relief(content: NetworkAnswer, topology: Topology, outcome: ExchangeOutcome) -> NetworkAnswer:
    """The answer with what would help: the full links have twice their bandwidth, and those of the same kind.

    Flows keep their paths, which do not depend on bandwidth.
    """
    if outcome.shared is None:
        return content
    utilisation = outcome.shared.utilisation(topology)
    full = np.flatnonzero(utilisation >= _FULL * utilisation.max(initial=0.0))
    if not len(full):
        return content
    kinds = np.array([_kind_of_link(topology, link) for link in range(topology.links)])
    is_wider = np.isin(kinds, kinds[full])
    wider_Bps = np.where(is_wider, 2 * topology.bandwidth_Bps, topology.bandwidth_Bps)
    wider_s = seconds_of_flows(dataclasses.replace(topology, bandwidth_Bps=wider_Bps), outcome.flows)
    names = ", ".join(sorted(set(kinds[full].tolist())))
    return msgspec.structs.replace(content, relief=Relief(names, int(is_wider.sum()), wider_s))


def _kind_of_link(topology: Topology, link: int) -> str:
    """The ends of a link without numbers; links in both directions are one kind."""
    end_names = (topology.names[int(vertices[link])] for vertices in (topology.source, topology.target))
    return " - ".join(sorted(re.sub(r"\d+", "", end).replace("node.", "") for end in end_names))


def upgrade_0(content: dict[str, Any]) -> dict[str, Any]:
    """The JSON of the last version, which named no schema."""
    return {**content, "schema": "presim-network/1"}


def encode(content: NetworkAnswer) -> str:
    """The answer as JSON with sorted keys."""
    return msgspec.json.format(msgspec.json.encode(content, order="sorted"), indent=2).decode()


def text(content: NetworkAnswer) -> str:
    """The answer in lines."""
    lines = [f"{content.gpus} GPUs, {content.vertices} vertices, {content.links} links, one way each"]
    if content.note:
        lines.append(content.note)
    if content.seconds is None:
        return "\n".join(lines)
    groups = (
        f"{content.groups} groups of {content.ranks} ranks at once" if content.groups > 1 else f"{content.ranks} ranks"
    )
    classes = f" in {content.classes} classes" if content.classes is not None else ""
    milliseconds = f"{content.seconds * 1e3:.3f} ms"
    lines.append(f"{content.collective} of {groups}: {milliseconds}, {content.flows:,} flows{classes}")
    lines += [
        f"  {link.utilisation:6.1%} of {link.GBps:7.1f} GB/s  {link.link}  "
        f"({link.flows:,} flows of {link.groups} group{'s' if link.groups > 1 else ''})"
        for link in content.busiest_links or ()
    ]
    if (relief := content.relief) is not None:
        lines.append(
            f"With twice the bandwidth of the {relief.count:,} links {relief.links}: {relief.seconds * 1e3:.3f} ms"
        )
    return "\n".join(lines)
