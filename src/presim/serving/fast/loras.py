"""LoRA adapters: at most so many are in the running requests together, as vLLM's `max_loras` has it."""

from __future__ import annotations

from presim.serving.fast.serving_state import KNOBS, MAX_LORAS, Program, ServingState


def gather_loras(p: Program, s: ServingState, replica: int) -> None:
    """Note the adapters of all running requests."""
    s.n_loras[replica] = 0
    if p.knobs[replica * KNOBS + MAX_LORAS] == 0:
        return
    first = p.row_base[replica]
    for row_index in range(first, first + s.n_running[replica]):
        note_lora(p, s, replica, s.running[row_index])


def note_lora(p: Program, s: ServingState, replica: int, item: int) -> None:
    """Note a running request's adapter."""
    if p.adapter[item] == 0 or p.knobs[replica * KNOBS + MAX_LORAS] == 0 or has_lora(p, s, replica, item):
        return
    s.loras[p.lora_base[replica] + s.n_loras[replica]] = p.adapter[item]
    s.n_loras[replica] += 1


def has_lora(p: Program, s: ServingState, replica: int, item: int) -> bool:
    """Whether a request's adapter is among those of the running requests."""
    for lora_index in range(p.lora_base[replica], p.lora_base[replica] + s.n_loras[replica]):
        if s.loras[lora_index] == p.adapter[item]:
            return True
    return False


def takes_lora(p: Program, s: ServingState, replica: int, item: int) -> bool:
    """Whether a waiting request's adapter may join; else others go first, and it keeps its place."""
    max_loras = p.knobs[replica * KNOBS + MAX_LORAS]
    return p.adapter[item] == 0 or max_loras == 0 or s.n_loras[replica] < max_loras or has_lora(p, s, replica, item)
