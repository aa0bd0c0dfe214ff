"""Data-parallel ranks that share experts step together, because a layer's exchange needs all of them.

A round is one step of every rank that has work. A rank without work runs a dummy batch, as in vLLM
(`execute_dummy_batch`), so a request that reaches it waits for the end of the round. A round starts when all ranks of
the previous round are ready. It lasts as long as the slowest rank's own work plus the experts of all tokens. Where all
ranks run CUDA graphs, each is padded to the tokens of the fullest (vLLM 0.33's `sync_cudagraph_and_dp_padding`).
"""

from __future__ import annotations

from presim.serving.fast.serving_state import (
    COST,
    DEPTH,
    GRAPHS,
    GROUP,
    KNOBS,
    LOG,
    LOG_END,
    LOG_REPLICA,
    LOG_START,
    MEMBERS,
    STEPS,
    UPDATE,
    Program,
    ServingState,
)


def take_part(
    p: Program, s: ServingState, replica: int, now: int, ready: int, rank_ns: int, tokens: int
) -> tuple[int, int]:
    """Add a rank's step to a round; returns its start and end as known so far."""
    group = p.knobs[replica * KNOBS + GROUP]
    begun = s.round[group]
    was_in = s.round_of[replica] == begun - 1
    joins = s.round_of[replica] < begun and now < s.round_end[group] and (was_in or ready <= s.round_start[group])
    if joins:
        s.round_start[group] = max(s.round_start[group], ready)
        s.round_own[group] = max(s.round_own[group], rank_ns)
        s.round_tokens[group] += tokens
        s.round_most[group] = max(s.round_most[group], tokens)
    else:
        s.round[group] = begun + 1
        s.round_start[group] = max(ready, s.round_end[group])
        s.round_own[group] = rank_ns
        s.round_tokens[group] = tokens
        s.round_most[group] = tokens
    s.round_of[replica] = s.round[group]
    s.round_end[group] = s.round_start[group] + s.round_own[group] + shared_ns(p, s, group)
    if joins:
        postpone_round(p, s, replica, group)
    return s.round_start[group], s.round_end[group]


def own_ns(p: Program, replica: int, ns: int, launch: int, tokens: int) -> int:
    """Time of a rank's own work; longer if its host needs longer to launch all kernels, those of experts included."""
    cost = p.knobs[replica * KNOBS + COST]
    return max(ns, launch - int(p.shared_ns[p.shared_first[cost] + tokens]))


def shared_ns(p: Program, s: ServingState, group: int) -> int:
    """Time of the experts for the tokens of all ranks."""
    cost = p.knobs[group * KNOBS + COST]
    members = p.knobs[group * KNOBS + MEMBERS]
    tokens_per_rank = s.round_most[group]
    if tokens_per_rank > p.knobs[group * KNOBS + GRAPHS]:
        tokens_per_rank = (s.round_tokens[group] + members - 1) // members
    return int(p.shared_ns[p.shared_first[cost] + tokens_per_rank])


def postpone_round(p: Program, s: ServingState, joined: int, group: int) -> None:
    """Update start and end of the round for the ranks that joined earlier."""
    for replica in range(group, group + p.knobs[group * KNOBS + MEMBERS]):
        if replica == joined or s.round_of[replica] != s.round[group]:
            continue
        newest = (s.oldest[replica] + s.n_slots[replica] - 1) % p.knobs[replica * KNOBS + DEPTH]
        slot_index = p.slot_base[replica] + newest
        s.slot_end[slot_index] = s.round_end[group]
        row = s.entry_of[replica] * LOG
        if s.entry_of[replica] < s.counters[STEPS] and s.log[row + LOG_REPLICA] == replica:
            s.log[row + LOG_START] = s.round_start[group]
            s.log[row + LOG_END] = s.round_end[group]
        if s.action[replica] == UPDATE and newest == s.oldest[replica]:
            s.wake[replica] = max(s.clock[replica], s.round_end[group])
