"""Pipeline parallelism: one rank's passes in schedule order, and the messages between stages.

A sent activation is kept until its backward pass. PyTorch receives into buffers allocated at the start, one per
micro-batch. Megatron allocates memory when a message arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from presim.composition.block_templates import rounded
from presim.composition.entry_templates import COLUMNS, Rows, Tables, Template
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.host_gaps import HostTimes
from presim.composition.pipeline_steps import (
    AWAIT,
    BACKWARD,
    FORWARD,
    INPUT,
    SIGNAL,
    WAIT,
    WEIGHT,
    Message,
    PipelineStep,
)
from presim.composition.runtime.data_parallel import DataParallel
from presim.composition.runtime.stage_messages import StageMessages
from presim.composition.schedule import Action, BlockRun, Do, Key
from presim.composition.stage_split import Crossing, Stage
from presim.trace.schema import Category, Phase

_NOTHING = Template({name: np.empty(0, dtype) for name, dtype in COLUMNS.items()}, (), ())
_PRODUCTS = ("aten::mm", "aten::addmm")
Again = Callable[[tuple[BlockRun, ...]], Sequence[Action]]


class Pipeline:
    """The actions of one rank."""

    def __init__(
        self,
        graph: OperatorGraph,
        stages: Sequence[Stage],
        rank: int,
        ranks: int,
        sizes: Callable[[int, int], int],
        tables: Tables,
        hosts: HostTimes,
        *,
        group: int = -1,
        pairs: Mapping[int, int],
        stage_ranks: Sequence[int],
        is_dual: bool = False,
        has_buffers: bool = True,
        separate_ends: bool = False,
    ) -> None:
        """``pairs``: the group with each rank that messages go to. ``stage_ranks``: the rank of each stage.

        ``separate_ends``: what follows the blocks counts as another chunk than what precedes them.
        """
        self._rank_of = stage_ranks.__getitem__
        # DualPipe: stages of one direction, and whether micro-batches of the other direction enter nearer to this rank
        self._length = ranks if is_dual else len(stages)
        self._turned = is_dual and rank >= ranks // 2
        self._own = [stage for stage in range(len(stages)) if self._rank_of(stage) == rank]
        self._graph, self._stages, self._place, self._ranks = graph, stages, rank, ranks
        self._each = 1
        self._late = frozenset(_after_blocks(graph)) if separate_ends else frozenset[int]()
        self._bytes, self._tables, self._hosts = sizes, tables, hosts
        self._has_buffers = has_buffers
        self._shared = [index for index, segment in enumerate(graph.segments) if segment.shared]
        self._templates: dict[object, Template] = {}
        stage_passes = [(stage, backward) for stage in self._own for backward in (False, True)]
        received = {
            crossing
            for stage, backward in stage_passes
            if self._crosses(stage, backward)
            for crossing in self._received_crossings(stage, backward)
        }
        self._buffers = received if has_buffers else set[Crossing]()  # allocated at the start, one per micro-batch
        self._messages = StageMessages(
            graph,
            rank,
            ranks,
            sizes,
            tables,
            hosts,
            group=group,
            pairs=pairs,
            rank_of=self._rank_of,
            crossings=self._crossings,
            buffers=self._buffers,
            has_buffers=has_buffers,
        )

    def apply(
        self, steps: Sequence[PipelineStep], data: DataParallel, recomputed: Again, micros_per_stage: int
    ) -> list[Action]:
        """The passes and messages of one training step; ``micros_per_stage``: micro-batches that each stage runs.

        Data parallelism sees them counted from 0, in either direction.
        """
        self._each = micros_per_stage
        actions: list[Action] = []
        for step in steps:
            if step.partner is None:
                actions += self._actions(step, data, recomputed)
            else:
                forward, backward = (self._actions(part, data, recomputed) for part in step.passes)
                begin, middle, end = (Do(_NOTHING, (), side_by_side=mark) for mark in ("begin", "middle", "end"))
                actions += [begin, *forward, middle, *backward, end]
        return [*actions, *data.end()]

    def _actions(self, step: PipelineStep, data: DataParallel, recomputed: Again) -> list[Action]:
        """The actions of a pass or of communication."""
        chunk, micro = self.chunk(step.stage), step.micro % self._each
        if step.kind == FORWARD:
            return [*data.forward(self.forward_runs(step.stage, step.micro), chunk, micro)]
        if step.kind in (BACKWARD, INPUT):
            runs = recomputed(self.backward_runs(step.stage, step.micro))
            return [
                *data.backward([run for run in runs if isinstance(run, BlockRun)], chunk, micro),
                *(self._weights(step, data, recomputed) if step.kind == BACKWARD else []),
                *(self._free_used(step) if step.kind == BACKWARD else []),
                *self._free(self._outputs(step.stage), step.micro),
            ]
        if step.kind == WEIGHT:
            return [*self._weights(step, data, recomputed), *self._free_used(step)]
        if step.kind == WAIT:
            return [self._messages.wait(step.messages, step.freed)]
        return [self._messages.signal(step)] if step.kind in (SIGNAL, AWAIT) else self._messages.begin(step)

    def _weights(self, step: PipelineStep, data: DataParallel, recomputed: Again) -> list[Action]:
        """Gradients of weights, where the graph makes them apart."""
        if not self._stages[step.stage].weights:
            return []
        recomputed_blocks = self._recomputed_blocks(recomputed(self.backward_runs(step.stage)))
        runs = self.weight_runs(step.stage, step.micro, recomputed_blocks)
        return data.backward(runs, self.chunk(step.stage), step.micro % self._each)

    def chunk(self, stage: int) -> int:
        """Number of a stage among those of this rank; under DualPipe the ranks with the same two stages agree on it."""
        return self._own.index(stage) ^ self._turned

    def forward_runs(self, stage: int, micro: int = 0) -> tuple[BlockRun, ...]:
        """A stage's forward pass."""
        chunk = self.chunk(stage)
        shared = [BlockRun(segment, 0, micro, chunk=chunk) for segment in self._shared]
        return (*shared, *(self._run(*segment_block, micro, chunk) for segment_block in self._stages[stage].forward))

    def backward_runs(self, stage: int, micro: int = 0) -> tuple[BlockRun, ...]:
        """A stage's backward pass."""
        return tuple(
            self._run(*segment_block, micro, self.chunk(stage)) for segment_block in self._stages[stage].backward
        )

    def _run(self, segment: int, block: int, micro: int, chunk: int) -> BlockRun:
        return BlockRun(segment, block, micro, chunk=chunk + (segment in self._late))

    def weight_runs(
        self, stage: int, micro: int = 0, recomputed_blocks: Collection[tuple[int, int]] = ()
    ) -> tuple[BlockRun, ...]:
        """The part of a stage's backward pass that computes weight gradients, if split.

        ``recomputed_blocks``: (forward segment, block) pairs that were recomputed.
        """
        chunk, segments = self.chunk(stage), self._graph.segments
        return tuple(
            BlockRun(segment, block, micro, (segments[segment].twin, block) in recomputed_blocks, chunk)
            for segment, block in self._stages[stage].weights
        )

    def _recomputed_blocks(self, actions: Sequence[Action]) -> set[tuple[int, int]]:
        runs = [action for action in actions if isinstance(action, BlockRun) and action.recomputed]
        return {(self._graph.segments[run.segment].twin, run.block) for run in runs}

    def held(self, micros: int) -> frozenset[Key]:
        """Storages that no block frees: received and sent tensors."""
        keys: set[Key] = set()
        for stage in self._own:
            for crossing in (
                *self._received_crossings(stage, False),
                *self._received_crossings(stage, True),
                *self._sent(stage),
            ):
                keys |= {crossing.key(micro) for micro in range(micros)}
        for stage in self._own:
            keys |= {crossing.key(micro) for crossing in self._outputs(stage) for micro in range(micros)}
        return frozenset(keys)

    def _outputs(self, stage: int) -> tuple[Crossing, ...]:
        """The last stage's outputs (logits), which PyTorch keeps until the micro-batch's backward pass."""
        if self._ranks == 1 or not self._has_buffers or stage % self._length < self._length - 1:
            return ()
        segment, block = self._stages[stage].forward[-1]
        nodes = self._graph.segments[segment].nodes
        products = [node.outputs[0].value for node in nodes if node.operator in _PRODUCTS]
        return (Crossing(segment, block, products[-1]),) if products else ()

    def setup(self, micros: int) -> list[Do]:
        """Allocate receive buffers."""
        if not self._has_buffers:
            return []
        rows, keys = Rows(self._tables, self._hosts, Phase.OTHER), dict[str, Key]()
        for crossing in sorted(self._buffers, key=lambda crossing: (crossing.segment, crossing.block, crossing.index)):
            for micro in range(micros):
                slot = str(len(keys))
                rows.alloc(slot, rounded(self._size(crossing)), Category.COMMUNICATION)
                keys[slot] = crossing.key(micro)
        template = rows.template()
        return [Do(template, tuple(keys[slot] for slot in template.slots))] if keys else []

    def _received_crossings(self, stage: int, backward: bool) -> tuple[Crossing, ...]:
        return self._stages[stage].gradients if backward else self._stages[stage].activations

    def _sent(self, stage: int) -> tuple[Crossing, ...]:
        return (*self._leaving(stage, False), *self._leaving(stage, True))

    def _leaving(self, stage: int, backward: bool) -> tuple[Crossing, ...]:
        other = stage + (-1 if backward else 1)
        return self._received_crossings(other, backward) if 0 <= other < len(self._stages) else ()

    def _crossings(self, message: Message) -> tuple[Crossing, ...]:
        return (self._leaving if message.outgoing else self._received_crossings)(message.stage, message.backward)

    def _crosses(self, stage: int, backward: bool) -> bool:
        """Whether a stage's input comes from another rank."""
        other = stage + (1 if backward else -1)
        return 0 <= other < len(self._stages) and self._rank_of(other) != self._place

    def _size(self, crossing: Crossing) -> int:
        return self._bytes(crossing.segment, crossing.index)

    def _free_used(self, step: PipelineStep) -> list[Action]:
        """After a backward pass: free the sent activations and the received tensors."""
        forward_blocks = {(segment, block) for segment, block in self._stages[step.stage].forward}
        freed = [
            crossing
            for crossing in self._leaving(step.stage, False)
            if (crossing.segment, crossing.block) in forward_blocks
        ]
        for backward in (False, True):
            if backward or self._crosses(step.stage, backward):
                leaving = self._leaving(step.stage, backward)
                freed += [
                    crossing for crossing in self._received_crossings(step.stage, backward) if crossing not in leaving
                ]
        return self._free([crossing for crossing in freed if crossing not in self._buffers], step.micro)

    def _free(self, freed: Sequence[Crossing], micro: int) -> list[Action]:
        if not freed:
            return []
        kind = ("free", tuple(self._size(crossing) for crossing in freed))
        if kind not in self._templates:
            rows = Rows(self._tables, self._hosts, Phase.BACKWARD)
            for index, crossing in enumerate(freed):
                rows.free(str(index), rounded(self._size(crossing)))
            self._templates[kind] = rows.template()
        return [Do(self._templates[kind], tuple(crossing.key(micro) for crossing in freed))]


def _after_blocks(graph: OperatorGraph) -> list[int]:
    """Segments of what follows the blocks: norm, output layer and loss, forward and backward."""
    blocks = [index for index, segment in enumerate(graph.segments) if segment.name]
    forward = [index for index in blocks if not graph.segments[index].backward]
    backward = [index for index in blocks if graph.segments[index].backward]
    if not forward:
        return []
    last, first = forward[-1], backward[0] if backward else len(graph.segments)
    return [index for index, segment in enumerate(graph.segments) if not segment.name and last < index < first]
