"""Train a ViT-Huge/14 on one GPU in fp32, autocast or bf16, with or without activation checkpointing.

presim run --gpu h100-sxm examples/vit_huge.py
"""

import argparse

import torch
from transformers import ViTConfig, ViTForImageClassification


def main() -> None:
    """Three steps on random images."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precision", choices=("fp32", "autocast", "bf16"), default="autocast")
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--optimizer", choices=("foreach", "fused", "capturable", "sgd"), default="foreach")
    options = parser.parse_args()

    config = ViTConfig(
        hidden_size=1280,
        num_hidden_layers=32,
        num_attention_heads=16,
        intermediate_size=5120,
        patch_size=14,
        num_labels=1000,
    )
    dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
    with torch.device("meta"):
        model = ViTForImageClassification(config).to(dtype)
    model.to_empty(device="cuda").train()
    if options.checkpoint:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if options.optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, **{options.optimizer: True})
    for step in range(3):
        images = torch.randn(options.batch, 3, 224, 224, device="cuda", dtype=dtype)
        labels = torch.randint(1000, (options.batch,), device="cuda")
        with torch.autocast("cuda", torch.bfloat16, enabled=options.precision == "autocast"):
            loss = model(pixel_values=images, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
