"""Random programs of several ranks that real NCCL would run to their end, and what they read.

A program is made by running it: whatever some rank could do next is done, a read only when all that it needs has been
called by then. So each program has an order in which it ends, whatever order the ranks of a communicator take with
other communicators, messages and reads; and nothing in it waits for itself.
"""

from __future__ import annotations

import dataclasses
import random
from typing import Any

BUFFERS, ELEMENTS = 4, 4  # of 64 bits, on each rank
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "message", "message")
Cell = Any  # a number, or (call, rank, index)


@dataclasses.dataclass
class Call:
    """One collective or message between the ranks of a communicator."""

    kind: str
    communicator: int
    ranks: list[int]  # who takes part, in the order of the communicator
    root: int = 0
    op: str = "sum"
    inputs: dict[int, list[Cell]] = dataclasses.field(default_factory=dict)  # by rank: who has called so far

    def is_called(self) -> bool:
        return set(self.inputs) == set(self.ranks)

    def outputs(self, rank: int) -> int:
        """How many elements the rank gets."""
        place = self.ranks.index(rank)
        if self.kind == "message":
            return ELEMENTS if place == 1 else 0
        return {
            "all_reduce": ELEMENTS,
            "all_gather": len(self.ranks),
            "reduce_scatter": 1,
            "broadcast": ELEMENTS,
            "reduce": ELEMENTS if place == self.root else 0,
            "all_to_all": len(self.ranks),
        }[self.kind]

    def value(self, rank: int, index: int) -> int:
        """What the rank gets at an index."""
        place = self.ranks.index(rank)
        given = [[resolve(cell) for cell in self.inputs[each]] for each in self.ranks]
        if self.kind == "message":
            return given[0][index]
        if self.kind == "broadcast":
            return given[self.root][index]
        if self.kind == "all_gather":
            return given[index][0]
        if self.kind == "all_to_all":
            return given[index][place]
        column = [each[place if self.kind == "reduce_scatter" else index] for each in given]
        return max(column) if self.op == "max" else wrap(sum(column))


def wrap(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def resolve(cell: Cell) -> int:
    """A cell's value; `LookupError` where some call is still to come."""
    if isinstance(cell, int):
        return cell
    call, rank, index = cell
    if not call.is_called():
        raise LookupError
    key = (rank, index)
    known = call.__dict__.setdefault("known", {})
    if key not in known:
        known[key] = call.value(rank, index)
    return int(known[key])


def depends(cell: Cell, call: Call, seen: set[int] | None = None) -> bool:
    """Whether a cell's value comes of a call in any way."""
    seen = set() if seen is None else seen
    if isinstance(cell, int) or id(cell[0]) in seen:
        return False
    seen.add(id(cell[0]))
    given = [each for values in cell[0].inputs.values() for each in values]
    return cell[0] is call or any(depends(each, call, seen) for each in given)


class Program:
    """Events by rank: ``call``, ``write`` and ``read``, these with what is to be read."""

    def __init__(self, seed: int, world: int) -> None:
        self.random = random.Random(seed)
        self.world = world
        subsets = [sorted(self.random.sample(range(world), self.random.randint(2, world))) for _ in range(3)]
        self.communicators = [list(range(world)), *subsets]
        self.events: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(world)}
        self.memory = {rank: [[1000 * rank + 10 * b + e for e in range(ELEMENTS)] for b in range(BUFFERS)]
                       for rank in range(world)}  # fmt: skip
        self.queues: dict[tuple[Any, ...], list[Call]] = {}  # by rank and what its calls are in order in
        for _ in range(self.random.randint(5, 60)):
            self.random.choice((self.announce, self.call, self.call, self.call, self.write, self.read))()
        while any(self.queues.values()):
            self.call()
        for rank in range(world):
            for buffer in range(BUFFERS):
                self.read_one(rank, buffer)

    def announce(self) -> None:
        """Somewhere a call will be made, by each of its ranks in its own time."""
        number = self.random.randrange(len(self.communicators))
        ranks = self.communicators[number]
        kind = self.random.choice(KINDS)
        if kind == "message":
            ranks = self.random.sample(ranks, 2)
        call = Call(kind, number, ranks, self.random.randrange(len(ranks)), self.random.choice(("sum", "max")))
        order = (number, *ranks) if kind == "message" else (number,)
        for rank in ranks:
            self.queues.setdefault((rank, *order), []).append(call)

    def call(self) -> None:
        """Some rank makes a call that is due; now and then several in one group."""
        waiting = [key for key, calls in self.queues.items() if calls]
        if not waiting:
            return
        rank = self.random.choice(waiting)[0]
        due = [key for key in waiting if key[0] == rank]
        chosen = self.random.sample(due, self.random.randint(1, len(due))) if self.random.random() < 0.3 else [
            self.random.choice(due)
        ]  # fmt: skip
        grouped = len(chosen) > 1
        if grouped:
            self.events[rank].append({"do": "group"})
        for key in chosen:
            self.make(rank, self.queues[key].pop(0))
        if grouped:
            self.events[rank].append({"do": "end"})

    def make(self, rank: int, call: Call) -> None:
        source, target = self.random.randrange(BUFFERS), self.random.randrange(BUFFERS)
        memory = self.memory[rank]
        for index, cell in enumerate(memory[source]):
            if depends(cell, call):  # on a result of this very call on another rank: that would wait for itself
                self.put(rank, source, index)
        call.inputs[rank] = list(memory[source])
        for index in range(call.outputs(rank)):
            memory[target][index] = (call, rank, index)
        self.events[rank].append(
            {"do": "call", "kind": call.kind, "communicator": call.communicator, "root": call.root, "op": call.op,
             "peers": call.ranks, "from": source, "to": target}
        )  # fmt: skip

    def write(self) -> None:
        self.put(self.random.randrange(self.world), self.random.randrange(BUFFERS), self.random.randrange(ELEMENTS))

    def put(self, rank: int, buffer: int, index: int) -> None:
        value = len(self.events[rank])
        self.memory[rank][buffer][index] = value
        self.events[rank].append({"do": "write", "buffer": buffer, "index": index, "value": value})

    def read(self) -> None:
        self.read_one(self.random.randrange(self.world), self.random.randrange(BUFFERS))

    def read_one(self, rank: int, buffer: int) -> None:
        try:
            values = [resolve(cell) for cell in self.memory[rank][buffer]]
        except LookupError:
            return
        self.events[rank].append({"do": "read", "buffer": buffer, "values": values})


# What each rank's process runs; it stops at the first program that reads something else.
RUNNER = """
import ctypes, json, os, sys
from ctypes import Structure, byref, c_char, c_int, c_int64, c_size_t, c_void_p

nccl = ctypes.CDLL("libnccl.so.2")
shim = ctypes.CDLL("libpresim_shim.so")
shim.presim_before_read.argtypes = shim.presim_before_write.argtypes = [c_void_p, c_size_t]

class UniqueId(Structure):
    _fields_ = [("internal", c_char * 128)]

nccl.ncclCommInitRank.argtypes = [c_void_p, c_int, UniqueId, c_int]
I64, OPS = 4, {"sum": 0, "max": 2}
own = int(os.environ["PRESIM_RANK"])

def communicator(name, ranks):
    comm = c_void_p()
    assert nccl.ncclCommInitRank(byref(comm), len(ranks), UniqueId(name.encode()), ranks.index(own)) == 0
    assert nccl.presim_nccl_members(comm, (c_int64 * len(ranks))(*ranks), len(ranks)) == 0
    return comm

def call(event, comms, buffers, groups):
    comm, ranks = comms[event["communicator"]], groups[event["communicator"]]
    source, target = buffers[event["from"]], buffers[event["to"]]
    n, one = c_size_t(len(source)), c_size_t(1)
    op, root, kind = OPS[event["op"]], event["root"], event["kind"]
    if kind == "all_reduce":
        return nccl.ncclAllReduce(source, target, n, I64, op, comm, None)
    if kind == "all_gather":
        return nccl.ncclAllGather(source, target, one, I64, comm, None)
    if kind == "reduce_scatter":
        return nccl.ncclReduceScatter(source, target, one, I64, op, comm, None)
    if kind == "broadcast":
        return nccl.ncclBroadcast(source, target, n, I64, root, comm, None)
    if kind == "reduce":
        return nccl.ncclReduce(source, target, n, I64, op, root, comm, None)
    if kind == "all_to_all":
        return nccl.ncclAlltoAll(source, target, one, I64, comm, None)
    sender, receiver = event["peers"]
    if own == sender:
        return nccl.ncclSend(source, n, I64, ranks.index(receiver), comm, None)
    return nccl.ncclRecv(target, n, I64, ranks.index(sender), comm, None)

def run(number, program):
    groups = program["communicators"]
    comms = [communicator(f"{number}/{i}", ranks) if own in ranks else None for i, ranks in enumerate(groups)]
    buffers = [(c_int64 * len(values))(*values) for values in program["memory"][str(own)]]
    for place, event in enumerate(program["events"][str(own)]):
        if event["do"] == "call":
            assert call(event, comms, buffers, groups) == 0
        elif event["do"] == "group":
            nccl.ncclGroupStart()
        elif event["do"] == "end":
            nccl.ncclGroupEnd()
        elif event["do"] == "write":
            at = ctypes.addressof(buffers[event["buffer"]]) + 8 * event["index"]
            shim.presim_before_write(at, 8)
            buffers[event["buffer"]][event["index"]] = event["value"]
        else:
            shim.presim_before_read(buffers[event["buffer"]], ctypes.sizeof(buffers[0]))
            found = list(buffers[event["buffer"]])
            assert found == event["values"], (number, own, place, event, found)
    return buffers

kept = []
for number, program in enumerate(json.load(open(os.environ["PROGRAMS"]))):
    kept.append(run(number, program))
nccl.presim_ranks_end()
results["done"] = len(kept)
"""
