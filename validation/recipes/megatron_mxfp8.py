"""``megatron_gpt.py`` whose weights are in MXFP8 alone, as Megatron-Bridge keeps them.

Elsewhere bf16 weights lie beside what the products read. Here parameters are gathered in bf16 into the buffer that
gradients are summed in afterwards, and converted from there: Megatron's ``--fp8-param-gather`` with
``--reuse-grad-buf-for-mxfp8-param-ag``. ``--pieces N`` packs N samples into each sequence, as ``megatron_packed.py``
does. Takes the options of ``megatron_gpt.py`` besides, with ``--distributed-optimizer`` and ``--overlap``.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

import megatron_gpt
import megatron_packed


def parse() -> argparse.Namespace:
    """This recipe's own option; the others are left to ``megatron_gpt``."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False, add_help=False)
    parser.add_argument("--pieces", type=int, help="samples in each sequence")
    own, others = parser.parse_known_args()
    sys.argv[1:] = others
    return own


def keep_nothing_beside() -> None:
    """Let the optimizer write into the buffer of gradients, once those are used up."""
    for name in ("DistributedDataParallelConfig", "OptimizerConfig"):
        shared = partial(getattr(megatron_gpt, name), reuse_grad_buf_for_mxfp8_param_ag=True)
        setattr(megatron_gpt, name, shared)
    make = megatron_gpt.get_megatron_optimizer
    megatron_gpt.get_megatron_optimizer = lambda config, chunks: _filling(make(config, chunks))


def _filling(optimizer):
    """The optimizer, which fills the buffer when gradients are set to zero: as Megatron's training loop has it do."""
    zero = optimizer.zero_grad

    def zero_and_fill(*args, **kwargs) -> None:
        zero(*args, **kwargs)
        for each in getattr(optimizer, "chained_optimizers", [optimizer]):
            each._copy_main_params_to_param_buffer()

    optimizer.zero_grad = zero_and_fill
    return optimizer


if __name__ == "__main__":
    pieces = parse().pieces
    if pieces:
        megatron_packed.attend_apart(pieces)
    keep_nothing_beside()
    megatron_gpt.main()
