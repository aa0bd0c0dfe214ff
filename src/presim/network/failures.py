"""Failures of links, NICs and switches, full or partial, and the remaining network."""

from __future__ import annotations

import dataclasses
import re

from presim.errors import InputError
from presim.network.topology import Builder

_NIC = re.compile(r"(node\d+)\.nic(\d+)")


@dataclasses.dataclass(frozen=True)
class Failure:
    """A failed or degraded part of the network."""

    ends: tuple[str, ...]  # the two ends of a link; one name: all links of that switch or NIC
    share: float  # lost share of the bandwidth; 1: all of it

    @property
    def words(self) -> str:
        """Description of the failure."""
        what = f"the link {' - '.join(self.ends)}" if len(self.ends) > 1 else self.ends[0]
        return f"{what} fails" if self.share == 1 else f"{what} loses {self.share:.3g} of its bandwidth"


def failure_of(text: str) -> Failure:
    """Parse ``NAME`` or ``NAME-NAME``, with ``=SHARE`` if only a part of the bandwidth is lost.

    >>> failure_of("leaf0-spine0=0.125").words
    'the link leaf0 - spine0 loses 0.125 of its bandwidth'

    Raises:
        InputError: the text has another form.
    """
    names, _, number = text.partition("=")
    ends = tuple(name.strip() for name in names.split("-"))
    try:
        share = float(number) if number else 1.0
    except ValueError:
        share = 0.0
    if not 1 <= len(ends) <= 2 or not all(ends) or not 0 < share <= 1:
        raise InputError(
            "a failure is NAME or NAME-NAME, with =SHARE above 0 and up to 1 where only a part of the bandwidth is "
            f"lost, e.g. node3.nic0 or leaf0-spine0=0.125; got {text!r}"
        )
    return Failure(ends, share)


def fail(builder: Builder, failure: Failure) -> None:
    """Remove a failure's share of bandwidth from its links; GPUs without their NIC use the next one of their node.

    Raises:
        InputError: the network has no such vertex or link.
    """
    vertices = [builder.known(name) for name in failure.ends]
    hit = [link for link in builder.links if _is_hit(link, vertices)]
    if not hit:
        raise InputError(f"{' - '.join(failure.ends)} cannot fail: the network has no such link; give one that exists")
    kept = [link for link in builder.links if not _is_hit(link, vertices)]
    if failure.share < 1:
        kept += [(source, target, Bps * (1 - failure.share), ns) for source, target, Bps, ns in hit]
    builder.links = kept
    nic = _NIC.fullmatch(failure.ends[0])
    if failure.share == 1 and len(vertices) == 1 and nic is not None:
        _rehome(builder, vertices[0], nic[1], int(nic[2]), hit)


def _is_hit(link: tuple[int, int, float, float], vertices: list[int]) -> bool:
    source, target = link[:2]
    return {source, target} == set(vertices) if len(vertices) == 2 else vertices[0] in (source, target)


def _rehome(builder: Builder, gone: int, node: str, number: int, hit: list[tuple[int, int, float, float]]) -> None:
    """Connect the GPUs of a failed NIC to the next NIC over PCIe; NCCL, too, selects the nearest one."""
    numbers = sorted(
        int(match[2])
        for name in builder.names
        if (match := _NIC.fullmatch(name)) and match[1] == node and int(match[2]) != number
        if any(builder.known(name) in link[:2] for link in builder.links)
    )
    if not numbers:
        return
    following = min(numbers, key=lambda other: (other < number, other))
    nic = builder.known(f"{node}.nic{following}")
    for source, target, Bps, ns in hit:
        inside = builder.names[target].startswith(("gpu", f"{node}.pcie"))
        if source == gone and inside and not any({target, nic} == set(link[:2]) for link in builder.links):
            builder.both_ways(target, nic, Bps, ns)
