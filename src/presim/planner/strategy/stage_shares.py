"""Which parts of a micro-batch each rank of a pipeline runs, and the parameters that it has."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from presim.composition.graph.parameters import elements

if TYPE_CHECKING:
    from presim.composition.graph.graph_schema import OperatorGraph, Parameter
    from presim.composition.plan import Plan


@dataclasses.dataclass(frozen=True)
class StageShares:
    """Blocks and parameters by stage; stages are numbered as micro-batches pass them."""

    blocks: NDArray[np.int64]  # [stage, segment]
    stages_by_rank: tuple[tuple[int, ...], ...]
    passes: float  # share of the micro-batches that each stage runs: half under DualPipe, with a copy of every stage
    # parameters whose gradients a stage computes: (how many times, the parameter)
    parameters: tuple[tuple[tuple[int, Parameter], ...], ...]

    def elements(self, rank: int) -> int:
        """Elements of the parameters of a rank."""
        return sum(
            count * elements(parameter)
            for stage in set(self.stages_by_rank[rank])
            for count, parameter in self.parameters[stage]
        )

    def root_elements(self) -> int:
        """Elements of the parameters outside of repeated blocks."""
        return sum(elements(parameter) for stage in self.parameters for _, parameter in stage if parameter.segment < 0)


def stage_shares(graph: OperatorGraph, plan: Plan) -> StageShares:
    """The shares of a plan's stages.

    Raises:
        InputError: the model has fewer blocks than stages.
    """
    from presim.composition import stage_split
    from presim.composition.stage_placement import stage_ranks

    count = plan.pipeline * plan.virtual
    sizes = plan.stages or stage_split.even_sizes(stage_split.count_blocks(graph), count)
    blocks = np.zeros((count, len(graph.segments)), np.int64)
    for (segment, _), stage in stage_split.homes(graph, sizes).items():
        blocks[stage, segment] += 1
    is_dual = plan.order == "dualpipe" and plan.pipeline > 1
    copies = 2 if is_dual else 1
    ranks = tuple(
        tuple(stage % count for stage, stage_rank in enumerate(stage_ranks(plan)) if stage_rank == rank)
        for rank in range(plan.pipeline)
    )
    return StageShares(blocks, ranks, 1 / copies, _parameters(graph, blocks))


def _parameters(graph: OperatorGraph, blocks: NDArray[np.int64]) -> tuple[tuple[tuple[int, Parameter], ...], ...]:
    roots = {parameter.name: parameter for parameter in graph.parameters if parameter.segment < 0}
    by_stage: list[tuple[tuple[int, Parameter], ...]] = []
    for counts in blocks:
        parts = [
            (int(counts[parameter.segment]), parameter)
            for parameter in graph.parameters
            if parameter.segment >= 0 and counts[parameter.segment]
        ]
        own_roots = _root_names(graph, counts)
        parts += [(1, parameter) for name, parameter in roots.items() if name in own_roots]
        by_stage.append(tuple(parts))
    return tuple(by_stage)


def _root_names(graph: OperatorGraph, counts: Sequence[int] | NDArray[np.int64]) -> set[str]:
    """Names of gradients outside of blocks that a stage completes."""
    return {
        name
        for segment, count in zip(graph.segments, counts)
        if count and segment.backward and not segment.name
        for name in segment.gradients
    }
