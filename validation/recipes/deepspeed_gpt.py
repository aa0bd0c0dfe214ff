"""Train a decoder of Hugging Face's with DeepSpeed's engine: ZeRO 0 to 3, data parallel over all ranks.

What is not asked for is DeepSpeed's own default. In the place of its FusedAdam, which is compiled for the machine at
hand when a run begins, PyTorch's fused AdamW runs: it reads and writes the same in one kernel as well. With ``--lora``
adapters alone are trained; the engine casts them to 16 bits, as it does all weights.
"""

from __future__ import annotations

import argparse

import deepspeed
import deepspeed.runtime.engine
import torch
from single_gpu import MODELS, shaped
from transformers import GPT2Config, GPT2LMHeadModel

deepspeed.runtime.engine.FusedAdam = torch.optim.AdamW  # for which the engine does what it does for its own
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def gpt(shapes: str, positions: int) -> GPT2Config:
    """A GPT of these layers, width, width of the MLP, heads, those of keys (as many), vocabulary."""
    layers, hidden, ffn, heads, _, words = map(int, shapes.split(","))
    return GPT2Config(
        n_layer=layers,
        n_embd=hidden,
        n_inner=ffn,
        n_head=heads,
        n_positions=positions,
        vocab_size=words,
        use_cache=False,
    )


def settings(o: argparse.Namespace) -> dict:
    """DeepSpeed's configuration."""
    zero: dict = {"stage": o.zero}
    for said in filter(None, (o.zero_options or "").split(",")):
        name, value = said.split("=")
        zero[name] = value.lower() == "true" if value.lower() in ("true", "false") else int(float(value))
    return {
        "train_micro_batch_size_per_gpu": o.batch,
        "gradient_accumulation_steps": o.accumulate,
        "gradient_clipping": o.clip,
        o.precision: {"enabled": True},
        "zero_optimization": zero,
    }


def build(o: argparse.Namespace, config: dict) -> torch.nn.Module:
    """The model in 16 bits on the GPU: whole, or with ZeRO-3 each rank's part of it."""
    if o.model == "gpt":
        configuration, kind, attention = gpt(o.shapes, o.sequence), GPT2LMHeadModel, "sdpa"
    else:
        configure, kind, attention = MODELS[o.model]
        configuration = shaped(configure, o.shapes) if o.shapes else configure()
    configuration._attn_implementation = "sdpa" if attention == "fused" else attention
    if o.zero == 3:
        with deepspeed.zero.Init(config_dict_or_path=config):
            model = kind(configuration)
    else:
        with torch.device("meta"):
            model = kind(configuration)
        model = model.to(_DTYPES[o.precision]).to_empty(device="cuda")
        model.tie_weights()
    if o.checkpoint:
        model.activation_checkpointing_enable({"use_reentrant": False})
    if o.lora:
        from single_gpu_finetune import adapted

        model = adapted(model, o.lora, o.lora_alpha, o.lora_targets)
    return model.train()


def parse() -> argparse.Namespace:
    """What to train, and how."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("gpt", *MODELS), required=True)
    parser.add_argument("--shapes", help="of gpt, llama and qwen: layers,width,MLP,heads,those of keys,vocabulary")
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True, help="samples of a micro-batch")
    parser.add_argument("--accumulate", type=int, default=1, help="micro-batches of a step")
    parser.add_argument("--precision", choices=tuple(_DTYPES), default="bf16")
    parser.add_argument("--zero", type=int, choices=(0, 1, 2, 3), default=0)
    parser.add_argument("--zero-options", help="more of DeepSpeed's zero_optimization: name=value,name=value")
    parser.add_argument("--checkpoint", action="store_true", help="compute each layer's activations again")
    parser.add_argument("--clip", type=float, default=1.0, help="norm that gradients are clipped to")
    parser.add_argument("--lora", type=int, help="rank of PEFT's adapters; without it all weights are trained")
    parser.add_argument("--lora-alpha", type=int)
    parser.add_argument("--lora-targets", help="names of linear layers, with commas between, or all-linear")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--local_rank", type=int, default=0)  # which the deepspeed launcher gives
    return parser.parse_args()


def main() -> None:
    """A few steps on random tokens."""
    o = parse()
    deepspeed.init_distributed("nccl")
    config = settings(o)
    model = build(o, config)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.1, fused=True)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    tokens = torch.randint(model.config.vocab_size, (o.batch, o.sequence), device=engine.device)
    for _ in range(o.steps * o.accumulate):
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
