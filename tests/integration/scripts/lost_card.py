"""The measuring process of `presim profile`, on a card that answers no more after the first kind of work has failed."""

import sys

import torch

from presim.cost.profile import CARD_LOST, bench


def lost() -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


torch.cuda.empty_cache = lost
assert bench.main(*sys.argv[1:]) == CARD_LOST
