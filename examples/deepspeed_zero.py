"""Train a Llama with DeepSpeed: ZeRO 1 to 3, offload to the host, activation checkpointing.

presim run --gpu h100-sxm --nodes 4 examples/deepspeed_zero.py --model 8b --stage 3 --checkpoint
"""

import argparse

import deepspeed
import torch
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {
    "tiny": LlamaConfig(
        vocab_size=32000,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=8,
    ),
    "1b": LlamaConfig(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
    ),
    "8b": LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
    ),
}


def settings(options: argparse.Namespace) -> dict:
    """DeepSpeed's configuration."""
    zero: dict = {"stage": options.stage}
    if options.offload:
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if options.offload == "all":
        zero["offload_param"] = {"device": "cpu", "pin_memory": True}
    return {
        "train_micro_batch_size_per_gpu": options.batch,
        "gradient_accumulation_steps": options.accumulate,
        "gradient_clipping": 1.0,
        options.precision: {"enabled": True},
        "zero_optimization": zero,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1, "torch_adam": not options.offload}},
        "steps_per_print": 1,
    }


def main() -> None:
    """Some steps on random tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=SIZES, default="1b")
    parser.add_argument("--stage", type=int, choices=(0, 1, 2, 3), default=3)
    parser.add_argument("--offload", choices=("", "optimizer", "all"), default="")
    parser.add_argument("--precision", choices=("bf16", "fp16"), default="bf16")
    parser.add_argument("--checkpoint", action="store_true", help="recompute activations")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--local_rank", type=int, default=0)  # which the deepspeed launcher gives
    options = parser.parse_args()

    deepspeed.init_distributed("nccl")
    config = settings(options)
    with deepspeed.zero.Init(config_dict_or_path=config, enabled=options.stage == 3):
        model = LlamaForCausalLM(SIZES[options.model])
    if options.checkpoint:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    for _ in range(options.steps * options.accumulate):
        tokens = torch.randint(model.config.vocab_size, (options.batch, options.length), device=engine.device)
        loss = engine(input_ids=tokens, labels=tokens, use_cache=False).loss
        engine.backward(loss)
        engine.step()


if __name__ == "__main__":
    main()
