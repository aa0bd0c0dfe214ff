"""``megatron_gpt.py`` whose model has no memory before Megatron's FSDP has split it.

Megatron-Bridge sets ``init_model_with_meta_device`` wherever it uses that FSDP: a model of which a GPU holds a part
only is never whole on one. Takes the options of ``megatron_gpt.py``, with ``--fsdp``.
"""

from __future__ import annotations

from functools import partial

import megatron_gpt
import torch


class Deferred(megatron_gpt.GPTModel):
    """Shapes and types alone; FSDP gives a module memory when its turn to be split comes."""

    def __init__(self, *parts, **settings) -> None:
        with torch.device("meta"):
            super().__init__(*parts, **settings)

    def cuda(self, device=None) -> Deferred:
        """The model as it is: there is nothing to move."""
        return self


_BUFFERS = ("output_tensor", "output", "input_tensor", "input")  # of a collective, as FSDP names them


def take_buffers_by_name() -> None:
    """What splits exchanges of tensor parallelism has FSDP's calls, too, and reads buffers by their place."""
    make = megatron_gpt.megatron_overlap._split

    def by_name(*settings):
        split = make(*settings)
        return lambda *args, **named: split(*(named.pop(name) for name in _BUFFERS if name in named), *args, **named)

    megatron_gpt.megatron_overlap._split = by_name


if __name__ == "__main__":
    take_buffers_by_name()
    megatron_gpt.TransformerConfig = partial(megatron_gpt.TransformerConfig, init_model_with_meta_device=True)
    megatron_gpt.GPTModel = Deferred
    megatron_gpt.main()
