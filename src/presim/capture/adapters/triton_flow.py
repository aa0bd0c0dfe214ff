"""Data flow in a Triton kernel: the tensor of a pointer, the values that decide loops, the inputs of results.

A run-time choice between two pointers counts as the first; values loaded from memory are not followed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

from presim.capture.adapters.triton_ir import Block, Code, Op, walk

_DESCRIPTOR = r"(?:experimental_)?descriptor_"
_READS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather", "tt.atomic_rmw", "tt.atomic_cas")
_WRITES = (
    *("tt.store", "tt.descriptor_store", "tt.descriptor_scatter", "tt.descriptor_reduce"),
    *("tt.atomic_rmw", "tt.atomic_cas"),
)
PRODUCTS = ("tt.dot", "tt.dot_scaled")


def reads_memory(op: Op) -> bool:
    """Whether an operation reads memory at its first operand."""
    return op.name.replace("experimental_", "") in _READS


def writes_memory(op: Op) -> bool:
    """Whether an operation writes memory."""
    return op.name.replace("experimental_", "") in _WRITES


def accessed_pointer(op: Op) -> int:
    """The pointer or descriptor that an operation accesses."""
    return op.operands[0] if op.operands else 0


@dataclasses.dataclass(frozen=True)
class Flow:
    """Facts that follow from a kernel's code alone."""

    origin: dict[int, str]  # pointer or descriptor -> the parameter that it is derived from
    control: frozenset[int]  # values that loops and branches depend on
    data: frozenset[int]  # values that stores or products depend on
    read: frozenset[str]  # parameters whose contents control depends on
    axes: frozenset[str]  # axes of the grid that control depends on


def analyse_flow(code: Code) -> Flow:
    """Analyse the data flow of a kernel."""
    ops = list(walk(code.blocks))
    labels = {(id(op), block.label): block for op in ops for region in op.regions for block in region}
    labels |= {(0, block.label): block for block in code.blocks}
    steps = [*_branch_flows(code.blocks, None), *(step for op in ops for step in _region_flows(op))]
    loads = [(value, result) for op in ops if reads_memory(op) for value in op.operands for result in op.results]
    origin = {code.parameters[name]: name for name in code.pointers}
    for _ in range(2):  # the results of an `if` are known once its branches are
        for source, result in steps:
            if source in origin:
                origin.setdefault(result, origin[source])
    control = _dependencies((value for op in ops for value in _control_operands(op)), [*steps, *loads])
    deciding = [op for op in ops if control & {*op.results}]
    return Flow(
        origin=origin,
        control=control,
        data=_dependencies((value for op in ops for value in _data_operands(op)), steps),
        read=frozenset(origin.get(accessed_pointer(op), "") for op in deciding if reads_memory(op)) - {""},
        axes=frozenset(op.text.split()[1] for op in deciding if op.name == "tt.get_program_id"),
    )


def _region_flows(op: Op) -> Iterator[tuple[int, int]]:
    """Source and result of all values that an operation passes into and out of its regions."""
    if op.name in ("tt.reduce", "tt.scan", "tt.map_elementwise") or not op.regions:
        if not reads_memory(op):
            yield from ((value, result) for result in op.results for value in op.operands)
        return
    inner = op.operands[3:] if op.name == "scf.for" else op.operands
    for region in op.regions:
        yield from _branch_flows(region, op)
    entry = op.regions[0][0]
    arguments = entry.arguments[1:] if op.name == "scf.for" else entry.arguments
    terminators = [block.ops[-1] for region in op.regions for block in region if block.ops]
    if op.name != "scf.if":
        yield from zip(inner, arguments)
    if op.name in ("scf.for", "scf.while"):
        yield from zip(inner, op.results)
    for terminator in terminators:
        if terminator.name == "scf.condition":
            yield from zip(terminator.operands[1:], op.regions[1][0].arguments)
            yield from zip(terminator.operands[1:], op.results)
        elif terminator.name in ("scf.yield", "tt.return"):
            yield from zip(terminator.operands, () if op.name == "scf.while" else op.results)
            yield from zip(terminator.operands, arguments if op.name != "scf.if" else ())


def _branch_flows(region: list[Block], _: Op | None) -> Iterator[tuple[int, int]]:
    """Values passed by branches between the blocks of one region."""
    block_by_label = {block.label: block for block in region}
    for block in region:
        for label, passed_values in block.ops[-1].targets if block.ops else ():
            yield from zip(passed_values, block_by_label[label].arguments if label in block_by_label else ())


def _control_operands(op: Op) -> tuple[int, ...]:
    """Operands that decide whether or how often something runs."""
    if op.name == "scf.for":
        return op.operands[:3]
    if op.name in ("scf.if", "scf.condition", "cf.cond_br"):
        return op.operands[:1]
    return ()


def _data_operands(op: Op) -> tuple[int, ...]:
    """Operands that are stored or multiplied."""
    if op.name in PRODUCTS:
        return op.operands
    return op.operands[1:] if writes_memory(op) else ()


def _dependencies(roots: Iterable[int], steps: list[tuple[int, int]]) -> frozenset[int]:
    """The roots and all values that they depend on."""
    sources: dict[int, list[int]] = {}
    for source, result in steps:
        sources.setdefault(result, []).append(source)
    dependencies = set(roots)
    waiting = list(dependencies)
    while waiting:
        for source in sources.get(waiting.pop(), ()):
            if source not in dependencies:
                dependencies.add(source)
                waiting.append(source)
    return frozenset(dependencies)
