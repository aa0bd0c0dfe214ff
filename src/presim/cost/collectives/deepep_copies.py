"""Time in which SMs copy tokens, in DeepEP's kernels for training and prefill.

Within a host, half of the SMs send, each to all ranks. Their warps copy a token once per destination rank. After each
window of tokens they notify the rank, once all writes have arrived (deepseek-ai/DeepEP, csrc/kernels/intranode.cu).
Between hosts, forwarding warps copy tokens, and windows overlap with the network (internode.cu).
"""

from __future__ import annotations

from presim.cost.collectives.collective_constants import CopyingConstants
from presim.cost.collectives.group_placement import GroupPlacement
from presim.trace.collective import Routed
from presim.trace.even_routing import places_of


def copying_seconds(
    phase: int, routed: Routed, is_scaled: bool, layout: GroupPlacement, generation: str, constants: CopyingConstants
) -> float:
    """Seconds in which the SMs of a rank are busy with one exchange.

    ``phase``: 0 for a dispatch, 1 for a combine; ``is_scaled``: tokens have scaling factors, as with FP8.
    """
    copies = routed.tokens * places_of(routed, layout.ranks, layout.ranks) / (routed.sms / 2)
    one_us = constants.copy_us[phase] + constants.KiB_us[phase] * routed.token_bytes / 1024
    one_us += constants.factors_us if is_scaled else 0.0
    if layout.nodes > 1:
        return copies / constants.forwarding_warps[phase] * one_us * 1e-6
    windows = copies / layout.ranks / (routed.window or constants.tuned_window[phase])
    waits_us = windows * constants.window_us.get(generation, constants.window_us["hopper"])
    return (copies / constants.warps[phase] * one_us + waits_us) * 1e-6
