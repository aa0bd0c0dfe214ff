"""Seconds in which one controller process sends padded batches to workers and takes their answers, as verl's does.

verl's trainer has the whole batch in one process (`DataProto`, verl/protocol.py and trainer/ppo/ray_trainer.py, commits
f252da3 and 1dda039b). Each phase gets all of its tensors, padded to the longest prompt and response: the process
serialises one worker's chunk after the other with `torch.save`. It reads and joins what workers return.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, TypeAlias

from presim.post_training.response_lengths import longest
from presim.post_training.rl_job import SampleBatch, Trainer

Controller: TypeAlias = Literal["none", "verl"]
# Seconds of one core for each byte, measured: validation/results/controller-batches.md. Another run of the same command
# on a busy machine gave 3.3 and 1.1.
_SEND_S_PER_BYTE = 3.0e-9
_RECEIVE_S_PER_BYTE = 1.2e-9
_INTEGER_BYTES, _REAL_BYTES, _ROUTED_BYTES = 8, 4, 2
_WHOLE_TENSORS = 3  # input_ids, attention_mask, position_ids: of a prompt and its response
_RESPONSE_TENSORS = 2  # responses, response_mask
_ADVANTAGE_TENSORS = 4  # token_level_scores, token_level_rewards, advantages, returns


@dataclasses.dataclass(frozen=True)
class ControllerSeconds:
    """Seconds of the controller beside each phase of a step."""

    rollout_s: float = 0.0  # responses are joined to a batch
    reward_model_s: float = 0.0
    old_s: float = 0.0
    reference_s: float = 0.0
    values_s: float = 0.0
    critic_update_s: float = 0.0
    update_s: float = 0.0


def controller_seconds(
    controller: Controller, batch: SampleBatch, trainer: Trainer, routed_values: int = 0
) -> ControllerSeconds:
    """What the controller takes for a batch; nothing without one.

    ``routed_values``: experts that rollouts report for each token and updates replay, as int16
    (verl/experimental/agent_loop/agent_loop.py pads them as it pads tokens).
    """
    if controller == "none":
        return ControllerSeconds()
    prompt, response = longest(batch.prompt) + batch.turns.read_tokens, longest(batch.response)
    integers = _WHOLE_TENSORS * (prompt + response) + _RESPONSE_TENSORS * response + prompt
    tokens_bytes = batch.responses * integers * _INTEGER_BYTES
    tokens_bytes += batch.responses * (prompt + response) * routed_values * _ROUTED_BYTES
    real_bytes = batch.responses * response * _REAL_BYTES  # one number for each token of responses
    receive_s = real_bytes * _RECEIVE_S_PER_BYTE

    def send_s(real_tensors: int) -> float:
        return (tokens_bytes + real_tensors * real_bytes) * _SEND_S_PER_BYTE

    old, reference, values = (int(is_there) for is_there in (True, trainer.has_reference, trainer.has_critic))
    trained_s = send_s(old + reference + values + _ADVANTAGE_TENSORS)
    return ControllerSeconds(
        rollout_s=tokens_bytes * _RECEIVE_S_PER_BYTE,
        reward_model_s=send_s(0) + receive_s,
        old_s=send_s(0) + 2 * receive_s,  # with entropies
        reference_s=send_s(old) + receive_s,
        values_s=send_s(old + reference) + receive_s,
        critic_update_s=trained_s,
        update_s=trained_s,
    )
