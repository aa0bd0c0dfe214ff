"""Where the forward and backward passes of each micro-batch are among a trace's calls."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from presim.composition.replan.cycles import NotPeriodicError, content_numbers, find_cycle
from presim.composition.replan.interleaved_order import InterleavedOrder
from presim.composition.replan.pass_order import PassOrder
from presim.composition.replan.stage_ranks import messages_between_stages
from presim.errors import InputError
from presim.trace.collective import Collective
from presim.trace.schema import Kind, Phase, Trace

Ints = NDArray[np.int64]
_OF_BACKWARD = (Phase.BACKWARD, Phase.RECOMPUTE)


@dataclasses.dataclass(frozen=True, eq=False)
class StepPasses:
    """The passes of one step of a stage: each reaches to the next one, and the last to the end of the step."""

    order: PassOrder
    starts: Ints  # first call of each pass, in their order
    end: int  # the call after the step
    layer_ends: Ints | None = None  # the call after the layers of each pass, where parts of passes are told apart

    def parts(self) -> list[tuple[int, int]]:
        """First call of each part of each pass, and the one after its last call."""
        begins = self.starts if self.layer_ends is None else np.stack([self.starts, self.layer_ends], axis=1).ravel()
        return list(zip(begins.tolist(), [*begins[1:].tolist(), self.end]))


def find_passes(trace: Trace, calls: Ints) -> list[StepPasses]:
    """The passes of each step; ``calls``: see `presim.composition.replan.cycles.program_calls`.

    Raises:
        InputError: passes are not in the order of 1F1B.
    """
    return [_passes_of_step(trace, calls, number, step) for number, step in enumerate(trace.steps())]


def find_interleaved_passes(trace: Trace, calls: Ints, orders: Sequence[InterleavedOrder]) -> list[StepPasses]:
    """The passes of each step, which have the given orders; ``calls``: as for `find_passes`.

    Raises:
        InputError: passes are in another order.
    """
    steps = enumerate(zip(trace.steps(), orders, strict=True))
    return [_passes_in_order(trace, calls, number, step, order) for number, (step, order) in steps]


def _passes_in_order(trace: Trace, calls: Ints, number: int, step: slice, order: InterleavedOrder) -> StepPasses:
    begin, end = np.searchsorted(calls, [step.start, step.stop]).tolist()
    contents = content_numbers(trace, calls[begin:end])
    phases = trace.columns["phase"][calls[begin:end]]
    is_work = trace.mask(Kind.WORK, Kind.COLLECTIVE)[calls[begin:end]]
    is_message = _is_message(trace, calls[begin:end])
    is_work &= ~is_message  # these are of passes, too, but before or after the layers
    is_of_layers = is_work & np.isin(phases, (Phase.FORWARD, *_OF_BACKWARD))
    streams = trace.columns["stream"][calls[begin:end]]
    is_exchange = np.isin(streams, np.unique(streams[is_message]))
    forward, backward = (
        _behind_messages(
            _starts(contents, is_in_phase, order.micro_batches, is_work, order.chunks), is_of_layers, is_exchange
        )
        for is_in_phase in (phases == Phase.FORWARD, np.isin(phases, _OF_BACKWARD))
    )
    starts = np.sort(np.concatenate([forward, backward]))
    is_forward = np.isin(starts, forward)
    if is_forward.tolist() != [turn.is_forward for turn in order.passes()]:
        raise InputError(
            f"the passes of step {number} of rank {trace.manifest.rank} are not in Megatron's interleaved order: "
            f"{len(forward)} forward and {len(backward)} backward passes begin, and {order.micro_batches} of each are "
            f"expected, {order.leading} of them ahead"
        )
    layer_ends = _layer_ends(contents, is_of_layers, is_message, starts)
    return StepPasses(order, begin + starts, end, begin + layer_ends)


def _behind_messages(starts: Ints, is_of_layers: NDArray[np.bool_], is_exchange: NDArray[np.bool_]) -> Ints:
    """Where passes start without the messages posted just before their layers, in whatever phase these are.

    ``is_exchange``: which calls are on streams of messages.
    """
    layers = np.flatnonzero(is_of_layers)
    later_starts = starts.copy()
    for number, start in enumerate(starts.tolist()):
        posted = np.flatnonzero(is_exchange[start : layers[np.searchsorted(layers, start)]])
        later_starts[number] += posted[-1] + 1 if len(posted) else 0
    return later_starts


def _layer_ends(contents: Ints, is_of_layers: NDArray[np.bool_], is_message: NDArray[np.bool_], starts: Ints) -> Ints:
    """The call after the layers of each pass: the last of their work before its messages.

    What follows may be work of the same phase, as the scaling of a loss. Layers of a pass without messages end as those
    of others.
    """
    pass_ends = [*starts[1:].tolist(), len(contents)]
    layer_ends = np.full(len(starts), -1, np.int64)
    for number, (first, last) in enumerate(zip(starts.tolist(), pass_ends)):
        messages = np.flatnonzero(is_message[first:last])
        if len(messages):
            layer_ends[number] = first + np.flatnonzero(is_of_layers[first : first + messages[0]])[-1]
    last_contents = contents[layer_ends[layer_ends >= 0]]
    for number in np.flatnonzero(layer_ends < 0).tolist():
        first, last = int(starts[number]), pass_ends[number]
        is_end = is_of_layers[first:last] & np.isin(contents[first:last], last_contents)
        candidates = np.flatnonzero(is_end if is_end.any() else is_of_layers[first:last])
        layer_ends[number] = first + candidates[-1]
    return layer_ends + 1


def _is_message(trace: Trace, calls: Ints) -> NDArray[np.bool_]:
    return np.isin(trace.columns["signature"][calls], messages_between_stages(trace))


def _passes_of_step(trace: Trace, calls: Ints, number: int, step: slice) -> StepPasses:
    begin, end = np.searchsorted(calls, [step.start, step.stop]).tolist()
    reason = ""  # why nothing repeats
    try:
        micro_batches = find_cycle(trace, step, calls).step_micro_batches
    except NotPeriodicError as error:
        micro_batches, reason = _messages_of_each_neighbour(trace, calls[begin:end]), str(error)
        if not micro_batches:
            raise _not_in_turn(trace, number, reason) from None
    contents = content_numbers(trace, calls[begin:end])
    phases = trace.columns["phase"][calls[begin:end]]
    is_in_phases = phases == Phase.FORWARD, np.isin(phases, _OF_BACKWARD)
    refusals = []
    for trials in (0, 1):  # of each pass, before the others: so stages learn the shapes of messages
        for further in range(trials + 1):  # the trials may be counted as a micro-batch
            forward, backward = (
                _starts_behind(contents, is_in_phase, micro_batches - further, trials) for is_in_phase in is_in_phases
            )
            try:
                order, starts = _in_turn(forward, backward, micro_batches - further, reason)
            except NotPeriodicError as refusal:
                refusals.append(str(refusal))
            else:
                return StepPasses(order, begin + starts, end)
    raise _not_in_turn(trace, number, refusals[0])


def _in_turn(forward: Ints, backward: Ints, micro_batches: int, reason: str) -> tuple[PassOrder, Ints]:
    """The order of the passes that begin there, and all begins. ``reason``: why nothing repeats, if nothing does.

    Raises:
        NotPeriodicError: this is no order of 1F1B.
    """
    if len(forward) != micro_batches or len(backward) != micro_batches:
        raise NotPeriodicError(
            f"{micro_batches} micro-batches have {len(forward)} forward and {len(backward)} backward"
        )
    leading = int(np.searchsorted(forward, backward[0]))
    if reason and leading == micro_batches:  # all forward passes come first
        raise NotPeriodicError(reason)
    order = PassOrder(leading, micro_batches)
    starts = np.sort(np.concatenate([forward, backward]))
    is_forward = np.isin(starts, forward)
    if is_forward.tolist() != [turn.is_forward for turn in order.passes()]:
        raise NotPeriodicError("backward and forward passes do not take turns")
    return order, starts


def _messages_of_each_neighbour(trace: Trace, calls: Ints) -> int:
    """How often a stage sends to and receives from each neighbour in a step, if always equally often; else 0.

    A first step, in which functions are compiled, repeats no cycle.
    """
    counts: dict[tuple[str, int, int], int] = defaultdict(int)
    for number in trace.columns["signature"][calls[_is_message(trace, calls)]].tolist():
        message = trace.signatures[number]
        assert isinstance(message, Collective)
        for direction in message.kind.split("_"):  # send_recv is both
            counts[direction, message.group, message.peer] += 1
    numbers = {*counts.values()}
    return numbers.pop() if len(numbers) == 1 else 0


def _starts(
    contents: Ints,
    is_in_phase: NDArray[np.bool_],
    micro_batches: int,
    is_anchor: NDArray[np.bool_] | bool = True,
    chunks: int = 1,
) -> Ints:
    """First calls of the passes of a phase: where runs of it begin with what each micro-batch does once.

    ``is_anchor``: the calls among which that is looked for. ``chunks``: one of so many may do nothing that others do,
    as one with a loss and no layers; ``micro_batches`` counts each once for each chunk.
    """
    of_all = next(_repeated_starts(contents, is_in_phase, micro_batches, is_anchor), None)
    if of_all is not None or chunks == 1:
        return np.empty(0, np.int64) if of_all is None else of_all
    of_chunk = micro_batches // chunks
    of_others = next(_repeated_starts(contents, is_in_phase, micro_batches - of_chunk, is_anchor), None)
    if of_others is None:
        return np.empty(0, np.int64)
    for starts in _repeated_starts(contents, is_in_phase, of_chunk, is_anchor):
        together: Ints = np.union1d(of_others, starts)
        if len(together) == micro_batches:
            return together
    return np.empty(0, np.int64)


def _starts_behind(contents: Ints, is_in_phase: NDArray[np.bool_], micro_batches: int, trials: int) -> Ints:
    """First calls of the passes of a phase behind so many that precede them, where these do what those do."""
    starts = _starts(contents, is_in_phase, micro_batches)
    return starts if len(starts) else _starts(contents, is_in_phase, micro_batches + trials)[trials:]


def _repeated_starts(
    contents: Ints, is_in_phase: NDArray[np.bool_], passes: int, is_anchor: NDArray[np.bool_] | bool
) -> Iterator[Ints]:
    """Where so many runs of a phase begin that all do something once; what comes first in the step first."""
    counts = np.bincount(contents[is_in_phase], minlength=int(contents.max(initial=0)) + 1)
    run_starts = np.flatnonzero(is_in_phase & ~np.concatenate([[False], is_in_phase[:-1]]))
    candidates = contents[is_in_phase & is_anchor & (counts[contents] == passes)]
    for content in dict.fromkeys(candidates.tolist()):
        anchors = np.flatnonzero(is_in_phase & (contents == content))
        starts: Ints = np.unique(run_starts[np.searchsorted(run_starts, anchors, side="right") - 1])
        if len(starts) == passes:
            yield starts


def _not_in_turn(trace: Trace, step: int, reason: str) -> InputError:
    return InputError(
        f"the passes of step {step} of rank {trace.manifest.rank} are not those of a 1F1B schedule: {reason}; "
        "capture the job with the number of stages that you want"
    )
