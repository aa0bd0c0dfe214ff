"""Failures of links, NICs and switches, full or partial, and the remaining network."""

from __future__ import annotations

import dataclasses
import re

from presim.errors import InputError
from presim.hardware.network.topology import Builder

_NIC = re.compile(r"(node\d+)\.nic(\d+)")


@dataclasses.dataclass(frozen=True)
class Failure:
    """A failed or degraded part of the network."""

    vertex_names: tuple[str, ...]  # the two ends of a link; one name: all links of that switch or NIC
    share: float  # lost share of the bandwidth; 1: all of it

    @property
    def words(self) -> str:
        """Description of the failure."""
        failed_part = (
            f"the link {' - '.join(self.vertex_names)}" if len(self.vertex_names) > 1 else self.vertex_names[0]
        )
        return f"{failed_part} fails" if self.share == 1 else f"{failed_part} loses {self.share:.3g} of its bandwidth"


def failure_of(text: str) -> Failure:
    """Parse ``NAME`` or ``NAME-NAME``, with ``=SHARE`` if only a part of the bandwidth is lost.

    >>> failure_of("leaf0-spine0=0.125").words
    'the link leaf0 - spine0 loses 0.125 of its bandwidth'

    Raises:
        InputError: the text has another form.
    """
    names, _, number = text.partition("=")
    vertex_names = tuple(name.strip() for name in names.split("-"))
    try:
        share = float(number) if number else 1.0
    except ValueError:
        share = 0.0
    if not 1 <= len(vertex_names) <= 2 or not all(vertex_names) or not 0 < share <= 1:
        raise InputError(
            "a failure is NAME or NAME-NAME, with =SHARE above 0 and up to 1 where only a part of the bandwidth is "
            f"lost, e.g. node3.nic0 or leaf0-spine0=0.125; got {text!r}"
        )
    return Failure(vertex_names, share)


def fail(builder: Builder, failure: Failure) -> None:
    """Remove a failure's share of bandwidth from its links; GPUs without their NIC use the next one of their node.

    Raises:
        InputError: the network has no such vertex or link.
    """
    vertices = [builder.existing_vertex(name) for name in failure.vertex_names]
    failed_links = [link for link in builder.links if _is_hit(link, vertices)]
    if not failed_links:
        raise InputError(
            f"{' - '.join(failure.vertex_names)} cannot fail: the network has no such link; give one that exists"
        )
    remaining_links = [link for link in builder.links if not _is_hit(link, vertices)]
    if failure.share < 1:
        remaining_links += [(source, target, Bps * (1 - failure.share), ns) for source, target, Bps, ns in failed_links]
    builder.links = remaining_links
    nic = _NIC.fullmatch(failure.vertex_names[0])
    if failure.share == 1 and len(vertices) == 1 and nic is not None:
        _connect_to_next_nic(builder, vertices[0], nic[1], int(nic[2]), failed_links)


def _is_hit(link: tuple[int, int, float, float], vertices: list[int]) -> bool:
    source, target = link[:2]
    return {source, target} == set(vertices) if len(vertices) == 2 else vertices[0] in (source, target)


def _connect_to_next_nic(
    builder: Builder, failed_nic: int, node: str, nic_number: int, failed_links: list[tuple[int, int, float, float]]
) -> None:
    """Connect the GPUs of a failed NIC to the next NIC over PCIe; NCCL, too, selects the nearest one."""
    numbers = sorted(
        int(match[2])
        for name in builder.names
        if (match := _NIC.fullmatch(name)) and match[1] == node and int(match[2]) != nic_number
        if any(builder.existing_vertex(name) in link[:2] for link in builder.links)
    )
    if not numbers:
        return
    following = min(numbers, key=lambda other: (other < nic_number, other))
    nic = builder.existing_vertex(f"{node}.nic{following}")
    for source, target, Bps, ns in failed_links:
        inside = builder.names[target].startswith(("gpu", f"{node}.pcie"))
        if source == failed_nic and inside and not any({target, nic} == set(link[:2]) for link in builder.links):
            builder.both_ways(target, nic, Bps, ns)
