"""The loop's arrays before its first event: a workload and a fleet as columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from presim.errors import InputError
from presim.serving.engines import changing, lives
from presim.serving.engines.engine import ROLES, ROUTERS, Apart, Fleet, Limits, Replica, StepTimes
from presim.serving.fast import serving_state
from presim.serving.workloads.workload import Workload

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_LOG_ROWS = 200_000
_PAIR_ROWS = 400_000
_EVENT_ROWS = 1000


def start(
    workload: Workload, fleet: Fleet, *, record: bool, longest: int | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The loop's arrays before its first event. ``longest``: tokens of a request at most, where more come later."""
    _check(workload, fleet)
    program = _program(workload, fleet, record, longest)
    return program, changing.state_columns(workload, fleet, program, log_rows(fleet, record))


def _check(workload: Workload, fleet: Fleet) -> None:
    if (workload.grammar_ns >= 0).any():
        if fleet.life is not None or any(replica.limits.pipeline_parallel_size > 1 for replica in fleet.replicas):
            raise InputError(
                "structured output is modelled on engines of one pipeline stage that neither scale nor fail; leave out "
                "--structured, or --pp, --autoscale and --mtbf"
            )
        if any(replica.group >= 0 for replica in fleet.replicas):
            raise InputError(
                "structured output with data-parallel ranks is not modelled; leave out --structured or --dp"
            )
    limits = [replica.limits.max_loras for replica in fleet.replicas]
    if (workload.adapter > 0).any() and min(limits) < 1:
        raise InputError("the workload has LoRA adapters, but an engine takes none; give --max-loras")
    if len(fleet.replicas) > 4096:
        raise InputError(f"{len(fleet.replicas)} replicas are more than the 4,096 that a fleet may have; name fewer")


def _firsts(sizes: Any) -> Ints:
    return np.concatenate([[0], np.cumsum(np.array(sizes, np.int64))]).astype(np.int64)


def _knobs(replica: Replica, table: int) -> list[int]:
    limits = replica.limits
    knobs = [0] * serving_state.KNOBS
    knobs[serving_state.BLOCK] = limits.block_size
    knobs[serving_state.BLOCKS] = limits.num_gpu_blocks
    knobs[serving_state.MAX_SEQS] = limits.max_num_seqs
    knobs[serving_state.BUDGET] = limits.max_num_batched_tokens
    knobs[serving_state.MAX_LEN] = limits.max_model_len
    knobs[serving_state.DEPTH] = limits.depth
    knobs[serving_state.ASYNC] = int(limits.async_scheduling)
    knobs[serving_state.BY_PRIORITY] = int(limits.policy == "priority")
    knobs[serving_state.CACHING] = int(limits.enable_prefix_caching)
    knobs[serving_state.RESERVE] = int(limits.scheduler_reserve_full_isl)
    knobs[serving_state.WATERMARK] = int(limits.watermark * limits.num_gpu_blocks)
    knobs[serving_state.LONG] = limits.long_prefill_token_threshold
    knobs[serving_state.STAGES] = limits.pipeline_parallel_size
    knobs[serving_state.COST] = table
    knobs[serving_state.ROLE] = ROLES[replica.role]
    knobs[serving_state.DRAFT], knobs[serving_state.ACCEPT] = limits.draft_tokens, round(limits.acceptance * 1e6)
    knobs[serving_state.LOOKAHEAD], knobs[serving_state.DRAFT_SLOTS] = limits.lookahead, limits.draft_slots
    knobs[serving_state.HASH_AHEAD], knobs[serving_state.MAX_LORAS] = int(limits.sees_next_token), limits.max_loras
    knobs[serving_state.GRAPHS] = limits.graph_tokens
    knobs[serving_state.LISTEN] = limits.scheduler_recv_interval
    knobs[serving_state.INTERVAL] = limits.prefill_schedule_interval
    knobs[serving_state.HOST_BLOCKS], knobs[serving_state.DISK_BLOCKS] = (
        limits.tiers.host_blocks,
        limits.tiers.disk_blocks,
    )
    knobs[serving_state.HOST_BLOCK_NS], knobs[serving_state.DISK_BLOCK_NS] = (
        limits.tiers.host_block_ns,
        limits.tiers.disk_block_ns,
    )
    knobs[serving_state.TIER_NS], knobs[serving_state.SHARED_BLOCK_NS] = (
        limits.tiers.latency_ns,
        limits.tiers.shared_block_ns,
    )
    if limits.scheduler == "sglang" and replica.role != "decode" and limits.pipeline_parallel_size == 1:
        knobs[serving_state.SCHEDULER] = serving_state.SGLANG  # a decode engine's steps are the same in both
    knobs[serving_state.PROMPTS] = limits.max_prefill_tokens
    knobs[serving_state.BORN], knobs[serving_state.GONE] = replica.born_ns, replica.gone_ns
    return knobs


def _all_knobs(replicas: Sequence[Replica], places: dict[int, int]) -> list[int]:
    groups = [replica.group for replica in replicas]
    knobs: list[int] = []
    for replica_index, replica in enumerate(replicas):
        replica_knobs = _knobs(replica, places[id(replica.times)])
        steps_alone = replica.group < 0
        replica_knobs[serving_state.GROUP] = replica_index if steps_alone else groups.index(replica.group)
        replica_knobs[serving_state.MEMBERS] = 1 if steps_alone else groups.count(replica.group)
        knobs += replica_knobs
    return knobs


def _hash_places(limits: Limits) -> int:
    return _places(limits.num_gpu_blocks) if limits.enable_prefix_caching else 2


def _places(keys: int) -> int:
    """Size of a table of hashes for so many keys: at most half full."""
    return 1 << max(4, (2 * keys - 1).bit_length()) if keys else 2


def _program(workload: Workload, fleet: Fleet, record: bool, longest: int | None = None) -> dict[str, Any]:
    replicas = fleet.replicas
    tables: list[StepTimes] = list({id(replica.times): replica.times for replica in replicas}.values())
    places = {id(times): table_index for table_index, times in enumerate(tables)}
    life, lifetimes = lives.program(fleet)
    fleet_knobs = _fleet_knobs(workload, fleet, record)
    for knob, value in (log_rows(fleet, record) | life).items():
        fleet_knobs[knob] = value
    longest = longest or (int((workload.prompt + workload.output).max()) if len(workload) else 1)
    columns: dict[str, Any] = {
        "fleet_knobs": fleet_knobs,
        "knobs": _all_knobs(replicas, places),
        **_sizes([replica.limits for replica in replicas], longest, fleet.pool_blocks),
        **_requests(workload),
        "lifetimes": lifetimes,
        **_times(tables),
    }
    return {name: as_column(name, value) for name, value in columns.items()}


def _fleet_knobs(workload: Workload, fleet: Fleet, record: bool) -> list[int]:
    """The numbers of `presim.serving.fast.serving_state` that hold for all engines."""
    knobs = [0] * serving_state.WHOLE
    knobs[serving_state.CONCURRENCY], knobs[serving_state.ROUTER] = workload.concurrency, ROUTERS[fleet.router]
    knobs[serving_state.SEGMENT], knobs[serving_state.RECORD] = workload.segment_tokens, int(record)
    knobs[serving_state.INPUT_NS], knobs[serving_state.OUTPUT_NS] = fleet.input_ns, fleet.output_ns
    knobs[serving_state.INPUT_TOKEN_NS], knobs[serving_state.INPUT_LOAD_NS] = fleet.input_token_ns, fleet.input_load_ns
    knobs[serving_state.KV_BYTES], knobs[serving_state.PORT_NS] = fleet.kv_token_bytes, fleet.port_ns
    knobs[serving_state.PORT_BPS] = int(min(fleet.port_bytes_per_s, 1e15))
    knobs[serving_state.REPLICAS] = len(fleet.replicas)
    knobs[serving_state.DELAY_WORKERS] = workload.delay_workers
    knobs[serving_state.POOL_BLOCKS], knobs[serving_state.POOL_BLOCK_NS] = fleet.pool_blocks, fleet.pool_block_ns
    return knobs


def _sizes(limits: Sequence[Limits], longest: int, pool_blocks: int) -> dict[str, Any]:
    """Where each engine's part of a column begins, and its KV groups. ``longest``: tokens of a sequence."""
    tier_sizes = [*(size for limit in limits for size in limit.tiers.sizes), pool_blocks]
    return {
        "base": _firsts([limit.num_gpu_blocks + 1 for limit in limits]),
        "row_base": _firsts([limit.max_num_seqs for limit in limits]),
        "batch_base": _firsts([limit.max_num_seqs * limit.depth for limit in limits]),
        "slot_base": _firsts([limit.depth for limit in limits]),
        "hash_base": _firsts([_hash_places(limit) for limit in limits]),
        "lora_base": _firsts([max(limit.max_loras, 1) for limit in limits]),
        "tier_base": _firsts([size + 1 for size in tier_sizes]),
        "tier_hash_base": _firsts(list(map(_places, tier_sizes))),
        "row_blocks": [
            max(
                -(-min(longest + 2 * limit.draft_tokens, limit.max_model_len) // limit.block_size) + 1
                for limit in limits
            )
        ],
        "apart_first": _firsts([len(limit.apart) for limit in limits]),
        "apart_groups": [number for limit in limits for group in limit.apart for number in _apart_row(group)],
    }


def _requests(workload: Workload) -> dict[str, Any]:
    """What each request brings."""
    return {
        "arrival": workload.arrival_ns,
        "prompt": workload.prompt,
        "output": workload.output,
        "rank": _ranks(workload),
        "stream": _apart(workload.stream, workload.adapter),
        "segment_first": workload.segment_first,
        "segments": _apart(workload.segments, np.repeat(workload.adapter, np.diff(workload.segment_first))),
        "adapter": workload.adapter,
        "grammar_ns": workload.grammar_ns,
        "delay": workload.delay_ns,
        **_children(workload),
    }


def _times(tables: Sequence[StepTimes]) -> dict[str, Any]:
    """The step times of all kinds of engines, one behind the other."""
    loras = [_or_zeros(t.lora_ns, t) for t in tables]
    return {
        "token_first": _firsts([len(times.token_ns) for times in tables]),
        "token_ns": np.concatenate([times.token_ns for times in tables]),
        **{
            name: np.concatenate([_or_zeros(getattr(times, name), times) for times in tables])
            for name in ("prompt_launch_ns", "decode_launch_ns")
        },
        "shared_first": _firsts([len(times.shared_ns) for times in tables]),
        "shared_ns": np.concatenate([times.shared_ns for times in tables]),
        "head_first": _firsts([len(times.head_ns) for times in tables]),
        "head_ns": np.concatenate([times.head_ns for times in tables]),
        "lora_first": _firsts([len(adapters) for adapters in loras]),
        "lora_ns": np.concatenate(loras),
        "prefill_log": np.concatenate([np.log2(times.prefill_ns).ravel() for times in tables]),
        "decode_log": np.concatenate([np.log2(times.decode_ns).ravel() for times in tables]),
        "costs": [cost for t in tables for cost in (t.host_ns, t.host_seq_ns, t.back_ns, t.back_seq_ns, t.mask_ns)],
    }


_KINDS = {
    "full": serving_state.ALL_TOKENS,
    "sliding": serving_state.SLIDING,
    "chunked": serving_state.CHUNKED,
    "state": serving_state.STATES_KEPT,
}


def _apart_row(group: Apart) -> list[int]:
    row = [0] * serving_state.APART_COLUMNS
    row[serving_state.APART_KIND], row[serving_state.APART_GROUPS] = _KINDS[group.kind], group.groups
    row[serving_state.APART_BLOCK], row[serving_state.APART_WINDOW], row[serving_state.APART_CAP] = (
        group.block_size,
        group.window,
        group.cap,
    )
    return row


def _or_zeros(table: Floats | None, times: StepTimes) -> Floats:
    """A table by tokens, of zeros where it takes no time."""
    return np.zeros(len(times.token_ns)) if table is None else table


def _apart(ids: Ints, adapters: Ints) -> Ints:
    """Ids of contents, others for each adapter: keys and values depend on it."""
    if not adapters.any():
        return ids
    pairs = np.stack([adapters, ids])
    content_ids: Ints = np.unique(pairs, axis=1, return_inverse=True)[1]
    return content_ids.reshape(-1).astype(np.int64)


def log_rows(fleet: Fleet, record: bool) -> dict[int, int]:
    """Rows of the logs, by the places of `Program.fleet_knobs` that say so."""
    widest = sum(replica.limits.max_num_seqs for replica in fleet.replicas)
    return {
        serving_state.LOG_ROWS: _LOG_ROWS,
        serving_state.GAP_ROWS: _PAIR_ROWS + widest,
        serving_state.SCHEDULE_ROWS: 2_000_000 if record else 1,
        serving_state.EVENT_ROWS: _EVENT_ROWS + 4 * len(fleet.replicas),
    }


def as_column(name: str, value: Any) -> Any:
    """A column of the loop as the compiled one takes it: contiguous, writable, of its type."""
    from presim.serving.fast.compiled_scheduler import FLOATS

    column = np.ascontiguousarray(value, np.float64 if name in FLOATS else np.int64)
    return column if column.flags.writeable else column.copy()  # the workload's own where it can be: no copy


def _ranks(workload: Workload) -> Ints:
    order = np.lexsort((np.arange(len(workload)), workload.arrival_ns, workload.priority))
    ranks = np.empty(len(workload), np.int64)
    ranks[order] = np.arange(len(workload))
    return ranks


def _children(workload: Workload) -> dict[str, Ints]:
    """Requests that wait for others, by those they wait for, in the order of the workload."""
    waiting, awaited = workload.dependencies()
    order = np.argsort(awaited, kind="stable")
    return {"child_first": _firsts(np.bincount(awaited, minlength=len(workload))), "children": waiting[order]}
