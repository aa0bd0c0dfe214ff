"""Samples packed into each sequence, which attend to themselves alone."""

from __future__ import annotations

import torch
from megatron.core.extensions.transformer_engine import TEDotProductAttention


def attend_apart(pieces: int) -> None:
    """Let attention take each sequence as a batch of so many samples of equal length.

    Only attention knows of it, as with the offsets that Megatron hands it for packed sequences.
    """
    attention_of_sequence = TEDotProductAttention.forward

    def forward(self, query, key, value, *args, **kwargs):
        self.qkv_format = "bshd"
        sequence, batch = query.shape[:2]
        if batch > 1 or sequence % pieces:
            raise ValueError(f"{pieces} pieces are cut from one sequence; here are {batch} of {sequence} tokens")
        cut: list[torch.Tensor] = [states[:, 0].unflatten(0, (pieces, -1)) for states in (query, key, value)]
        out = attention_of_sequence(self, *cut, *args, **kwargs)
        return out.reshape(sequence, batch, -1)

    TEDotProductAttention.forward = forward
