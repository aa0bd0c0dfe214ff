"""Split a graph into pipeline stages: the blocks of each stage, and the tensors that cross stage borders."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from presim.composition.graph.graph_schema import OperatorGraph, ValueOrigin
from presim.composition.graph.sizes import read
from presim.composition.schedule import BlockRun, Key, value_key
from presim.errors import InputError

_CONSTANT_BYTES = 1 << 20  # a larger message with a constant size must be a parameter's gradient


@dataclasses.dataclass(frozen=True)
class Crossing:
    """A storage that one stage creates and another uses."""

    segment: int
    block: int
    index: int

    def key(self, micro: int) -> Key:
        """Its key within a step."""
        return (micro, self.segment, self.block, False, self.index)


@dataclasses.dataclass(frozen=True)
class Stage:
    """The segments and messages of one stage for a micro-batch."""

    forward: tuple[tuple[int, int], ...]  # (segment, block), in order
    backward: tuple[tuple[int, int], ...]
    weights: tuple[tuple[int, int], ...] = ()  # weight-gradient segments, if backward is split
    activations: tuple[Crossing, ...] = ()  # activations from the previous stage
    gradients: tuple[Crossing, ...] = ()  # gradients from the next stage


def count_blocks(graph: OperatorGraph) -> int:
    """Number of repeated blocks in the forward pass."""
    return sum(segment.count for segment in graph.segments if segment.name and not segment.backward)


def even_sizes(count: int, stages: int) -> tuple[int, ...]:
    """Blocks per stage, as equal as possible; the first and last stage, with embedding and head, get fewer."""
    blocks_per_stage, remainder = divmod(count, stages)
    order = sorted(range(stages), key=lambda stage: (stage in (0, stages - 1), stage == 0, stage))
    larger = set(order[:remainder])
    return tuple(blocks_per_stage + (stage in larger) for stage in range(stages))


def split_stages(graph: OperatorGraph, sizes: Sequence[int]) -> list[Stage]:
    """Split the graph into stages with the given numbers of blocks.

    Raises:
        InputError: the first and the last stage share a parameter.
    """
    home = homes(graph, sizes)
    stages = []
    for stage in range(len(sizes)):
        passes: tuple[list[tuple[int, int]], ...] = ([], [], [])
        for index, segment in enumerate(graph.segments):
            if segment.shared:
                continue
            order = range(segment.count - 1, -1, -1) if segment.backward else range(segment.count)
            stage_blocks = ((index, block) for block in order if home[index, block] == stage)
            passes[segment.backward + segment.weights].extend(stage_blocks)
        stages.append(Stage(tuple(passes[0]), tuple(passes[1]), tuple(passes[2])))
    crossing = _crossing(graph, stages, home)
    return [
        dataclasses.replace(
            stage,
            activations=tuple(
                storage for storage, (source_stage, last) in crossing.items() if source_stage < stage_index <= last
            ),
            gradients=tuple(
                storage for storage, (source_stage, last) in crossing.items() if source_stage > stage_index >= last
            ),
        )
        for stage_index, stage in enumerate(stages)
    ]


def homes(graph: OperatorGraph, sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """(segment, block) -> stage; code between blocks belongs to the preceding block of the forward pass."""
    stage_of = [stage for stage, size in enumerate(sizes) for _ in range(size)]
    home: dict[tuple[int, int], int] = {}
    passed, last = 0, len(sizes) - 1
    total = len(stage_of)
    for index, segment in enumerate(graph.segments):
        if segment.backward:
            continue
        for block in range(segment.count):
            if segment.name:
                home[index, block] = stage_of[passed]
                passed += 1
            else:
                home[index, block] = 0 if not passed else last if passed == total else stage_of[passed - 1]
    blocks_before = total
    for index, segment in enumerate(graph.segments):
        if not segment.backward:
            continue
        if segment.name:
            home |= {(index, block): home[segment.twin, block] for block in range(segment.count)}
            blocks_before = min(blocks_before, sum(_blocks_before(graph, segment.twin)))
        else:
            home[index, 0] = last if blocks_before == total else 0 if not blocks_before else stage_of[blocks_before - 1]
    return home


def _blocks_before(graph: OperatorGraph, twin: int) -> list[int]:
    return [segment.count for segment in graph.segments[:twin] if segment.name and not segment.backward]


def _crossing(
    graph: OperatorGraph, stages: list[Stage], home: dict[tuple[int, int], int]
) -> dict[Crossing, tuple[int, int]]:
    """Crossing storage -> (stage that creates it, last stage that uses it)."""
    stages_by_storage: dict[Crossing, tuple[int, int]] = {}
    for stage_index, stage in enumerate(stages):
        for segment, block in (*stage.forward, *stage.backward, *stage.weights):
            graph_segment = graph.segments[segment]
            for index, value in enumerate(graph_segment.values):
                if value.origin not in (ValueOrigin.SEGMENT, ValueOrigin.CARRY) or graph_segment.twin == value.segment:
                    continue
                key = value_key(graph, BlockRun(segment, block), index)
                if key is None or graph.segments[int(str(key[1]))].shared:
                    continue
                storage = Crossing(int(str(key[1])), int(str(key[2])), int(str(key[4])))
                source_stage = home[storage.segment, storage.block]
                if source_stage == stage_index:
                    continue
                _check(graph, storage)
                furthest = min if graph.segments[storage.segment].backward else max
                stages_by_storage[storage] = (
                    source_stage,
                    furthest(stage_index, stages_by_storage.get(storage, (source_stage, stage_index))[1]),
                )
    return stages_by_storage


def _check(graph: OperatorGraph, crossing: Crossing) -> None:
    size = graph.segments[crossing.segment].values[crossing.index].bytes
    if crossing and len(read(size).terms) == 1 and read(size).terms[0][1:] == (0, 0) and int(size) > _CONSTANT_BYTES:
        raise InputError(
            f"{graph.model} ties parameters of its first and last stage (a gradient of {int(size):,} bytes would "
            "pass between them), which composing does not support with this schedule or in more than two places; use "
            "schedule 1f1b, a pipeline of 1, or untie them in the model's config"
        )
