"""An engine that accepts requests at run time: the uncompiled loop of `presim.serving.fast`, one event at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from presim.errors import InputError
from presim.serving.engines.changing import request_columns
from presim.serving.engines.columns import start
from presim.serving.engines.engine import Fleet
from presim.serving.fast import arrival_heap, request_routing, serving_loop, serving_state
from presim.serving.workloads.workload import make

_IDS = (1 << 40) - 1  # mask for ids of block contents


@dataclasses.dataclass(frozen=True)
class Emitted:
    """A token delivered to its client."""

    request: int
    when_ns: int
    is_last: bool


class LiveEngine:
    """Engines behind a router in simulated time. `submit` adds a request; `advance` moves time forward."""

    def __init__(self, fleet: Fleet) -> None:
        if fleet.life is not None:
            raise InputError("an endpoint does not support autoscaling or failures; leave out --autoscale and --mtbf")
        block = fleet.replicas[0].limits.block_size
        empty = dataclasses.replace(make("live", *(np.zeros(0, np.int64),) * 3), segment_tokens=block)
        longest = max(replica.limits.max_model_len for replica in fleet.replicas)
        program, columns = start(empty, fleet, record=False, longest=longest)
        self.block = block
        self.longest = longest
        self.program = serving_state.Program(**{name: column.tolist() for name, column in program.items()})
        self.state = serving_state.ServingState(**{name: column.tolist() for name, column in columns.items()})

    def submit(self, tokens: Sequence[int], output: int, now_ns: int, *, adapter: int = 0, grammar_ns: int = -1) -> int:
        """Add a request that is sent now, with a LoRA adapter or a grammar that takes so long; returns its number."""
        if not tokens or output < 1:
            raise InputError("a request needs a prompt and an output of at least one token each; send both")
        if len(tokens) + output > self.longest:
            raise InputError(
                f"{len(tokens)} prompt tokens and {output} output tokens exceed max_model_len {self.longest}; send "
                "fewer"
            )
        item = len(self.program.prompt)
        values = {"arrival": now_ns, "prompt": len(tokens), "output": output, "rank": item, "stream": item}
        values |= {"child_first": 0, "delay": 0, "adapter": adapter}
        values["grammar_ns"] = grammar_ns
        for name, value in values.items():
            getattr(self.program, name).append(value)
        for name, missing in request_columns():
            getattr(self.state, name).append(missing)
        self.program.segments.extend(contents(tokens, self.block, adapter))
        self.program.segment_first.append(len(self.program.segments))
        for column in (self.state.heap_time, self.state.heap_item):
            column.append(0)
        self.state.counters[serving_state.OPEN] += 1
        arrival_heap.push_arrival(self.state, item, now_ns)
        return item

    def abort(self, item: int) -> None:
        """Abort a request whose client disconnected: it ends with its next token."""
        if self.state.status[item] != serving_state.FINISHED:
            have = max(self.state.tokens[item] - self.program.prompt[item], 0)
            self.program.output[item] = min(self.program.output[item], have + 1)

    @property
    def next_event_ns(self) -> int | None:
        """Time of the next event; None if there is none."""
        times = [time_ns for time_ns in self.state.wake if time_ns < serving_state.FOREVER]
        if self.state.counters[serving_state.PENDING] > 0:
            times.append(self.state.heap_time[0])
        return min(times, default=None)

    def advance(self, until_ns: int) -> list[Emitted]:
        """Advance time; returns the tokens produced, in order."""
        emitted: list[Emitted] = []
        p, s = self.program, self.state
        while (event_ns := self.next_event_ns) is not None and event_ns <= until_ns:
            s.counters[serving_state.STEPS] = s.counters[serving_state.PAIRS] = 0
            first = min(range(len(s.wake)), key=lambda replica: s.wake[replica])
            if s.counters[serving_state.PENDING] > 0 and s.heap_time[0] <= s.wake[first]:
                request_routing.arrive(p, s)
                continue
            slot = s.oldest[first] if s.action[first] == serving_state.UPDATE else -1
            serving_loop.run_engine(p, s, first)
            if slot >= 0:
                emitted += self._emitted(first, slot)
        return emitted

    def _emitted(self, replica: int, slot: int) -> list[Emitted]:
        p, s = self.program, self.state
        begin = p.batch_base[replica] + slot * p.knobs[replica * serving_state.KNOBS + serving_state.MAX_SEQS]
        places = range(begin, begin + s.slot_count[p.slot_base[replica] + slot])
        items = [s.batch_item[batch_index] for batch_index in places if s.batch_samples[batch_index]]
        return [
            Emitted(item, s.last[item], s.status[item] == serving_state.FINISHED) for item in items if s.last[item] >= 0
        ]


def contents(tokens: Sequence[int], block: int, adapter: int = 0) -> list[int]:
    """Ids of a prompt's full blocks; each stands for all tokens up to its end. The same in every process."""
    import hashlib

    block_ids: list[int] = []
    digest = hashlib.blake2b(str(adapter).encode() if adapter else b"", digest_size=8)
    for first in range(0, len(tokens) - block + 1, block):
        digest.update(np.array(tokens[first : first + block], np.int64).tobytes())
        block_ids.append(int.from_bytes(digest.copy().digest(), "little") & _IDS)
    return block_ids


def fields(emitted: Emitted) -> dict[str, Any]:
    """The token as plain values."""
    return dataclasses.asdict(emitted)
