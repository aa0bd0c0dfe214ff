"""LoRA or an adapter on litgpt's own models, as its fine-tuning scripts train them on samples of one length.

Needs ``pip install --no-deps litgpt``; weights in 4 bits need bitsandbytes, which it takes through Lightning.
"""

import argparse
import importlib

import lightning
import torch
from lightning.fabric.plugins import BitsandbytesPrecision
from lightning.fabric.strategies import FSDPStrategy
from litgpt.utils import chunked_cross_entropy

_METHODS = {  # what the scripts set, and what they freeze the rest by
    "lora": ("mark_only_lora_as_trainable", {"lora_r": 8, "lora_alpha": 16, "lora_dropout": 0.05}
             | dict.fromkeys(("lora_query", "lora_value"), True)),
    "adapter": ("mark_only_adapter_as_trainable", {}),
    "adapter_v2": ("mark_only_adapter_v2_as_trainable", {}),
}  # fmt: skip


def parse() -> argparse.Namespace:
    """What to train, and how."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="as litgpt names it: phi-1_5")
    parser.add_argument("--method", choices=_METHODS, required=True)
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches of a step")
    parser.add_argument("--quantize", choices=("nf4", "nf4-dq", "fp4", "fp4-dq", "int8-training"))
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--gpus-per-node", type=int, default=1)
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


def launch(o: argparse.Namespace, block: type) -> lightning.Fabric:
    """bf16, on one GPU as it is, on several by FSDP with blocks that are computed again."""
    if o.gpus == 1:
        quantized = BitsandbytesPrecision(o.quantize, torch.bfloat16) if o.quantize else None
        fabric = lightning.Fabric(devices=1, precision=None if quantized else "bf16-true", plugins=quantized)
    else:
        sharded = FSDPStrategy(
            auto_wrap_policy={block}, activation_checkpointing_policy={block}, limit_all_gathers=True
        )
        nodes = o.gpus // o.gpus_per_node
        fabric = lightning.Fabric(devices=o.gpus_per_node, num_nodes=nodes, strategy=sharded, precision="bf16-true")
    fabric.launch()
    return fabric


def forget(model: torch.nn.Module) -> None:
    """What adapters keep of their prompt for the next token: in training its graph is gone after each backward pass."""
    for module in model.modules():
        if getattr(module, "adapter_kv_cache", None) is not None:
            module.adapter_kv_cache = None


def main() -> None:
    """A few steps on random tokens; gradients are added up without being exchanged until a step's last micro-batch."""
    o = parse()
    parts = importlib.import_module(f"litgpt.{o.method}")
    freeze, fields = _METHODS[o.method]
    config = parts.Config.from_name(o.model, **fields)
    fabric = launch(o, parts.Block)
    with fabric.init_module(empty_init=o.gpus > 1):
        model = parts.GPT(config)
    getattr(parts, freeze)(model)
    model = fabric.setup_module(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if o.quantize:
        import bitsandbytes

        optimizer = bitsandbytes.optim.PagedAdamW(trained, lr=3e-4, weight_decay=0.01)
    else:
        optimizer = torch.optim.AdamW(trained, lr=3e-4, weight_decay=0.01)
    optimizer = fabric.setup_optimizers(optimizer)
    model.max_seq_length = o.sequence
    tokens = torch.randint(config.vocab_size, (o.batch, o.sequence), device=fabric.device)
    for _ in range(o.steps):
        for number in range(o.accumulate):
            with fabric.no_backward_sync(model, enabled=number < o.accumulate - 1):
                forget(model)
                logits = model(tokens, lm_head_chunk_size=128)
                logits[-1] = logits[-1][..., :-1, :]
                fabric.backward(chunked_cross_entropy(logits, tokens[..., 1:]) / o.accumulate)
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
