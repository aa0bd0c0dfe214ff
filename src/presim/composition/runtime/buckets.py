"""Gradient buckets, shared by DDP and Megatron's distributed optimizer.

Buckets are reduced on a separate stream, in the backward pass of the last micro-batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Sequence

from presim.composition.entry_templates import Rows, Tables, Template
from presim.composition.graph.graph_schema import OperatorGraph, Parameter
from presim.composition.graph.parameters import elements
from presim.composition.host_gaps import HostTimes
from presim.composition.schedule import Action, BlockRun, Do, Key
from presim.composition.units import Name, Unit, gradient_keys, unit_of
from presim.trace.schema import Phase
from presim.trace.signatures import Collective

STREAM = 8  # data-parallel stream, see rows.STREAMS
_FP32 = 4


@dataclasses.dataclass(frozen=True)
class Bucket:
    """Gradients that are reduced together in one collective."""

    number: int
    members: tuple[tuple[Name, Parameter], ...]

    @property
    def elements(self) -> int:
        """Number of elements in all gradients."""
        return sum(elements(parameter) for _, parameter in self.members)

    @property
    def dtype(self) -> str:
        """Data type of its parameters."""
        return self.members[0][1].dtype


class Buckets:
    """Base of DDP and ZeRO-1: forms buckets and tracks when each is complete."""

    def __init__(
        self,
        graph: OperatorGraph,
        units: Sequence[Unit],
        runs: Sequence[BlockRun],
        ranks: int,
        group: int,
        tables: Tables,
        hosts: HostTimes,
        *,
        micros: int,
        overlap: bool,
        stage: int = 0,
        sequence_group: int = -1,
        on_host: bool = False,
        tag: str = "",
    ) -> None:
        """``runs``: all backward passes of a micro-batch, in order; ``sequence_group``: of sequence parallelism.

        ``on_host``: the CPU updates parameters, and has those in fp32. ``tag`` distinguishes the memory of several.
        """
        self._tag = (tag,) if tag else ()
        self._on_host = on_host
        self._stage, self._sequence_group = stage, sequence_group
        self._chunk_of = {unit_of(graph, run): run.chunk for run in runs}
        self._graph, self._ranks, self._group = graph, ranks, group
        self._tables, self._hosts, self._overlap = tables, hosts, overlap
        self._last = micros - 1
        self._chunks = {run.chunk for run in runs}
        self._units = {unit.name: unit for unit in units}
        parameters_by_name = {(unit.name, parameter.name): parameter for unit in units for parameter in unit.parameters}
        complete = {
            gradient_name: parameters_by_name[gradient_name]
            for gradient_name in gradient_keys(graph, runs)
            if gradient_name in parameters_by_name
        }
        self.buckets = self._make_buckets(
            [(gradient_name[0], complete[gradient_name]) for gradient_name in self._ordered(complete)]
        )
        self._of = {(name, parameter.name): bucket for bucket in self.buckets for name, parameter in bucket.members}
        self._left: dict[int, int] = {}  # bucket -> number of gradients not yet complete
        self._kept: dict[tuple[Name, str], Key] = {}  # gradients of the first micro-batch
        self._gradients: dict[BlockRun, dict[tuple[Name, str], Key]] = {}  # by run, in the first micro-batch
        self._adds: dict[object, Template] = {}

    def _ordered(self, complete: Collection[tuple[Name, str]]) -> Iterable[tuple[Name, str]]:
        """Gradients in bucket order; ``complete`` lists them in the order that backward completes them."""
        return complete

    def _capacity(self, name: Name, number: int, dtype: str) -> int:
        """Elements after which a bucket is full."""
        raise NotImplementedError

    def _parts(self, before: Name, name: Name) -> bool:
        """Whether a bucket must end between two units."""
        return False

    def _make_buckets(self, order: Sequence[tuple[Name, Parameter]]) -> list[Bucket]:
        buckets: list[Bucket] = []
        members: list[tuple[Name, Parameter]] = []
        num_elements = 0
        for name, parameter in order:
            if members and self._parts(members[-1][0], name):
                buckets.append(Bucket(len(buckets), tuple(members)))
                members, num_elements = [], 0
            members.append((name, parameter))
            num_elements += elements(parameter)
            if num_elements >= self._capacity(name, len(buckets), parameter.dtype):
                buckets.append(Bucket(len(buckets), tuple(members)))
                members, num_elements = [], 0
        return [*buckets, Bucket(len(buckets), tuple(members))] if members else buckets

    def forward(self, runs: Sequence[BlockRun], chunk: int, micro: int) -> list[Action]:
        """The forward pass, unchanged."""
        return list(runs)

    def backward(self, runs: Sequence[BlockRun], chunk: int, micro: int) -> list[Action]:
        """The backward pass: accumulate gradients, and reduce a bucket when its last gradient is complete."""
        actions: list[Action] = []
        for run in runs:
            actions.append(run)
            gradients = self._gradients_of(run)
            if not gradients or unit_of(self._graph, run) not in self._units:
                continue
            actions.append(self._accumulate(unit_of(self._graph, run), gradients, micro))
            if micro == self._last:
                actions += self._complete(list(gradients))
        return actions

    def _gradients_of(self, run: BlockRun) -> dict[tuple[Name, str], Key]:
        """Gradients that a run computes, looked up once in the first micro-batch."""
        first = dataclasses.replace(run, micro=0)
        if first not in self._gradients:
            self._gradients[first] = gradient_keys(self._graph, [first])
        return {name: (run.micro, *key[1:]) for name, key in self._gradients[first].items()}

    def _accumulate(self, name: Name, gradients: dict[tuple[Name, str], Key], micro: int) -> Do:
        """Accumulate the gradients of one unit; equal units share a template."""
        unit = self._units[name]
        parameters_by_name = {parameter.name: parameter for parameter in unit.parameters}
        unit_gradients = {
            parameter: key for (_, parameter), key in gradients.items() if parameter in parameters_by_name
        }
        kind = (unit.kind, tuple(unit_gradients), micro > 0, micro == self._last)
        if kind not in self._adds:
            rows = Rows(self._tables, self._hosts, Phase.BACKWARD)
            for parameter in unit_gradients:
                self._add(rows, parameters_by_name[parameter], kind[2], kind[3])
            self._adds[kind] = rows.template()
        if not micro:
            self._kept.update({(name, parameter): key for parameter, key in unit_gradients.items()})
        template = self._adds[kind]
        return Do(template, tuple(unit_gradients[slot] for slot in template.slots), unit.scope)

    def _complete(self, gradient_names: Sequence[tuple[Name, str]]) -> list[Action]:
        actions: list[Action] = []
        for gradient_name in gradient_names:
            bucket = self._of.get(gradient_name)
            if bucket is None:
                continue
            missing_gradients = self._left.get(bucket.number, len(bucket.members)) - 1
            self._left[bucket.number] = missing_gradients
            if not missing_gradients and self._overlap:
                actions.append(self._reduce(bucket))
        return actions

    def end(self) -> list[Action]:
        """Make the compute stream wait for running reductions."""
        self._left.clear()
        actions: list[Action] = [] if self._overlap else [self._reduce(bucket) for bucket in self.buckets]
        return [*actions, *(self._finish(bucket) for bucket in self.buckets)]

    def before_second(self) -> list[Do]:
        """No actions."""
        return []

    def update(self) -> list[Do]:
        """No actions."""
        return []

    def after_update(self) -> list[Action]:
        """No actions."""
        return []

    def _add(self, rows: Rows, parameter: Parameter, accumulates: bool, last: bool) -> None:
        """Accumulate one gradient; its slot has the parameter's name. ``accumulates``: not the first micro-batch.

        ``last``: the last one.
        """
        raise NotImplementedError

    def _reduce(self, bucket: Bucket) -> Do:
        raise NotImplementedError

    def _finish(self, bucket: Bucket) -> Do:
        rows = Rows(self._tables, self._hosts, Phase.BACKWARD)
        rows.wait("reduced", 0)
        return self._do(rows, {"reduced": ("bucket", "reduced", bucket.number)})

    def _collective(self, rows: Rows, kind: str, size: int, dtype: str) -> None:
        """Issue a collective on the data-parallel stream, after the compute stream's work so far."""
        rows.record("ready", 0)
        rows.wait("ready", STREAM)
        rows.work(f"nccl::{kind}", Collective(kind, size, dtype, self._group), stream=STREAM)
        for event in ("reduced", "recorded"):
            rows.record(event, STREAM)

    def _do(self, rows: Rows, named: dict[str, Key], scope: str = "") -> Do:
        template = rows.template()
        return Do(template, tuple((*named[slot], *self._tag) for slot in template.slots), scope)
