"""Sequences end after lengths of their own; a target model agrees with a part of a draft's tokens."""

import sys

import torch

END, WORDS, LIMIT = 7, 32000, 64
head = torch.nn.Linear(64, WORDS, device="cuda")


def sampled(rows: int, *positions: int) -> torch.Tensor:
    """The next token of each row, or of each position."""
    return head(torch.randn(rows, *positions, 64, device="cuda")).argmax(-1)


def length_of_each(rows: int) -> list[int]:
    """Tokens before the end of each of a batch's sequences."""
    lengths = [LIMIT] * rows
    for step in range(LIMIT):
        tokens = sampled(rows)
        for row in (tokens == END).nonzero().flatten().tolist():
            lengths[row] = min(lengths[row], step)
        if max(lengths) < LIMIT:
            break
    return lengths


if sys.argv[1] == "lengths":
    print("lengths", *length_of_each(3), *length_of_each(2), file=sys.stderr)
else:
    agreed = [(sampled(8) == sampled(8, 50)[:, index]).sum().item() for index in range(50)]
    print("agreed", sum(agreed) / 400, file=sys.stderr)
