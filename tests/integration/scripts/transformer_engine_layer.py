"""Layers of Transformer Engine, forward and backward, in bf16 or in 8 bits."""

import argparse
import contextlib

import torch
import transformer_engine.pytorch as te
from transformer_engine.common import recipe

RECIPES = {
    "delayed": recipe.DelayedScaling,
    "current": recipe.Float8CurrentScaling,
    "block": recipe.Float8BlockScaling,
    "mxfp8": recipe.MXFP8BlockScaling,
}
LENGTH, BATCH, HIDDEN, FEED_FORWARD, HEADS, GROUPS = 2048, 2, 1024, 4096, 16, 4


def module(name: str) -> torch.nn.Module:
    """One layer, on the device."""
    settings = {"params_dtype": torch.bfloat16, "device": "cuda"}
    if name == "linear":
        return te.Linear(HIDDEN, FEED_FORWARD, **settings)
    if name == "mlp":
        return te.LayerNormMLP(HIDDEN, FEED_FORWARD, activation="swiglu", normalization="RMSNorm", **settings)
    return te.TransformerLayer(
        HIDDEN,
        FEED_FORWARD,
        HEADS,
        num_gqa_groups=GROUPS,
        self_attn_mask_type="causal",
        hidden_dropout=0.0,
        attention_dropout=0.0,
        **settings,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module", choices=("linear", "mlp", "layer"))
    parser.add_argument("--recipe", choices=RECIPES)
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args()
    layer = module(options.module)
    optimizer = te.optimizers.FusedAdam(layer.parameters(), lr=1e-4)
    for _ in range(options.steps):
        batch = torch.randn(LENGTH, BATCH, HIDDEN, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        low = (
            te.autocast(enabled=True, recipe=RECIPES[options.recipe]()) if options.recipe else contextlib.nullcontext()
        )
        with low:
            result = layer(batch)
        result.sum().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
