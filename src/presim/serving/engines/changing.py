"""The columns that change while the loop runs, as they are at first."""

from __future__ import annotations

from typing import Any

import numpy as np

from presim.serving.engines import lives
from presim.serving.engines.engine import Fleet
from presim.serving.fast import serving_state
from presim.serving.fast.serving_state import STAGES_AT_MOST
from presim.serving.workloads.workload import Workload


def request_columns() -> list[tuple[str, int]]:
    """Columns that have an entry for each request, with what stands in them at first."""
    return [(name, -1 if name in _NONE else 0) for name in _REQUEST_COLUMNS]


def state_columns(workload: Workload, fleet: Fleet, program: dict[str, Any], rows: dict[int, int]) -> dict[str, Any]:
    """Columns of `presim.serving.fast.serving_state.ServingState`; ``rows``: of its logs."""
    count, replicas = len(workload), len(fleet.replicas)
    starts = np.flatnonzero(workload.parent < 0)
    starts = starts[np.argsort(workload.arrival_ns[starts], kind="stable")]
    heap_time, heap_item = np.zeros(count + 2, np.int64), np.zeros(count + 2, np.int64)
    heap_time[: len(starts)], heap_item[: len(starts)] = workload.arrival_ns[starts], starts  # sorted: a heap
    counters = np.zeros(serving_state.COUNTERS, np.int64)
    counters[serving_state.PENDING], counters[serving_state.OPEN], counters[serving_state.DRAWN] = (
        len(starts),
        count,
        fleet.seed + 1,
    )
    counters[serving_state.HELD_HEAD] = counters[serving_state.HELD_TAIL] = -1
    widest = sum(replica.limits.max_num_seqs for replica in fleet.replicas)
    sizes = {
        **dict.fromkeys(_REQUEST_COLUMNS, count),
        **dict.fromkeys(_REPLICA_COLUMNS, replicas),
        **{name: int(program[base][-1]) for name, base in _SIZED_BY.items()},
        "table": widest * int(program["row_blocks"][0]),
        "stage_free": replicas * STAGES_AT_MOST,
        "tool_free": workload.delay_workers,
        "tier_count": 2 * replicas + 1,
        "spent": replicas * serving_state.SPENT,
        "log": rows[serving_state.LOG_ROWS] * serving_state.LOG,
        "gaps": rows[serving_state.GAP_ROWS] * 2,
        "schedule": rows[serving_state.SCHEDULE_ROWS] * 3,
        "events": rows[serving_state.EVENT_ROWS] * 3,
    }
    columns: dict[str, Any] = {
        name: np.full(size, -1 if name in _NONE else 0, np.int64) for name, size in sizes.items()
    }
    columns |= {"counters": counters, "heap_time": heap_time, "heap_item": heap_item}
    columns["wake"][:] = serving_state.FOREVER
    columns["unmet"][:] = np.bincount(workload.dependencies()[0], minlength=count)
    _fill_pools(fleet, program, columns)
    lives.fill(fleet, columns)
    return columns


def _fill_pools(fleet: Fleet, program: dict[str, Any], columns: dict[str, Any]) -> None:
    for replica_index, replica in enumerate(fleet.replicas):
        first, end = (int(bound) for bound in program["base"][replica_index : replica_index + 2])
        columns["free_next"][first : end - 1] = np.arange(first + 1, end)
        columns["free_prev"][first + 1 : end] = np.arange(first, end - 1)
        columns["n_free"][replica_index] = replica.limits.num_gpu_blocks - 1
        row, row_end = (int(bound) for bound in program["row_base"][replica_index : replica_index + 2])
        columns["rows"][row:row_end] = np.arange(row, row_end)[::-1]
        columns["n_rows"][replica_index] = row_end - row
    for name in ("tier_next", "tier_prev"):
        columns[name][program["tier_base"][:-1]] = program["tier_base"][:-1]  # each sentinel alone


_REQUEST_COLUMNS = (
    *("status", "replica", "computed", "tokens", "placeholders", "in_flight", "stale", "blocks", "cached", "row"),
    *("apart_pages", "apart_head", "reach"),
    *("decodes", "eligible", "sampled_at", "loaded", "next", "before", "sent", "queued", "scheduled", "first", "last"),
    *(
        "preemptions",
        "hits",
        "host_hits",
        "disk_hits",
        "shared_hits",
        "stored",
        "kept_tokens",
        "moves",
        "unmet",
        "was_passed",
    ),
)
_REPLICA_COLUMNS = (
    *("wake", "action", "clock", "step", "head", "tail", "waiting", "n_running", "n_rows", "load", "emitted"),
    *("round", "round_of", "round_start", "round_end", "round_own", "round_tokens", "round_most", "entry_of"),
    *("unheard", "port_out", "port_in", "n_slots", "oldest", "n_free", "up", "change", "fails", "lives"),
    *("executed", "prefilled", "passed_over", "crowded"),
    *("tier_free", "n_loras", "unsampled", "heard", "full", "sleeps"),
)
_SIZED_BY = {
    **dict.fromkeys(("running", "rows", "remaining_tokens", "held_tokens"), "row_base"),
    **dict.fromkeys(("slot_count", "slot_end", "slot_masked", "slot_waits", "slot_prompts"), "slot_base"),
    **dict.fromkeys(("batch_item", "batch_tokens", "batch_samples", "batch_padded"), "batch_base"),
    **dict.fromkeys(("free_next", "free_prev", "refs", "hash", "twin"), "base"),
    "loras": "lora_base",
    **dict.fromkeys(("hash_key", "hash_block"), "hash_base"),
    **dict.fromkeys(("tier_key", "tier_next", "tier_prev", "tier_ready"), "tier_base"),
    **dict.fromkeys(("tier_hash_key", "tier_hash_node"), "tier_hash_base"),
}
_NONE = frozenset(
    (
        "replica",
        "row",
        "apart_head",
        "next",
        "before",
        "sent",
        "queued",
        "scheduled",
        "first",
        "last",
        "head",
        "tail",
        "emitted",
        "twin",
    )
)
