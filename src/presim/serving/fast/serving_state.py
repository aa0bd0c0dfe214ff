"""Arrays that the loop changes, and the indices into them and into `presim.serving.fast.serving_program`.

Everything is a flat int64 array (float64 for tables of times), so that the same source runs compiled and uncompiled.
Arrays of a replica are `stride` apart; -1 means none, or not yet.
"""

from __future__ import annotations

from typing import NamedTuple

from presim.serving.fast.serving_program import Column as Column
from presim.serving.fast.serving_program import Program as Program
from presim.serving.fast.serving_program import Table as Table

# Knobs of one replica, at Program.knobs[replica * KNOBS + …].
BLOCK = 0  # tokens per block
BLOCKS = 1  # blocks of the pool including the null block, as vLLM's num_gpu_blocks
MAX_SEQS = 2  # max_num_seqs
BUDGET = 3  # max_num_batched_tokens
MAX_LEN = 4  # max_model_len
DEPTH = 5  # batches in flight: 1 synchronous, 2 asynchronous, pipeline stages (+ 1)
ASYNC = 6  # 1: placeholders for tokens not yet returned
BY_PRIORITY = 7  # 1: policy "priority", 0: "fcfs"
CACHING = 8  # 1: prefix caching
RESERVE = 9  # 1: scheduler_reserve_full_isl
WATERMARK = 10  # blocks to leave free when admitting a request while others run
LONG = 11  # long_prefill_token_threshold; 0: none
STAGES = 12  # pipeline stages
COST = 13  # number of its table of times
ROLE = 14  # ANY, PREFILL, DECODE
BORN = 15  # ns: start of service
GONE = 16  # ns: end of accepting requests
LISTEN = 17  # steps between polls for new requests while there is work; 1: before each step
DRAFT = 18  # drafted tokens per decode; 0: none
ACCEPT = 19  # acceptance probability of a drafted token, in millionths
GROUP = 20  # first data-parallel rank of the group that steps together
MEMBERS = 21  # size of that group; 1: steps alone
HOST_BLOCKS = 22  # capacity of the host-memory tier, in blocks; 0: none
DISK_BLOCKS = 23
HOST_BLOCK_NS = 24  # ns to load a block from host memory; the next knob: from disk to host memory
DISK_BLOCK_NS = 25
TIER_NS = 26  # latency of bringing blocks back
LOOKAHEAD = 27  # blocks are kept for so many tokens beyond a step's: those that the drafter computes itself
HASH_AHEAD = 28  # 1: a cached block is known by the token behind it, too, which drafters of EAGLE's kind see
DRAFT_SLOTS = 29  # of the token budget that the drafter takes for each request
MAX_LORAS = 30  # adapters of the running requests together; 0: none are limited
SCHEDULER = 31  # VLLM, SGLANG
PROMPTS = 32  # SGLang's max_prefill_tokens; its chunked_prefill_size is BUDGET
GRAPHS = 33  # tokens of the largest CUDA graph; 0: there is none
INTERVAL = 34  # vLLM's prefill_schedule_interval: steps from one with prompts to the next; 1: no such limit
SHARED_BLOCK_NS = 35  # ns of a block over its network ports, to or from the pool that all replicas share
KNOBS = 36
STAGES_AT_MOST = 64  # pipeline stages of a replica

VLLM = 0
SGLANG = 1

ANY = 0
PREFILL = 1
DECODE = 2

# Global knobs, at Program.fleet_knobs.
CONCURRENCY = 0  # most requests in flight; 0: no limit
ROUTER = 1  # ROUND_ROBIN …
SEED = 2
SEGMENT = 3  # tokens per id in `segments`
RECORD = 4  # 1: keep each step's schedule
INPUT_NS = 5  # from the client to the engine's queue
OUTPUT_NS = 6  # from the engine's output to the client
KV_BYTES = 7  # KV bytes per token, moved from prefill to decode
PORT_BPS = 8  # bandwidth of one replica's port in each direction
PORT_NS = 9  # latency of a transfer
DYNAMIC = 10  # 1: replicas start, stop or fail during the run
START_NS = 11  # from requesting (or failure of) a replica to its first request
DRAIN_NS = 12  # longest time that a draining replica keeps its requests
AFTER_FAILURE = 13  # RESUME …: policy for a failed replica's requests
DETECT_NS = 14  # from a failure to rerouting its requests
LIFETIMES = 15  # entries per replica in `lifetimes`; 0: no failures
SCALE_ON = 16  # SCALE_QUEUE, SCALE_USE; 0: no autoscaling
TARGET = 17  # target of SCALE_ON, in millionths
LEAST = 18  # engines
MOST = 19
INTERVAL_NS = 20  # between the autoscaler's looks
COOLDOWN_NS = 21  # that fewer engines have to suffice before any goes
REPLICAS = 22
LOG_ROWS = 23  # rows that `log` has room for; likewise the others
GAP_ROWS = 24
SCHEDULE_ROWS = 25
EVENT_ROWS = 26
INPUT_TOKEN_NS = 27  # and for each token of the prompt
INPUT_LOAD_NS = 28  # and for each request of the replica that has not ended
POOL_BLOCKS = 29  # capacity of the pool that all replicas share, in blocks; 0: there is none
POOL_BLOCK_NS = 30  # ns of a block over the pool's own links; 0: they are no limit
DELAY_WORKERS = 31  # delays before follow-up requests that pass at once; 0: no limit
WHOLE = 32

RESUME = 0  # continue on another replica; delivered tokens become part of the prompt
RESTART = 1  # from the beginning
LOSE = 2

SCALE_QUEUE = 1  # waiting requests per engine
SCALE_USE = 2  # requests per engine / max_num_seqs

ROUND_ROBIN = 0
LEAST_LOADED = 1
POWER_OF_TWO = 2
PREFIX = 3
SESSION = 4

# Constants of a table of times, at Program.costs[table * COSTS + …].
HOST_NS = 0  # scheduling and input preparation of a step
HOST_SEQ_NS = 1  # the same, per sequence
BACK_NS = 2  # processing a step's output
BACK_SEQ_NS = 3
MASK_NS = 4  # a row of the mask by which a grammar allows tokens
COSTS = 5

# Layers without a block table, at Program.apart_groups[row * APART_COLUMNS + …] (`presim.serving.fast.windows`).
APART_KIND = 0  # ALL_TOKENS, SLIDING, CHUNKED, STATES_KEPT
APART_GROUPS = 1  # how many such groups
APART_BLOCK = 2  # tokens of a page
APART_WINDOW = 3  # tokens looked back on; of states: pages of a sequence that decodes
APART_CAP = 4  # pages of a request in one group at most
APART_COLUMNS = 5

ALL_TOKENS = 0
SLIDING = 1
CHUNKED = 2
STATES_KEPT = 3

# What a pass over the waiting requests has reserved or may still take, at State.spent[replica * SPENT + …] (SGLang).
TOTAL = 0  # tokens that running and admitted requests will take until they end
CURRENT = 1  # tokens that admitted requests take in this step
INPUT = 2  # tokens left of max_prefill_tokens
CHUNK = 3  # tokens left of chunked_prefill_size
STATES = 4  # entries of `remaining_tokens` and `held_tokens`; -1: not listed yet
SPENT = 5

# Grids of the tables of attention: powers of two, from 1.
GRID = 21

# Status of a request.
UNBORN = 0
WAITING = 1
RUNNING = 2
PREEMPTED = 3
FINISHED = 4
MOVING = 5  # between prefill and decode
REFUSED = 6  # longer than the engine takes
LOST = 7  # with its replica
REROUTED = 8  # its replica failed or went: on its way back to the router
PARKED = 9  # its keys and values wait for a replica that decodes
COMPILING = 10  # in its engine's queue, until its grammar is compiled

# Status of a replica.
SERVING = 0
ABSENT = 1
STARTING = 2
DRAINING = 3  # accepts no requests, finishes running ones
FAILED = 4  # restarting

# Indices into State.counters.
PENDING = 0  # requests in the heap of arrivals
IN_FLIGHT = 1  # requests sent and not finished
HELD_HEAD = 2  # first request held back by the concurrency limit
HELD_TAIL = 3
STEPS = 4  # entries of the log
PAIRS = 5  # entries of gaps
ENTRIES = 6  # entries of the schedule
TURN = 7  # round-robin position
DRAWN = 8  # state of the router's random numbers
OPEN = 9  # requests neither finished nor refused
NOW = 10
CHANGE = 11  # ns: next change of a replica or next run of the autoscaler
TICK = 12  # ns: next run of the autoscaler
PARKED_HEAD = 13  # first request held at the router
PARKED_TAIL = 14
LOW_SINCE = 15  # ns: since when fewer engines suffice; -1: not now
LOW_MOST = 16  # most engines needed since then
EVENTS = 17  # entries of events
REDONE = 18  # computed tokens that were lost
DEMOTED = 19  # blocks evicted from GPUs to a tier
DISK_LOST = 20  # blocks evicted from the last tier
POOL_STORED = 21  # blocks written to the shared pool
POOL_READ_FREE = 22  # ns: when the shared pool's links are free to read
POOL_WRITE_FREE = 23
COUNTERS = 24

FOREVER = 1 << 62
IDLE = 0
SCHEDULE = 1
UPDATE = 2

# Columns of the log of steps, at State.log[entry * LOG + …].
LOG_REPLICA = 0
LOG_CHOSEN = 1  # when it was scheduled
LOG_START = 2  # on the device
LOG_END = 3
LOG_TOKENS = 4
LOG_PREFILL = 5  # prompt tokens among them
LOG_SEQS = 6
LOG_RUNNING = 7
LOG_WAITING = 8
LOG_USED = 9  # blocks
LOG_PREEMPTED = 10
LOG_CONTEXT = 11  # context tokens of the step's decodes
LOG = 12


class ServingState(NamedTuple):
    """Arrays that change while the loop runs."""

    counters: Column
    heap_time: Column  # future arrivals
    heap_item: Column
    # Requests.
    status: Column
    replica: Column
    computed: Column
    tokens: Column  # prompt and output tokens so far
    placeholders: Column
    decodes: Column  # 1: decoding, after its first sampled token
    in_flight: Column
    stale: Column
    blocks: Column  # number of blocks in its row
    cached: Column  # number of its blocks in the cache
    row: Column
    apart_pages: Column  # pages in groups without a block table
    apart_head: Column  # the first of them; the next one is free_next
    reach: Column  # tokens for which it has had such pages
    eligible: Column  # first step in which it may decode
    sampled_at: Column  # ns: when its newest token is sampled, where it passes pipeline stages
    loaded: Column  # tokens with keys and values from a prefill replica
    next: Column  # next request in its queue
    before: Column
    sent: Column  # ns: when the client sent it
    queued: Column  # ns: when it reached the engine
    scheduled: Column  # ns: when it was first scheduled
    first: Column  # ns: first token at the client
    last: Column  # ns: last token so far
    preemptions: Column
    hits: Column  # tokens of its prompt found in the cache
    host_hits: Column  # tokens that came from host memory
    disk_hits: Column
    shared_hits: Column  # tokens that came from the shared pool
    stored: Column  # blocks of its prompt that were written to the shared pool
    kept_tokens: Column  # output tokens delivered by replicas that are gone
    moves: Column  # number of times it lost its replica
    unmet: Column  # requests that it waits for and that have not ended
    tool_free: Column  # [worker] ns: when each of those who take up delays is free, a heap; empty: there is no limit
    was_passed: Column  # 1: waits, and the scheduler had to pass over it once
    # Replicas.
    wake: Column  # ns: next action of the engine
    action: Column
    clock: Column  # ns: time of its host
    step: Column  # schedule() calls
    round: Column  # last started round of a group, stored at its first rank
    round_of: Column  # last round that the rank took part in
    round_start: Column
    round_end: Column
    round_own: Column  # ns of the slowest rank, without experts
    round_tokens: Column  # of all ranks
    round_most: Column  # of the rank with most
    entry_of: Column  # log entry of its last step
    unheard: Column  # steps since its last poll, if LISTEN > 1
    heard: Column  # ns: of its last poll (SGLang)
    executed: Column  # steps that had tokens, if INTERVAL > 1
    prefilled: Column  # how many there were with the last one that had prompts
    passed_over: Column  # waiting requests that the scheduler had to pass over once, if INTERVAL > 1
    crowded: Column  # 1: the last step that might take prompts left others waiting
    full: Column  # 1: admits no one until a request leaves (SGLang's batch_is_full)
    spent: Column  # [replica * SPENT + …]
    remaining_tokens: Column  # [row_base + place] output tokens that a request still gets, ascending
    held_tokens: Column  # [row_base + place] its tokens now
    head: Column  # first waiting request
    tail: Column
    waiting: Column
    running: Column  # [row_base + place]
    n_running: Column
    rows: Column  # [row_base + place] stack of free rows
    n_rows: Column
    load: Column  # unfinished requests sent to it
    stage_free: Column  # [replica * STAGES_AT_MOST + stage]
    emitted: Column  # ns: of its last output
    port_out: Column  # ns: when its output port is free
    port_in: Column
    tier_free: Column  # ns: when its link from host memory is free
    up: Column  # SERVING …
    change: Column  # ns: when it has started, or must be gone
    fails: Column  # ns
    lives: Column  # lifetimes used so far
    loras: Column  # [lora_base + place] adapters of the running requests, while a step is scheduled
    n_loras: Column
    unsampled: Column  # 1: its newest batch waits for the tokens of the one before, which its grammars need
    sleeps: Column  # 1: sleeps when its oldest batch is back, because its scheduler had nothing
    # Batches in flight.
    slot_count: Column  # [slot_base + place] requests; 0: an empty batch (`presim.serving.fast.stage_batches`)
    slot_end: Column
    slot_masked: Column  # rows of the mask by which grammars allow tokens
    slot_prompts: Column  # 1: prompts (SGLang, whose batches are of prompts or of decodes)
    slot_waits: Column  # 1: the mask needs tokens that are in flight
    n_slots: Column  # [replica]
    oldest: Column  # [replica] slot of the oldest batch
    batch_item: Column  # [batch_base + place * max_seqs + i] request
    batch_tokens: Column
    batch_samples: Column  # 1: gives a token; more: drafted ones are verified
    batch_padded: Column  # 1: its drafted tokens are padding, of which none is accepted
    # Blocks.
    table: Column  # [row * row_blocks + i] block
    free_next: Column
    free_prev: Column
    n_free: Column  # [replica]
    refs: Column
    hash: Column  # [block] key of its content; 0: not cached
    twin: Column  # [block] next block with equal content
    hash_key: Column
    hash_block: Column
    # Tiers of cached blocks.
    tier_count: Column  # [replica * 2 + tier]; one more for the shared pool
    tier_key: Column  # [node]
    tier_next: Column
    tier_prev: Column
    tier_hash_key: Column
    tier_hash_node: Column
    tier_ready: Column  # [node] ns: when a block of the shared pool can be read
    # Outputs.
    log: Column
    gaps: Column  # [entry * 2] (ns between tokens, count)
    events: Column  # [entry * 3] (ns, first replica of an engine, new state)
    schedule: Column  # [entry * 3] entry of the log, request, tokens
