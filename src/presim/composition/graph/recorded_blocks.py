"""Group the calls of a recording by block and direction, and detect equal blocks."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TypeAlias

from presim.composition.graph.recording import RecordedCall, Recording

Block: TypeAlias = "tuple[str, int] | None"  # module list and number of the block; None: outside of any


@dataclasses.dataclass
class RecordedBlock:
    """Calls of one block in one direction, one after the other."""

    block: Block
    backward: bool
    calls: list[RecordedCall]
    storages: list[int] = dataclasses.field(default_factory=list)  # in order of first use

    @property
    def prefix(self) -> str:
        """Name of the block, as module paths begin within it."""
        return f"{self.block[0]}.{self.block[1]}" if self.block else ""


def find_runs(recording: Recording) -> list[RecordedBlock]:
    """Calls grouped by block and direction, in order of execution."""
    lists = list(dict.fromkeys(repeat.name for repeat in recording.repeats))
    runs: list[RecordedBlock] = []
    for call in recording.calls:
        if call.operator == "aten::detach" and call.backward and not call.scope:
            continue  # a gradient is handed to its parameter
        block = block_of(call.scope, lists)
        if runs and runs[-1].block == block and runs[-1].backward == call.backward:
            runs[-1].calls.append(call)
        else:
            runs.append(RecordedBlock(block, call.backward, [call]))
    runs = _merge_runs_of_blocks(runs)
    for run in runs:
        tensors = itertools.chain.from_iterable((*call.inputs, *call.outputs) for call in run.calls)
        run.storages = list(dict.fromkeys(tensor.storage for tensor in tensors))
    return runs


def block_of(scope: str, lists: Sequence[str]) -> Block:
    """The block that contains a module or parameter; ``lists``: names of the module lists with blocks."""
    for name in lists:
        if scope.startswith(name + "."):
            number = scope[len(name) + 1 :].split(".", 1)[0]
            if number.isdecimal():
                return name, int(number)
    return None


def _merge_runs_of_blocks(runs: list[RecordedBlock]) -> list[RecordedBlock]:
    """Merge the runs of one block, and add calls between two blocks of a list to the block before them."""
    joined: list[RecordedBlock] = []
    for index, run in enumerate(runs):
        before = joined[-1] if joined else None
        after = runs[index + 1] if index + 1 < len(runs) else None
        if before and before.block and before.backward == run.backward:
            between = run.block is None and after and after.block and after.block[0] == before.block[0]
            if (between and after and after.backward == run.backward) or run.block == before.block:
                before.calls += run.calls
                continue
        joined.append(run)
    return joined


def group_runs(recording: Recording, runs: list[RecordedBlock]) -> list[list[int]]:
    """Runs that become one segment, as indices in the order of execution."""
    forms = [_block_structure(recording, run) for run in runs]
    paired: dict[tuple[str, int], list[object]] = {}
    for run, form in zip(runs, forms):
        if run.block:
            paired.setdefault(run.block, []).append((run.backward, form))
    groups: list[list[int]] = []
    for index, run in enumerate(runs):
        last = runs[groups[-1][-1]] if groups else None
        follows = (
            last is not None
            and last.block is not None
            and run.block is not None
            and last.block[0] == run.block[0]
            and last.backward == run.backward
            and paired[last.block] == paired[run.block]
        )
        if follows:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


def _block_structure(recording: Recording, run: RecordedBlock) -> object:
    """A key of a block's structure without its number; equal blocks have equal keys."""
    index_by_storage = {storage: index for index, storage in enumerate(run.storages)}
    names = [relative(recording.storages[storage].name, run) for storage in run.storages]
    calls = [
        (
            call.operator,
            relative_scope(call.scope, run),
            tuple((index_by_storage[t.storage], t.shape, t.stride, t.dtype) for t in call.inputs),
            tuple((index_by_storage[t.storage], t.shape, t.stride, t.dtype) for t in call.outputs),
            tuple(sorted((key, str(value)) for key, value in call.attributes.items())),
        )
        for call in run.calls
    ]
    return names, calls


def relative(name: str, run: RecordedBlock) -> str:
    """A parameter's name without its block."""
    prefix = run.prefix
    return name[len(prefix) :] if prefix and name.startswith(prefix + ".") else name


def relative_scope(scope: str, run: RecordedBlock) -> str:
    """A module's name without its block; the block itself is ``.``."""
    return "." if run.prefix and scope == run.prefix else relative(scope, run)
