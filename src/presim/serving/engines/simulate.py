"""Run a workload on a fleet: build the loop's arrays, run it, and give back what happened to each request and step."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.serving.engines import lives
from presim.serving.engines.engine import ROLES, ROUTERS, Fleet, Limits, Replica, StepTimes
from presim.serving.fast import state
from presim.serving.workloads.workload import Workload

Ints = NDArray[np.int64]

_LOG_ROWS = 200_000
_PAIR_ROWS = 400_000
_EVENT_ROWS = 1000
_STAGES = 64  # as `presim.serving.fast.loop` has it


@dataclasses.dataclass(frozen=True, eq=False)
class Served:
    """What happened; times in ns since the workload's beginning, -1 where nothing did."""

    workload: Workload
    sent: Ints
    queued: Ints
    scheduled: Ints
    first: Ints  # first token at the client
    last: Ints  # last token
    status: Ints
    replica: Ints
    preemptions: Ints
    hits: Ints  # tokens of prompts found in a GPU's cache
    host_hits: Ints  # in host memory
    disk_hits: Ints
    steps: Ints  # [step, column of `state.LOG_…`]
    gaps: Ints  # [entry, (ns between two tokens, how many)]
    schedule: Ints  # [entry, (step, request, tokens)], where it was recorded
    moves: Ints  # times that a request lost its replica
    events: Ints  # [entry, (ns, engine, what it is from then on: `state.SERVING` …)]
    redone: int  # tokens that were computed and lost with a replica
    demoted: int  # blocks that went from GPUs to host memory or disk
    dropped: int  # blocks that the last tier had no room for

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Which requests came to their end."""
        done: NDArray[np.bool_] = self.status == state.FINISHED
        return done


def simulate(workload: Workload, fleet: Fleet, *, record: bool = False, compiled: bool = True) -> Served:
    """Serve a workload. ``record`` keeps each step's schedule; uncompiled is the same, slowly."""
    from presim.serving.fast import loop

    program, columns = start(workload, fleet, record=record)
    if compiled:
        from presim.serving.fast.compiled import compiled_run

        run: Any = compiled_run()
    else:
        run = loop.run
        program = {name: column.tolist() for name, column in program.items()}
        columns = {name: column.tolist() for name, column in columns.items()}
    kept: dict[str, list[Ints]] = {"log": [], "gaps": [], "schedule": [], "events": []}
    code = 1
    before = -1
    while code == 1:
        code = run(state.Program(**program), state.State(**columns))
        before = _drain(columns, kept, before)
    if code == 2:
        raise AssertionError("the loop stands still with requests left; test_simulate.py has every way that is known")
    out = {name: np.array(columns[name], np.int64) for name in _PER_REQUEST}
    return Served(
        workload,
        **out,
        steps=_joined(kept["log"]).reshape(-1, state.LOG),
        gaps=_joined(kept["gaps"]).reshape(-1, 2),
        schedule=_joined(kept["schedule"]).reshape(-1, 3),
        events=_joined(kept["events"]).reshape(-1, 3),
        redone=int(columns["counters"][state.REDONE]),
        demoted=int(columns["counters"][state.DEMOTED]),
        dropped=int(columns["counters"][state.DISK_LOST]),
    )


def _joined(pieces: list[Ints]) -> Ints:
    """All pieces in one array; each is freed as soon as it is copied."""
    whole = np.empty(sum(map(len, pieces)), np.int64)
    end = len(whole)
    while pieces:
        piece = pieces.pop()
        whole[end - len(piece) : end] = piece
        end -= len(piece)
    return whole


_PER_REQUEST = (
    "sent",
    "queued",
    "scheduled",
    "first",
    "last",
    "status",
    "replica",
    "preemptions",
    "hits",
    "host_hits",
    "disk_hits",
    "moves",
)


def start(
    workload: Workload, fleet: Fleet, *, record: bool, longest: int | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The loop's arrays before its first event. ``longest``: tokens of a request at most, where more come later."""
    _check(workload, fleet)
    program = _program(workload, fleet, record, longest)
    return program, _state(workload, fleet, program, record)


def request_columns() -> list[tuple[str, int]]:
    """Columns that have an entry for each request, with what stands in them at first."""
    return [(name, -1 if name in _NONE else 0) for name in _REQUEST_COLUMNS]


def _drain(columns: dict[str, Any], kept: dict[str, list[Ints]], before: int) -> int:
    """Keep what the logs hold and empty them; returns how many steps were logged so far, for the schedule's numbers."""
    counters = columns["counters"]
    logged = 0 if before < 0 else before
    for name, counter, width in (
        ("log", state.STEPS, state.LOG),
        ("gaps", state.PAIRS, 2),
        ("schedule", state.ENTRIES, 3),
        ("events", state.EVENTS, 3),
    ):
        rows = np.array(columns[name][: counters[counter] * width], np.int64)
        if name == "schedule":
            rows[::3] += logged
        kept[name].append(rows)
    logged += counters[state.STEPS]
    counters[state.STEPS] = counters[state.PAIRS] = counters[state.ENTRIES] = counters[state.EVENTS] = 0
    return int(logged)


def _check(workload: Workload, fleet: Fleet) -> None:
    sizes = {replica.limits.block_size for replica in fleet.replicas}
    if any(workload.segment_tokens % size for size in sizes):
        raise InputError(
            f"prefixes are shared in pieces of {workload.segment_tokens} tokens, which are no whole blocks of "
            f"{min(sizes)} tokens; choose another --block-size"
        )
    if len(fleet.replicas) > 4096:
        raise InputError(f"{len(fleet.replicas)} replicas are more than the 4,096 that a fleet may have; name fewer")


def _firsts(sizes: Any) -> Ints:
    return np.concatenate([[0], np.cumsum(np.array(sizes, np.int64))]).astype(np.int64)


def _knobs(replica: Replica, table: int) -> list[int]:
    limits = replica.limits
    knobs = [0] * state.KNOBS
    knobs[state.BLOCK] = limits.block_size
    knobs[state.BLOCKS] = limits.num_gpu_blocks
    knobs[state.MAX_SEQS] = limits.max_num_seqs
    knobs[state.BUDGET] = limits.max_num_batched_tokens
    knobs[state.MAX_LEN] = limits.max_model_len
    knobs[state.DEPTH] = limits.depth
    knobs[state.ASYNC] = int(limits.async_scheduling)
    knobs[state.BY_PRIORITY] = int(limits.policy == "priority")
    knobs[state.CACHING] = int(limits.enable_prefix_caching)
    knobs[state.RESERVE] = int(limits.scheduler_reserve_full_isl)
    knobs[state.WATERMARK] = int(limits.watermark * limits.num_gpu_blocks)
    knobs[state.LONG] = limits.long_prefill_token_threshold
    knobs[state.STAGES] = limits.pipeline_parallel_size
    knobs[state.COST] = table
    knobs[state.ROLE] = ROLES[replica.role]
    knobs[state.DRAFT], knobs[state.ACCEPT] = limits.draft_tokens, round(limits.acceptance * 1e6)
    knobs[state.LISTEN] = limits.scheduler_recv_interval
    knobs[state.HOST_BLOCKS], knobs[state.DISK_BLOCKS] = limits.tiers.host_blocks, limits.tiers.disk_blocks
    knobs[state.HOST_BLOCK_NS], knobs[state.DISK_BLOCK_NS] = limits.tiers.host_block_ns, limits.tiers.disk_block_ns
    knobs[state.TIER_NS] = limits.tiers.latency_ns
    knobs[state.BORN], knobs[state.GONE] = replica.born_ns, replica.gone_ns
    return knobs


def _all_knobs(replicas: Sequence[Replica], places: dict[int, int]) -> list[int]:
    groups = [replica.group for replica in replicas]
    knobs: list[int] = []
    for place, replica in enumerate(replicas):
        own = _knobs(replica, places[id(replica.times)])
        alone = replica.group < 0
        own[state.GROUP] = place if alone else groups.index(replica.group)
        own[state.MEMBERS] = 1 if alone else groups.count(replica.group)
        knobs += own
    return knobs


def _hash_places(limits: Limits) -> int:
    return _places(limits.num_gpu_blocks) if limits.enable_prefix_caching else 2


def _places(keys: int) -> int:
    """Size of a table of hashes for so many keys: at most half full."""
    return 1 << max(4, (2 * keys - 1).bit_length()) if keys else 2


def _program(workload: Workload, fleet: Fleet, record: bool, longest: int | None = None) -> dict[str, Any]:
    replicas = fleet.replicas
    tables: list[StepTimes] = list({id(replica.times): replica.times for replica in replicas}.values())
    places = {id(times): place for place, times in enumerate(tables)}
    whole = [0] * state.WHOLE
    whole[state.CONCURRENCY], whole[state.ROUTER] = workload.concurrency, ROUTERS[fleet.router]
    whole[state.SEGMENT], whole[state.RECORD] = workload.segment_tokens, int(record)
    whole[state.INPUT_NS], whole[state.OUTPUT_NS] = fleet.input_ns, fleet.output_ns
    whole[state.KV_BYTES], whole[state.PORT_NS] = fleet.kv_token_bytes, fleet.port_ns
    whole[state.PORT_BPS] = int(min(fleet.port_bytes_per_s, 1e15))
    whole[state.REPLICAS] = len(replicas)
    for place, rows in _rows(fleet, record).items():
        whole[place] = rows
    changing, lifetimes = lives.program(fleet)
    for place, value in changing.items():
        whole[place] = value
    limits = [replica.limits for replica in replicas]
    longest = longest or (int((workload.prompt + workload.output).max()) if len(workload) else 1)
    columns: dict[str, Any] = {
        "whole": whole,
        "knobs": _all_knobs(replicas, places),
        "base": _firsts([each.num_gpu_blocks + 1 for each in limits]),
        "row_base": _firsts([each.max_num_seqs for each in limits]),
        "batch_base": _firsts([each.max_num_seqs * each.depth for each in limits]),
        "slot_base": _firsts([each.depth for each in limits]),
        "hash_base": _firsts([_hash_places(each) for each in limits]),
        "tier_base": _firsts([size + 1 for each in limits for size in each.tiers.sizes]),
        "tier_hash_base": _firsts([_places(size) for each in limits for size in each.tiers.sizes]),
        "row_blocks": [max(-(-min(longest, each.max_model_len) // each.block_size) + 1 for each in limits)],
        "arrival": workload.arrival_ns,
        "prompt": workload.prompt,
        "output": workload.output,
        "rank": _ranks(workload),
        "stream": workload.stream,
        "segment_first": workload.segment_first,
        "segments": workload.segments,
        "delay": workload.delay_ns,
        **_children(workload),
        "lifetimes": lifetimes,
        "token_first": _firsts([len(times.token_ns) for times in tables]),
        "token_ns": np.concatenate([times.token_ns for times in tables]),
        "shared_first": _firsts([len(times.shared_ns) for times in tables]),
        "shared_ns": np.concatenate([times.shared_ns for times in tables]),
        "head_first": _firsts([len(times.head_ns) for times in tables]),
        "head_ns": np.concatenate([times.head_ns for times in tables]),
        "prefill_log": np.concatenate([np.log2(times.prefill_ns).ravel() for times in tables]),
        "decode_log": np.concatenate([np.log2(times.decode_ns).ravel() for times in tables]),
        "costs": [cost for t in tables for cost in (t.host_ns, t.host_seq_ns, t.back_ns, t.back_seq_ns)],
    }
    return {name: _column(name, value) for name, value in columns.items()}


def _rows(fleet: Fleet, record: bool) -> dict[int, int]:
    """Rows of the logs, by the places of `Program.whole` that say so."""
    widest = sum(replica.limits.max_num_seqs for replica in fleet.replicas)
    return {
        state.LOG_ROWS: _LOG_ROWS,
        state.GAP_ROWS: _PAIR_ROWS + widest,
        state.SCHEDULE_ROWS: 2_000_000 if record else 1,
        state.EVENT_ROWS: _EVENT_ROWS + 4 * len(fleet.replicas),
    }


def _column(name: str, value: Any) -> Any:
    from presim.serving.fast.compiled import FLOATS

    return np.array(value, np.float64 if name in FLOATS else np.int64)


def _ranks(workload: Workload) -> Ints:
    order = np.lexsort((np.arange(len(workload)), workload.arrival_ns, workload.priority))
    ranks = np.empty(len(workload), np.int64)
    ranks[order] = np.arange(len(workload))
    return ranks


def _children(workload: Workload) -> dict[str, Ints]:
    first = np.full(len(workload), -1, np.int64)
    following = np.full(len(workload), -1, np.int64)
    for child in np.flatnonzero(workload.parent >= 0)[::-1]:
        following[child] = first[workload.parent[child]]
        first[workload.parent[child]] = child
    return {"child_first": first, "child_next": following, "is_child": (workload.parent >= 0).astype(np.int64)}


def _state(workload: Workload, fleet: Fleet, program: dict[str, Any], record: bool) -> dict[str, Any]:
    count, replicas = len(workload), len(fleet.replicas)
    starts = np.flatnonzero(workload.parent < 0)
    starts = starts[np.argsort(workload.arrival_ns[starts], kind="stable")]
    heap_time, heap_item = np.zeros(count + 2, np.int64), np.zeros(count + 2, np.int64)
    heap_time[: len(starts)], heap_item[: len(starts)] = workload.arrival_ns[starts], starts  # sorted: a heap
    counters = np.zeros(state.COUNTERS, np.int64)
    counters[state.PENDING], counters[state.OPEN], counters[state.DRAWN] = len(starts), count, fleet.seed + 1
    counters[state.HELD_HEAD] = counters[state.HELD_TAIL] = -1
    widest, rows = sum(replica.limits.max_num_seqs for replica in fleet.replicas), _rows(fleet, record)
    sizes = {
        **dict.fromkeys(_REQUEST_COLUMNS, count),
        **dict.fromkeys(_REPLICA_COLUMNS, replicas),
        **{name: int(program[base][-1]) for name, base in _SIZED_BY.items()},
        "table": widest * int(program["row_blocks"][0]),
        "stage_free": replicas * _STAGES,
        "tier_count": 2 * replicas,
        "log": rows[state.LOG_ROWS] * state.LOG,
        "gaps": rows[state.GAP_ROWS] * 2,
        "schedule": rows[state.SCHEDULE_ROWS] * 3,
        "events": rows[state.EVENT_ROWS] * 3,
    }
    columns: dict[str, Any] = {
        name: np.full(size, -1 if name in _NONE else 0, np.int64) for name, size in sizes.items()
    }
    columns |= {"counters": counters, "heap_time": heap_time, "heap_item": heap_item}
    columns["wake"][:] = state.FOREVER
    _fill_pools(fleet, program, columns)
    lives.fill(fleet, columns)
    return columns


def _fill_pools(fleet: Fleet, program: dict[str, Any], columns: dict[str, Any]) -> None:
    for place, replica in enumerate(fleet.replicas):
        first, end = (int(each) for each in program["base"][place : place + 2])
        columns["free_next"][first : end - 1] = np.arange(first + 1, end)
        columns["free_prev"][first + 1 : end] = np.arange(first, end - 1)
        columns["n_free"][place] = replica.limits.num_gpu_blocks - 1
        row, row_end = (int(each) for each in program["row_base"][place : place + 2])
        columns["rows"][row:row_end] = np.arange(row, row_end)[::-1]
        columns["n_rows"][place] = row_end - row
    for name in ("tier_next", "tier_prev"):
        columns[name][program["tier_base"][:-1]] = program["tier_base"][:-1]  # each sentinel alone


_REQUEST_COLUMNS = (
    *("status", "replica", "computed", "tokens", "placeholders", "in_flight", "stale", "blocks", "cached", "row"),
    *("decodes", "eligible", "loaded", "next", "before", "sent", "queued", "scheduled", "first", "last"),
    *("preemptions", "hits", "host_hits", "disk_hits", "kept", "moves"),
)
_REPLICA_COLUMNS = (
    *(
        "wake",
        "action",
        "clock",
        "step",
        "unheard",
        "head",
        "tail",
        "waiting",
        "n_running",
        "n_rows",
        "load",
        "emitted",
    ),
    *("round", "round_of", "round_start", "round_end", "round_own", "round_tokens", "entry_of"),
    *("unheard", "port_out", "port_in", "n_slots", "oldest", "n_free", "up", "change", "fails", "lives"),
    "tier_free",
)
_SIZED_BY = {
    **dict.fromkeys(("running", "rows"), "row_base"),
    **dict.fromkeys(("slot_count", "slot_end"), "slot_base"),
    **dict.fromkeys(("batch_item", "batch_tokens", "batch_samples"), "batch_base"),
    **dict.fromkeys(("free_next", "free_prev", "refs", "hash", "twin"), "base"),
    **dict.fromkeys(("hash_key", "hash_block"), "hash_base"),
    **dict.fromkeys(("tier_key", "tier_next", "tier_prev"), "tier_base"),
    **dict.fromkeys(("tier_hash_key", "tier_hash_node"), "tier_hash_base"),
}
_NONE = frozenset(
    (
        "replica",
        "row",
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
