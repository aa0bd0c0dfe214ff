"""Messages between the stages of a pipeline, and what a rank waits for, as trace entries.

Messages follow `torch.distributed.pipelining`: a single send or receive runs on the stream of the two ranks'
communicator, a send and a receive together are one exchange on the stream of the whole group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

from presim.composition.block_templates import rounded
from presim.composition.entry_templates import STREAMS, Rows, Tables, Template
from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.host_gaps import HostTimes
from presim.composition.pipeline_steps import AWAIT, EXCHANGE, Message, PipelineStep
from presim.composition.schedule import Action, Do, Key
from presim.composition.stage_split import Crossing
from presim.trace.schema import Category, Phase
from presim.trace.signatures import Collective

_BEFORE, _AFTER, _ALL = 5, 6, 7  # streams: previous rank, next rank, whole group; see rows.STREAMS
_SIGNAL_BYTES = 4


class StageMessages:
    """The messages of one rank of a pipeline."""

    def __init__(
        self,
        graph: OperatorGraph,
        rank: int,
        ranks: int,
        sizes: Callable[[int, int], int],
        tables: Tables,
        hosts: HostTimes,
        *,
        group: int,
        pairs: Mapping[int, int],
        rank_of: Callable[[int], int],
        crossings: Callable[[Message], tuple[Crossing, ...]],
        buffers: Collection[Crossing],
        has_buffers: bool,
    ) -> None:
        """``rank_of``: the rank of a stage. ``crossings``: tensors of a message. ``buffers``: those that receive."""
        self._graph, self._rank, self._ranks, self._bytes = graph, rank, ranks, sizes
        self._tables, self._hosts, self._group, self._pairs = tables, hosts, group, pairs
        self._rank_of, self._crossings, self._buffers, self._has_buffers = rank_of, crossings, buffers, has_buffers
        self._templates: dict[object, Template] = {}

    def begin(self, step: PipelineStep) -> list[Action]:
        """Start a send, a receive, or both as one exchange."""
        parts = [(message, crossing) for message in step.messages for crossing in self._crossings(message)]
        peer = self._rank_of(step.messages[0].neighbour)
        phase = Phase.BACKWARD if step.messages[0].backward else Phase.FORWARD
        allocated = [] if self._has_buffers else [(m, crossing) for m, crossing in parts if not m.outgoing]
        payloads = tuple((message.outgoing, self._size(crossing), self._dtype(crossing)) for message, crossing in parts)
        kind = (step.kind, peer, phase, payloads, bool(allocated))
        if kind not in self._templates:
            rows = Rows(self._tables, self._hosts, phase)
            for index, (_, crossing) in enumerate(allocated):
                rows.alloc(f"v{index}", rounded(self._size(crossing)), Category.COMMUNICATION, operator="aten::empty")
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
        named |= {f"v{index}": crossing.key(message.micro) for index, (message, crossing) in enumerate(allocated)}
        return [Do(template, tuple(named[slot] for slot in template.slots))]

    def wait(self, messages: Sequence[Message], of_all: Message | None = None) -> Do:
        """Make the compute stream wait for messages, and free sent gradients.

        ``of_all``: the message with these gradients, numbered over all micro-batches, if some are omitted.
        """
        gradients = [message for message in messages if message.outgoing and message.backward]
        if of_all is not None:
            gradients = [of_all] * len(gradients)
        freed = [
            (crossing, m.micro) for m in gradients for crossing in self._crossings(m) if crossing not in self._buffers
        ]
        sent = [crossing.key(micro) for crossing, micro in freed]
        sizes = tuple(self._size(crossing) for crossing, _ in freed)
        kind = ("wait", messages[0].backward, sizes)
        if kind not in self._templates:
            rows = Rows(self._tables, self._hosts, Phase.BACKWARD if messages[0].backward else Phase.FORWARD)
            rows.wait("done", 0)
            for index, size in enumerate(sizes):
                rows.free(str(index), rounded(size))
            self._templates[kind] = rows.template()
        return Do(self._templates[kind], (("message", messages[0], "done"), *sent), of_all=of_all is not None)

    def signal(self, step: PipelineStep) -> Do:
        """Start a message that says only that a pass has ended, or make the compute stream wait for one."""
        assert step.signal is not None  # by construction in `pass_dependencies`
        number, peer, outgoing = dataclasses.astuple(step.signal)
        stream = self._stream(peer)
        kind = (step.kind, peer, outgoing)
        if kind not in self._templates:
            rows = Rows(self._tables, self._hosts, Phase.OTHER)
            if step.kind == AWAIT:
                rows.wait("done", 0)
            else:
                name = "send" if outgoing else "recv"
                rows.record("ready", 0)
                rows.wait("ready", stream)
                signature = Collective(name, _SIGNAL_BYTES, "int32", self._pairs[peer], int(peer > self._rank))
                rows.work(f"nccl::{name}", signature, stream=stream)
                rows.record("done", stream)
            self._templates[kind] = rows.template()
        template = self._templates[kind]
        return Do(template, tuple(("signal", number, outgoing, slot) for slot in template.slots))

    def _size(self, crossing: Crossing) -> int:
        return self._bytes(crossing.segment, crossing.index)

    def _stream(self, peer: int) -> int:
        if self._ranks > 2 and peer == (self._rank - 1) % self._ranks:
            return _BEFORE
        return _AFTER if peer == (self._rank + 1) % self._ranks else len(STREAMS) + peer

    def _signatures(self, step: PipelineStep, parts: Sequence[tuple[Message, Crossing]], peer: int) -> list[Collective]:
        if step.kind == EXCHANGE:
            sent_bytes = sum(self._size(crossing) for message, crossing in parts if message.outgoing)
            received_bytes = sum(self._size(crossing) for message, crossing in parts if not message.outgoing)
            dtype = self._dtype(parts[0][1])
            return [
                Collective("send_recv", max(sent_bytes, received_bytes), dtype, self._group, peer, fused=len(parts))
            ]
        kinds = {True: "send", False: "recv"}
        pair = self._pairs[peer]
        return [
            Collective(
                kinds[message.outgoing], self._size(crossing), self._dtype(crossing), pair, int(peer > self._rank)
            )
            for message, crossing in parts
        ]

    def _dtype(self, crossing: Crossing) -> str:
        for node in self._graph.segments[crossing.segment].nodes:
            for operand in node.outputs:
                if operand.value == crossing.index and not node.view:
                    return operand.dtype
        return "uint8"
