"""Stages of a pipeline with 1F1B, written as traces with any number of stages and micro-batches."""

from __future__ import annotations

import dataclasses

import msgspec

from presim.composition.replan.pass_order import Pass, PassOrder
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.collective import Collective
from presim.trace.schema import Group, Phase, Trace
from presim.trace.signatures import Elementwise

RANKS = 2  # of each stage
_MESSAGE_BYTES, _ACTIVATION_BYTES = 4096, 65536
_COMPUTE, _MESSAGES = 0, 1  # streams: messages have one for each direction and each end
_PIPELINE, _ALL, _DATA, _ENDS = range(4)  # groups


def kernel(elements: int) -> Elementwise:
    """Device work; another number of elements is other work."""
    return Elementwise(bytes_read=4 * elements, bytes_written=4, elements=elements, dtype="float32")


@dataclasses.dataclass
class Pipeline:
    """A job whose stages receive, compute, keep activations until the backward pass, and send."""

    stages: int
    micro_batches: int
    steps: int = 2
    first_fewer: int = 0  # micro-batches that the first step has less
    is_sync_rooted: bool = False  # each step ends with a broadcast of the last stage's
    odd_stage: int = -1  # does other work
    is_forward_first: bool = False  # all forward passes precede the backward ones
    has_trial: bool = False  # before the first step stages run a pass each way, to learn the shapes of messages
    holds_sent: bool = False  # what the last but one of the passes ahead has sent is freed when the pipeline drains
    ends: tuple[int, int] = (1, 1)  # the first and the last stages, each with work and activations of its own

    def traces(self) -> list[Trace]:
        """A rank of each stage."""
        return [_Writer(self, stage).trace() for stage in range(self.stages)]

    def own_layers(self, stage: int) -> int:
        """Layers that a stage has more than those between the ends."""
        head, tail = self.ends
        from_end = self.stages - stage
        return 10 * (head - stage) if stage < head else 100 * (tail - from_end + 1) if from_end <= tail else 0

    def represented(self) -> dict[int, list[int]]:
        """The ranks that those of the traces represent."""
        return {stage * RANKS: [stage * RANKS + 1] for stage in range(self.stages)}


class _Writer:
    def __init__(self, pipeline: Pipeline, stage: int) -> None:
        self.pipeline, self.stage = pipeline, stage
        world_size, rank = RANKS * pipeline.stages, RANKS * stage
        groups = (
            Group("pp", tuple(range(0, world_size, RANKS)), pipeline.stages),
            Group("default", tuple(range(world_size)), world_size),
            Group("dp", (rank, rank + 1), RANKS),
            Group("ends", (0, world_size - RANKS), 2),
        )
        manifest = msgspec.structs.replace(default_manifest(), world_size=world_size, rank=rank, groups=groups)
        self.build = TraceBuilder(manifest)
        leading = pipeline.micro_batches if pipeline.is_forward_first else pipeline.stages - stage
        self.order = PassOrder(leading, pipeline.micro_batches)
        self.addresses: dict[tuple[str, int], int] = {}
        self.free_addresses = [1 << 20]

    def trace(self) -> Trace:
        self._alloc("weights", 0, 1 << 20)
        if self.pipeline.has_trial:
            for phase in (Phase.FORWARD, Phase.BACKWARD):
                self._layers(phase)
                self.build.work(kernel(3), scope="shapes")
        leading, micro_batches = self.order.leading, self.order.micro_batches
        for step in range(self.pipeline.steps):
            number = micro_batches - (0 if step else self.pipeline.first_fewer)
            self.order = PassOrder(min(leading, number), number)
            self._step()
        return self.build.trace()

    def _step(self) -> None:
        passes = [*self.order.passes()]
        self._receive(passes[0])
        for turn, later in zip(passes, [*passes[1:], None]):
            self._compute(turn)
            self._send(turn)
            if later is not None:
                self._receive(later)
        self.build.work(self._collective("all_reduce", _DATA), stream=_MESSAGES, phase=Phase.OPTIMIZER)
        self.build.work(self._collective("all_reduce", _ALL), stream=_MESSAGES, phase=Phase.OPTIMIZER)
        if self.stage in (0, self.pipeline.stages - 1):
            self.build.work(self._collective("all_reduce", _ENDS), stream=_MESSAGES, phase=Phase.OPTIMIZER)
        if self.pipeline.is_sync_rooted:
            root = self._collective("broadcast", _ALL, peer=RANKS * self.pipeline.stages - RANKS)
            self.build.work(root, stream=_MESSAGES)
        self.build.step()

    def _compute(self, turn: Pass) -> None:
        phase = Phase.FORWARD if turn.is_forward else Phase.BACKWARD
        if turn.is_forward and not turn.micro_batch:
            self.build.work(kernel(9), scope="gather", phase=phase)  # the first pass alone waits for parameters
        if turn.is_forward:
            self._alloc("activations", turn.micro_batch, _ACTIVATION_BYTES)
        self._layers(phase)
        if self.pipeline.holds_sent:
            self._hold(turn)
        if not turn.is_forward:
            self._free("activations", turn.micro_batch, _ACTIVATION_BYTES)
            for name in ("input", "gradient"):
                if (name, turn.micro_batch) in self.addresses:
                    self._free(name, turn.micro_batch, _MESSAGE_BYTES)

    def _hold(self, turn: Pass) -> None:
        """Allocate what a forward pass sends, and free what is no longer held."""
        order = self.order
        drains = not turn.is_forward and turn.micro_batch == order.micro_batches - order.leading
        for name, number in list(self.addresses):
            if name == "sent" and (number != order.leading - 2 or drains):
                self._free(name, number, _MESSAGE_BYTES)
        if turn.is_forward:
            self._alloc("sent", turn.micro_batch, _MESSAGE_BYTES)

    def _layers(self, phase: Phase) -> None:
        if own_layers := self.pipeline.own_layers(self.stage):
            self.build.work(kernel(own_layers), scope="own", phase=phase)
        self.build.work(kernel(99 if self.stage == self.pipeline.odd_stage else 5), scope="attention", phase=phase)
        self.build.work(kernel(7), scope="mlp", phase=phase)

    def _send(self, turn: Pass) -> None:
        peer = self.stage + 1 if turn.is_forward else self.stage - 1
        if 0 <= peer < self.pipeline.stages:
            stream = _MESSAGES + 2 * turn.is_forward
            self.build.wait(self.build.record(stream=_COMPUTE), stream=stream)
            self.build.work(self._collective("send", _PIPELINE, peer=peer), stream=stream)

    def _receive(self, turn: Pass) -> None:
        peer = self.stage - 1 if turn.is_forward else self.stage + 1
        if 0 <= peer < self.pipeline.stages:
            self._alloc("input" if turn.is_forward else "gradient", turn.micro_batch, _MESSAGE_BYTES)
            stream = _MESSAGES + 2 * turn.is_forward + 1
            self.build.work(self._collective("recv", _PIPELINE, peer=peer), stream=stream)
            self.build.wait(self.build.record(stream=stream), stream=_COMPUTE)

    def _collective(self, kind: str, group: int, peer: int = -1) -> Collective:
        return Collective(kind=kind, bytes=_MESSAGE_BYTES, dtype="bfloat16", group=group, peer=peer)

    def _alloc(self, name: str, micro_batch: int, size: int) -> None:
        if len(self.free_addresses) == 1:
            self.free_addresses.insert(0, self.free_addresses[-1])
            self.free_addresses[-1] += 1 << 21
        self.addresses[name, micro_batch] = self.free_addresses.pop(0)
        self.build.alloc(self.addresses[name, micro_batch], size)

    def _free(self, name: str, micro_batch: int, size: int) -> None:
        address = self.addresses.pop((name, micro_batch))
        self.build.free(address, size)
        self.free_addresses.insert(0, address)
