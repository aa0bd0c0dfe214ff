"""What NCCL chooses for a group by size, with presim's price: the table of `presim network explain`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from presim.cost.collectives.algorithms import CollectiveCall
from presim.cost.collectives.group_placement import layout_of, links_of
from presim.cost.collectives.hierarchical import Hierarchical, call_of, chosen_run, library_choice, question_of, run_of
from presim.cost.collectives.library_choice import estimates
from presim.cost.collectives.nccl_environment import PROTOCOLS, Tuning, tuning_of
from presim.cost.collectives.nccl_files import file_effect
from presim.cost.collectives.nccl_variables import effect_of
from presim.errors import InputError
from presim.hardware import Cluster
from presim.trace.collective import Collective
from presim.trace.schema import Group
from presim.units import seconds

KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
_SMALLEST, _LARGEST = 8, 34  # powers of two
_PROTOCOL_NAMES = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}
_ALGORITHM_NAMES = {
    "ring": "Ring", "tree": "Tree", "nvls": "NVLS", "nvlstree": "NVLSTree", "collnetdirect": "CollNetDirect",
    "pat": "PAT",
}  # fmt: skip
_UNKNOWN_RULES = "The library's own rules are not known here. The fastest that presim knows"
_NOTHING_ALLOWED = "The variables allow nothing that the library has: NCCL fails. The fastest that presim knows"


@dataclasses.dataclass(frozen=True)
class SizeRange:
    """Sizes, powers of two, that have one algorithm and protocol."""

    smallest_bytes: int
    largest_bytes: int
    algorithm: str
    protocol: str
    channels: tuple[int, int]  # of the smallest and the largest
    seconds: tuple[float, float]  # presim's price of the smallest and the largest
    reason: str = ""  # why this is not the library's choice


def size_ranges(kind: str, ranks: Sequence[int], cluster: Cluster, environment: Mapping[str, str]) -> list[SizeRange]:
    """The choices for sizes from 256 bytes to 16 GiB, merged where they are the same."""
    _check_kind(kind)
    ranges: list[SizeRange] = []
    for power in range(_SMALLEST, _LARGEST + 1):
        size = 1 << power
        algorithm, protocol, channels, price_s, reason = _chosen(kind, size, ranks, cluster, environment)
        last = ranges[-1] if ranges else None
        if last is not None and (last.algorithm, last.protocol, last.reason) == (algorithm, protocol, reason):
            ranges[-1] = dataclasses.replace(
                last,
                largest_bytes=size,
                channels=(last.channels[0], channels),
                seconds=(last.seconds[0], price_s),
            )
        else:
            ranges.append(SizeRange(size, size, algorithm, protocol, (channels, channels), (price_s, price_s), reason))
    return ranges


def _chosen(
    kind: str, size: int, ranks: Sequence[int], cluster: Cluster, environment: Mapping[str, str]
) -> tuple[str, str, int, float, str]:
    """Algorithm, protocol, channels and price of one call, and why it is not the library's choice."""
    tuning = tuning_of(cluster.nccl, environment)
    collective, group = Collective(kind, size, "float32", 0), Group("", tuple(ranks), len(ranks))
    layout = layout_of(collective, group, cluster)
    call = call_of(collective, layout, links_of(cluster, layout, tuning), tuning, cluster)
    choice, run = library_choice(call, tuning), chosen_run(call, tuning)
    price = Hierarchical(environment).alone(collective, group, cluster)
    channels = choice.channels if choice else int(call.channels)
    algorithm, reason = _ALGORITHM_NAMES.get(run.algorithm, run.algorithm), "" if choice else _reason(call)
    return algorithm, _name(run.protocol), channels, price.duration_ns * 1e-9, reason


def _reason(call: CollectiveCall) -> str:
    """Why there is no choice of the library."""
    return _UNKNOWN_RULES if library_choice(call, Tuning()) is None else _NOTHING_ALLOWED


@dataclasses.dataclass(frozen=True)
class SizeEstimate:
    """An algorithm and protocol for one size."""

    algorithm: str
    protocol: str
    channels: int | None  # None: the library's own rules are not known
    estimate_s: float | None  # NCCL's own, likewise
    price_s: float | None  # presim's; None: it prices the call otherwise
    is_chosen: bool
    reason: str = ""  # why this is not the library's choice


def size_estimates(
    kind: str, size: int, ranks: Sequence[int], cluster: Cluster, environment: Mapping[str, str]
) -> list[SizeEstimate]:
    """Every algorithm and protocol for one size: NCCL's estimate, presim's price, and which NCCL takes.

    Where the library's choice is not known, only the fastest that presim knows.
    """
    _check_kind(kind)
    tuning = tuning_of(cluster.nccl, environment)
    collective, group = Collective(kind, size, "float32", 0), Group("", tuple(ranks), len(ranks))
    layout = layout_of(collective, group, cluster)
    call = call_of(collective, layout, links_of(cluster, layout, tuning), tuning, cluster)
    choice = library_choice(call, tuning)
    if choice is None:
        run = chosen_run(call, tuning)
        names = (_ALGORITHM_NAMES[run.algorithm], _name(run.protocol))
        return [SizeEstimate(*names, None, None, run.seconds, is_chosen=False, reason=_reason(call))]
    rows: list[SizeEstimate] = []
    for candidate in sorted(estimates(question_of(call), tuning), key=lambda candidate: candidate.seconds):
        run = run_of(call, tuning, candidate)
        is_priced = (run.algorithm, run.protocol) == (candidate.algorithm, candidate.protocol)
        rows.append(
            SizeEstimate(
                _ALGORITHM_NAMES[candidate.algorithm],
                _name(candidate.protocol),
                candidate.channels,
                candidate.seconds,
                run.seconds if is_priced else None,
                is_chosen=candidate == choice,
            )
        )
    return rows


def size_lines(rows: Sequence[SizeEstimate]) -> Iterator[str]:
    """The lines of a table of `size_estimates`."""
    if rows[0].estimate_s is None:
        (row,) = rows
        yield f"{row.reason}: {row.algorithm} {row.protocol}, {seconds(row.price_s or 0.0)}"
        return
    yield f"{'algorithm':<14}{'protocol':<10}{'channels':>8}  {'NCCL estimates':>14}  {'presim':>10}"
    for row in rows:
        mark = "  <- NCCL's choice" if row.is_chosen else ""
        price = "-" if row.price_s is None else seconds(row.price_s)
        estimate = seconds(row.estimate_s or 0.0)
        yield f"{row.algorithm:<14}{row.protocol:<10}{row.channels:>8}  {estimate:>14}  {price:>10}{mark}"


def table_lines(kind: str, ranges: Sequence[SizeRange]) -> Iterator[str]:
    """The lines of a kind's table."""
    yield kind
    for entry in ranges:
        sizes = f"{_size(entry.smallest_bytes)} to {_size(entry.largest_bytes)}"
        low, high = sorted(entry.channels)
        channels = f"{low}" if low == high else f"{low} to {high}"
        times = " to ".join(dict.fromkeys(seconds(time_s) for time_s in entry.seconds))
        yield f"  {sizes:<20}{entry.algorithm:<14}{entry.protocol:<8}{channels:>9} channels  {times}"
    for reason in dict.fromkeys(entry.reason for entry in ranges if entry.reason):
        yield f"  {reason}."


def variable_lines(environment: Mapping[str, str]) -> Iterator[str]:
    """What each variable changes in presim; names that NCCL does not document are said to be unknown."""
    for name, value in sorted(environment.items()):
        if name.startswith("NCCL_"):
            effect = file_effect(name, value) or effect_of(name) or "unknown: NCCL documents no such variable"
            yield f"  {name}={value}: {effect}"


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise InputError(f"NCCL chooses no algorithm for {kind!r}; name one of {', '.join(KINDS)}")


def _name(protocol: int) -> str:
    return _PROTOCOL_NAMES[PROTOCOLS[protocol]]


def _size(size_bytes: int) -> str:
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >> power:
            return f"{size_bytes >> power} {unit}"
    return f"{size_bytes} B"
