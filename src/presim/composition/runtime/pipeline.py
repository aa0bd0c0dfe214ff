"""Pipeline parallelism: one rank's passes in schedule order, and the messages between stages.

Messages follow `torch.distributed.pipelining`: a single send or receive runs on the stream of the two ranks'
communicator, a send and a receive together are one exchange on the stream of the whole group. A sent activation is kept
until its backward pass. PyTorch receives into buffers allocated at the start, one per micro-batch. Megatron allocates
memory when a message arrives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence

from presim.composition.blocks import rounded
from presim.composition.graph.schema import OperatorGraph
from presim.composition.hosts import HostTimes
from presim.composition.rows import Rows, Tables, Template
from presim.composition.runtime.data_parallel import DataParallel
from presim.composition.schedule import Action, Do, Key, Run
from presim.composition.stages import Crossing, Stage
from presim.composition.steps import BACKWARD, EXCHANGE, FORWARD, INPUT, WAIT, WEIGHT, Message, Step
from presim.composition.steps import place as rank_of
from presim.trace.schema import Category, Phase
from presim.trace.signatures import Collective

_BEFORE, _AFTER, _ALL = 5, 6, 7  # streams: previous rank, next rank, whole group; see rows.STREAMS
_PRODUCTS = ("aten::mm", "aten::addmm")
Again = Callable[[tuple[Run, ...]], Sequence[Action]]


class Pipeline:
    """The actions of one rank."""

    def __init__(
        self,
        graph: OperatorGraph,
        stages: Sequence[Stage],
        place: int,
        ranks: int,
        sizes: Callable[[int, int], int],
        tables: Tables,
        hosts: HostTimes,
        *,
        group: int = -1,
        pairs: tuple[int, int] = (-1, -1),
        has_buffers: bool = True,
        schedule: str = "",
        separate_ends: bool = False,
    ) -> None:
        """``separate_ends``: what follows the blocks counts as another chunk than what precedes them."""
        self._rank_of = functools.partial(rank_of, schedule, ranks)
        # DualPipe: stages of one direction, and whether micro-batches of the other direction enter nearer to this rank
        self._length = ranks if schedule == "dualpipe" else len(stages)
        self._turned = schedule == "dualpipe" and place >= ranks // 2
        self._own = [stage for stage in range(len(stages)) if self._rank_of(stage) == place]
        self._graph, self._stages, self._place, self._ranks = graph, stages, place, ranks
        self._each = 1
        self._late = frozenset(_after_blocks(graph)) if separate_ends else frozenset[int]()
        self._bytes, self._tables, self._hosts = sizes, tables, hosts
        self._group, self._pairs, self._has_buffers = group, pairs, has_buffers
        self._shared = [index for index, segment in enumerate(graph.segments) if segment.shared]
        self._templates: dict[object, Template] = {}
        own = [(stage, backward) for stage in self._own for backward in (False, True)]
        came = {one for stage, backward in own if self._crosses(stage, backward) for one in self._came(stage, backward)}
        self._buffers = came if has_buffers else set[Crossing]()  # allocated at the start, one per micro-batch

    def apply(self, steps: Sequence[Step], data: DataParallel, recomputed: Again, each: int) -> list[Action]:
        """The passes and messages of one training step; ``each``: micro-batches that each stage runs.

        Data parallelism sees them counted from 0, in either direction.
        """
        self._each = each
        actions: list[Action] = []
        for step in steps:
            chunk = self.chunk(step.stage)
            if step.kind == FORWARD:
                actions += data.forward(self.forward_runs(step.stage, step.micro), chunk, step.micro % each)
            elif step.kind in (BACKWARD, INPUT):
                runs = recomputed(self.backward_runs(step.stage, step.micro))
                actions += data.backward([run for run in runs if isinstance(run, Run)], chunk, step.micro % each)
                actions += self._weights(step, data, recomputed) if step.kind == BACKWARD else []
                actions += self._used(step) if step.kind == BACKWARD else []
                actions += self._freed(self._outputs(step.stage), step.micro)
            elif step.kind == WEIGHT:
                actions += self._weights(step, data, recomputed)
                actions += self._used(step)
            elif step.kind == WAIT:
                actions.append(self._wait(step.messages, step.freed))
            else:
                actions += self._begin(step)
        return [*actions, *data.end()]

    def _weights(self, step: Step, data: DataParallel, recomputed: Again) -> list[Action]:
        """Gradients of weights, where the graph makes them apart."""
        if not self._stages[step.stage].weights:
            return []
        again = self._again(recomputed(self.backward_runs(step.stage)))
        runs = self.weight_runs(step.stage, step.micro, again)
        return data.backward(runs, self.chunk(step.stage), step.micro % self._each)

    def chunk(self, stage: int) -> int:
        """Number of a stage among those of this rank; under DualPipe the ranks with the same two stages agree on it."""
        return stage // self._ranks ^ self._turned

    def forward_runs(self, stage: int, micro: int = 0) -> tuple[Run, ...]:
        """A stage's forward pass."""
        chunk = self.chunk(stage)
        shared = [Run(segment, 0, micro, chunk=chunk) for segment in self._shared]
        return (*shared, *(self._run(*one, micro, chunk) for one in self._stages[stage].forward))

    def backward_runs(self, stage: int, micro: int = 0) -> tuple[Run, ...]:
        """A stage's backward pass."""
        return tuple(self._run(*one, micro, self.chunk(stage)) for one in self._stages[stage].backward)

    def _run(self, segment: int, block: int, micro: int, chunk: int) -> Run:
        return Run(segment, block, micro, chunk=chunk + (segment in self._late))

    def weight_runs(self, stage: int, micro: int = 0, again: Collection[tuple[int, int]] = ()) -> tuple[Run, ...]:
        """The part of a stage's backward pass that computes weight gradients, if split.

        ``again``: (forward segment, block) pairs that were recomputed.
        """
        chunk, segments = self.chunk(stage), self._graph.segments
        return tuple(
            Run(segment, block, micro, (segments[segment].twin, block) in again, chunk)
            for segment, block in self._stages[stage].weights
        )

    def _again(self, actions: Sequence[Action]) -> set[tuple[int, int]]:
        runs = [action for action in actions if isinstance(action, Run) and action.again]
        return {(self._graph.segments[run.segment].twin, run.block) for run in runs}

    def held(self, micros: int) -> frozenset[Key]:
        """Storages that no block frees: received and sent tensors."""
        found: set[Key] = set()
        for stage in self._own:
            for one in (*self._came(stage, False), *self._came(stage, True), *self._sent(stage)):
                found |= {one.key(micro) for micro in range(micros)}
        for stage in self._own:
            found |= {one.key(micro) for one in self._outputs(stage) for micro in range(micros)}
        return frozenset(found)

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
        for one in sorted(self._buffers, key=lambda one: (one.segment, one.block, one.index)):
            for micro in range(micros):
                slot = str(len(keys))
                rows.alloc(slot, rounded(self._size(one)), Category.COMMUNICATION)
                keys[slot] = one.key(micro)
        template = rows.template()
        return [Do(template, tuple(keys[slot] for slot in template.slots))] if keys else []

    def _came(self, stage: int, backward: bool) -> tuple[Crossing, ...]:
        return self._stages[stage].gradients if backward else self._stages[stage].came

    def _sent(self, stage: int) -> tuple[Crossing, ...]:
        return (*self._leaving(stage, False), *self._leaving(stage, True))

    def _leaving(self, stage: int, backward: bool) -> tuple[Crossing, ...]:
        other = stage + (-1 if backward else 1)
        return self._came(other, backward) if 0 <= other < len(self._stages) else ()

    def _crosses(self, stage: int, backward: bool) -> bool:
        """Whether a stage's input comes from another rank."""
        other = stage + (1 if backward else -1)
        return 0 <= other < len(self._stages) and self._rank_of(other) != self._place

    def _size(self, one: Crossing) -> int:
        return self._bytes(one.segment, one.index)

    def _used(self, step: Step) -> list[Action]:
        """After a backward pass: free the sent activations and the received tensors."""
        own = {(segment, block) for segment, block in self._stages[step.stage].forward}
        freed = [one for one in self._leaving(step.stage, False) if (one.segment, one.block) in own]
        for backward in (False, True):
            if backward or self._crosses(step.stage, backward):
                leaving = self._leaving(step.stage, backward)
                freed += [one for one in self._came(step.stage, backward) if one not in leaving]
        return self._freed([one for one in freed if one not in self._buffers], step.micro)

    def _freed(self, freed: Sequence[Crossing], micro: int) -> list[Action]:
        if not freed:
            return []
        kind = ("free", tuple(self._size(one) for one in freed))
        if kind not in self._templates:
            rows = Rows(self._tables, self._hosts, Phase.BACKWARD)
            for index, one in enumerate(freed):
                rows.free(str(index), rounded(self._size(one)))
            self._templates[kind] = rows.template()
        return [Do(self._templates[kind], tuple(one.key(micro) for one in freed))]

    def _begin(self, step: Step) -> list[Action]:
        """Start a send, a receive, or both as one exchange."""
        parts = [(message, one) for message in step.messages for one in self._values(message)]
        peer = self._rank_of(step.messages[0].neighbour)
        phase = Phase.BACKWARD if step.messages[0].backward else Phase.FORWARD
        allocated = [] if self._has_buffers else [(m, one) for m, one in parts if not m.outgoing]
        made = tuple((message.outgoing, self._size(one), self._dtype(one)) for message, one in parts)
        kind = (step.kind, peer, phase, made, bool(allocated))
        if kind not in self._templates:
            rows = Rows(self._tables, self._hosts, phase)
            for index, (_, one) in enumerate(allocated):
                rows.alloc(f"v{index}", rounded(self._size(one)), Category.COMMUNICATION, operator="aten::empty")
            stream = _ALL if step.kind == EXCHANGE else self._stream(peer)
            rows.record("ready", 0)
            rows.wait("ready", stream)
            for signature in self._signatures(step, parts, peer):
                rows.work(f"nccl::{signature.kind}", signature, stream=stream)
            for event in ("done", "recorded"):
                rows.record(event, stream)
            self._templates[kind] = rows.template()
        template = self._templates[kind]
        first = step.messages[0]
        named: dict[str, Key] = {slot: ("message", first, slot) for slot in ("ready", "done", "recorded")}
        named |= {f"v{index}": one.key(message.micro) for index, (message, one) in enumerate(allocated)}
        return [Do(template, tuple(named[slot] for slot in template.slots))]

    def _wait(self, messages: Sequence[Message], of_all: Message | None = None) -> Do:
        """Make the compute stream wait for messages, and free sent gradients.

        ``of_all``: the message with these gradients, numbered over all micro-batches, if some are omitted.
        """
        gradients = [message for message in messages if message.outgoing and message.backward]
        if of_all is not None:
            gradients = [of_all] * len(gradients)
        freed = [(one, m.micro) for m in gradients for one in self._values(m) if one not in self._buffers]
        sent = [one.key(micro) for one, micro in freed]
        sizes = tuple(self._size(one) for one, _ in freed)
        kind = ("wait", messages[0].backward, sizes)
        if kind not in self._templates:
            rows = Rows(self._tables, self._hosts, Phase.BACKWARD if messages[0].backward else Phase.FORWARD)
            rows.wait("done", 0)
            for index, size in enumerate(sizes):
                rows.free(str(index), rounded(size))
            self._templates[kind] = rows.template()
        return Do(self._templates[kind], (("message", messages[0], "done"), *sent), of_all=of_all is not None)

    def _values(self, message: Message) -> tuple[Crossing, ...]:
        return (self._leaving if message.outgoing else self._came)(message.stage, message.backward)

    def _stream(self, peer: int) -> int:
        return _BEFORE if self._ranks > 2 and peer == (self._place - 1) % self._ranks else _AFTER

    def _signatures(self, step: Step, parts: Sequence[tuple[Message, Crossing]], peer: int) -> list[Collective]:
        if step.kind == EXCHANGE:
            sent = sum(self._size(one) for message, one in parts if message.outgoing)
            came = sum(self._size(one) for message, one in parts if not message.outgoing)
            dtype = self._dtype(parts[0][1])
            return [Collective("send_recv", max(sent, came), dtype, self._group, peer, fused=len(parts))]
        kinds = {True: "send", False: "recv"}
        pair = self._pairs[self._stream(peer) == _AFTER]
        return [
            Collective(kinds[message.outgoing], self._size(one), self._dtype(one), pair, int(peer > self._place))
            for message, one in parts
        ]

    def _dtype(self, one: Crossing) -> str:
        for node in self._graph.segments[one.segment].nodes:
            for operand in node.outputs:
                if operand.value == one.index and not node.view:
                    return operand.dtype
        return "uint8"


def _after_blocks(graph: OperatorGraph) -> list[int]:
    """Segments of what follows the blocks: norm, output layer and loss, forward and backward."""
    blocks = [index for index, segment in enumerate(graph.segments) if segment.name]
    forward = [index for index in blocks if not graph.segments[index].backward]
    backward = [index for index in blocks if graph.segments[index].backward]
    if not forward:
        return []
    last, first = forward[-1], backward[0] if backward else len(graph.segments)
    return [index for index, segment in enumerate(graph.segments) if not segment.name and last < index < first]
