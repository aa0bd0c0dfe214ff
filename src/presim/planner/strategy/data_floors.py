"""Work that data parallelism adds to a rank, at the prices that the simulation uses.

FSDP2 copies gathered parameters out and packs gradients on the compute stream. Its collectives run on streams of their
own, one after the other. ZeRO-1 reduces the gradients of a later pipeline stage in one piece after its last backward
pass, and FSDP2 those of every stage.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from presim.composition.graph.parameters import elements, size
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Collective, Elementwise, Signature

if TYPE_CHECKING:
    from presim.composition.graph.graph_schema import Parameter
    from presim.composition.plan import Plan
    from presim.cost.chain import Chain
    from presim.hardware.cluster import Cluster

_MASTER = 4  # bytes of an fp32 element
_SHARDED = ("fsdp2", "hsdp")


@dataclasses.dataclass(frozen=True)
class DataFloor:
    """Lower bounds of data parallelism on one rank."""

    batch_ns: float = 0.0  # compute stream, for each micro-batch
    stream_ns: float = 0.0  # the longest stream of collectives, for each micro-batch
    tail_ns: float = 0.0  # after the last backward pass


@dataclasses.dataclass(frozen=True)
class _Unit:
    """Parameters that are gathered and reduced together."""

    count: int  # equal units of a rank
    is_root: bool
    parameters: Sequence[Parameter]
    ranks: int  # that shard it

    def shard(self) -> int:
        """Elements of its shard."""
        from presim.composition.runtime.fsdp2_entries import shard_elements

        return sum(shard_elements(parameter, self.ranks) for parameter in self.parameters)

    def copied_out(self) -> Elementwise:
        """The kernel that copies gathered parameters out."""
        dtype = self.parameters[0].dtype
        gathered_bytes = self.shard() * self.ranks * dtype_bytes(dtype)
        split = "aten::split_with_sizes_copy"
        return Elementwise(gathered_bytes, gathered_bytes, gathered_bytes // dtype_bytes(dtype), dtype, operator=split)

    def packed(self, dtype: str) -> Elementwise:
        """The kernel that packs gradients of a type."""
        gathered_bytes = self.shard() * self.ranks * _MASTER
        read = sum(elements(parameter) for parameter in self.parameters) * dtype_bytes(dtype)
        return Elementwise(
            read, gathered_bytes, gathered_bytes // _MASTER, dtype, len(self.parameters), "aten::_chunk_cat"
        )

    def gathered(self, group: int) -> Collective:
        """Its all-gather."""
        dtype = self.parameters[0].dtype
        return Collective("all_gather", self.shard() * self.ranks * dtype_bytes(dtype), dtype, group)

    def scattered(self, group: int) -> Collective:
        """Its reduce-scatter."""
        return Collective("reduce_scatter", self.shard() * self.ranks * _MASTER, "float32", group)

    def reduced(self, group: int) -> Collective:
        """The all-reduce of its shard over replicas."""
        return Collective("all_reduce", self.shard() * _MASTER, "float32", group)


def data_floor(parameters: Sequence[tuple[int, Parameter]], plan: Plan, cluster: Cluster, chain: Chain) -> DataFloor:
    """The bounds for a rank with these parameters, each so many times."""
    if plan.expert > 1 or not parameters or plan.separate_ends:
        return DataFloor()  # experts have units and groups of their own
    if plan.data_style in _SHARDED:
        units = _units(parameters, plan, cluster.world_size)
        price = _Prices(plan, cluster, chain)
        return _sharded_pipeline(units, plan, price) if plan.pipeline > 1 else _sharded(units, plan, price)
    return DataFloor()


def reduction_ns(parameters: Sequence[tuple[int, Parameter]], plan: Plan, cluster: Cluster, chain: Chain) -> float:
    """ZeRO-1's reduction of the gradients of a pipeline stage other than the first, all in one piece."""
    if plan.data_style != "zero1" or plan.expert > 1 or not parameters:
        return 0.0
    price = _Prices(plan, cluster, chain)
    count = sum(count * elements(parameter) for count, parameter in parameters)
    reduced_bytes = count * _MASTER
    return price.of([Collective("reduce_scatter", reduced_bytes, "float32", price.groups["data"])])


def _units(parameters: Sequence[tuple[int, Parameter]], plan: Plan, world_size: int) -> list[_Unit]:
    ranks = plan.shard if plan.data_style == "hsdp" else plan.sharing(world_size)
    by_segment: dict[int, list[tuple[int, Parameter]]] = {}
    for count, parameter in parameters:
        by_segment.setdefault(parameter.segment, []).append((count, parameter))
    return [
        _Unit(members[0][0], segment < 0, [parameter for _, parameter in members], ranks)
        for segment, members in by_segment.items()
    ]


class _Prices:
    """Prices of signatures in the groups of a plan's first rank."""

    def __init__(self, plan: Plan, cluster: Cluster, chain: Chain) -> None:
        from presim.composition.layout import groups, layout

        self._groups = groups(layout(plan, cluster.world_size))
        self._cluster, self._chain = cluster, chain
        self.groups = {group.name: index for index, group in enumerate(self._groups)}
        self.shard = self.groups["shard" if plan.data_style == "hsdp" else "data"]
        self.replicas = self.groups.get("replicas", -1)

    def size(self, group: int) -> int:
        """Ranks of a group; 0 if there is none."""
        return self._groups[group].size if group >= 0 else 0

    def of(self, signatures: Sequence[Signature], counts: Sequence[int] = ()) -> float:
        """Duration of all in ns, each so many times."""
        prices, _ = self._chain.price_all(signatures, self._groups, self._cluster)
        return float(sum(price.duration_ns * count for price, count in zip(prices, counts or [1] * len(signatures))))


def _sharded(units: Sequence[_Unit], plan: Plan, price: _Prices) -> DataFloor:
    """FSDP2 without a pipeline: units are gathered and reduced in every micro-batch."""
    gathers_by_kind = {unit.is_root: 1 + (plan.reshard and not unit.is_root) for unit in units}
    gathers = [unit.count * gathers_by_kind[unit.is_root] - (plan.keep_last and not unit.is_root) for unit in units]
    counts = [unit.count for unit in units]
    copies = price.of([unit.copied_out() for unit in units], gathers)
    packs = price.of([unit.packed(unit.parameters[0].dtype) for unit in units], counts)
    return DataFloor(batch_ns=copies + packs, stream_ns=max(_streams(units, gathers, counts, price)))


def _streams(
    units: Sequence[_Unit], gathers: Sequence[int], counts: Sequence[int], price: _Prices
) -> tuple[float, float, float]:
    """Duration of all-gathers, reduce-scatters and all-reduces, each on a stream of its own, in ns."""
    shared = price.size(price.shard) > 1
    return (
        price.of([unit.gathered(price.shard) for unit in units], gathers) if shared else 0.0,
        price.of([unit.scattered(price.shard) for unit in units], counts) if shared else 0.0,
        price.of([unit.reduced(price.replicas) for unit in units], counts) if price.size(price.replicas) > 1 else 0.0,
    )


def _sharded_pipeline(units: Sequence[_Unit], plan: Plan, price: _Prices) -> DataFloor:
    """FSDP2 in a pipeline: gradients are summed in fp32 in every micro-batch, and reduced after the last one."""
    sums: list[Signature] = []
    sum_counts: list[int] = []
    for unit in units:
        for parameter in unit.parameters:
            sum_bytes = elements(parameter) * _MASTER
            sums.append(
                Elementwise(size(parameter) + sum_bytes, sum_bytes, elements(parameter), "float32", 2, "aten::add_")
            )
            sum_counts.append(unit.count)
    counts = [unit.count for unit in units]
    packs = price.of([unit.packed("float32") for unit in units], counts)
    _, scatters, _ = _streams(units, counts, counts, price)
    return DataFloor(batch_ns=price.of(sums, sum_counts), tail_ns=packs + scatters)
