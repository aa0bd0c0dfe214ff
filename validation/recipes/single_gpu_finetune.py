"""``single_gpu.py`` with low-rank adapters by PEFT beside a decoder's layers, or with several micro-batches a step.

With adapters, the model's own weights are frozen in the precision's type and adapters are what PEFT makes of them: in
fp32 where weights are in 16 bits. The step then runs under autocast, as Hugging Face's Trainer does with ``bf16`` or
``fp16``.

Takes the options of ``single_gpu.py`` besides its own.
"""

from __future__ import annotations

import argparse
import contextlib
import sys

import single_gpu
import torch
from peft import LoraConfig, get_peft_model

_HALVES = {"half": torch.bfloat16, "mixed": torch.bfloat16, "fp16": torch.float16}


def adapted(model: torch.nn.Module, rank: int, alpha: int | None, targets: str | None) -> torch.nn.Module:
    """The frozen model with adapters; without ``targets`` beside those layers that PEFT chooses for such a model.

    ``alpha`` is twice the rank where none is given; the numbers alone depend on it.
    """
    names = targets.split(",") if targets and targets != "all-linear" else targets
    return get_peft_model(model, LoraConfig(r=rank, lora_alpha=alpha or 2 * rank, target_modules=names))


def parse() -> tuple[argparse.Namespace, argparse.Namespace]:
    """What is tuned how, and what ``single_gpu.py`` is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lora", type=int, help="rank of the adapters; without it all weights are trained")
    parser.add_argument("--lora-alpha", type=int)
    parser.add_argument("--lora-targets", help="names of linear layers, with commas between, or all-linear")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches of a step")
    own, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    return own, single_gpu.parse()


def autocast(precision: str, *, adapters: bool):
    """With adapters for all 16-bit precisions, as the Trainer does; without for ``mixed`` alone."""
    if precision == "mixed" or (adapters and precision in _HALVES):
        return torch.autocast("cuda", _HALVES[precision])
    return contextlib.nullcontext()


def main() -> None:
    """A few steps on random tokens."""
    own, o = parse()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = o.precision == "tf32"
    model = single_gpu.build(o)
    if own.lora:
        model = adapted(model, own.lora, own.lora_alpha, own.lora_targets).train()
    inputs = single_gpu.batch(o, model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    # A step without an optimizer still ends where one would step: SGD over one scalar costs nothing.
    stepped = trained if o.optimizer == "adam" else [torch.nn.Parameter(torch.zeros(1))]
    optimizer = torch.optim.AdamW(stepped, lr=1e-4) if o.optimizer == "adam" else torch.optim.SGD(stepped)
    for _ in range(o.steps):
        for _ in range(own.accumulate):
            with autocast(o.precision, adapters=bool(own.lora)):
                loss = single_gpu.loss_of(model, inputs)
            (loss / own.accumulate).backward()
        optimizer.step()
        model.zero_grad()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
