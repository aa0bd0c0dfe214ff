"""Train a small GPT-2 with Lightning's Trainer: DDP, FSDP or one GPU.

presim run --gpu h100-sxm --nodes 2 examples/lightning_gpt.py --strategy ddp
"""

import argparse
import os
import tempfile

import lightning as L
import torch
from lightning.pytorch.strategies import FSDPStrategy
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.models.gpt2.modeling_gpt2 import GPT2Block


class RandomTokens(Dataset):
    """Samples of random tokens; a real data set would be read here."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.randint(50257, (self.length,))


class Gpt(L.LightningModule):
    """GPT-2 (124M) and its optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.model = GPT2LMHeadModel(GPT2Config())

    def training_step(self, tokens: torch.Tensor, index: int) -> torch.Tensor:
        """The loss of a batch, which the progress bar shows."""
        loss = self.model(input_ids=tokens, labels=tokens).loss
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW on all parameters."""
        return torch.optim.AdamW(self.parameters(), lr=6e-4)


def main() -> None:
    """Some steps, in as many processes as torchrun started."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", choices=("ddp", "fsdp"), default="ddp")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()

    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    nodes = int(os.environ.get("WORLD_SIZE", "1")) // local
    fsdp = FSDPStrategy(auto_wrap_policy={GPT2Block}, use_orig_params=True)
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(
            accelerator="cuda",
            devices=local,
            num_nodes=nodes,
            strategy=fsdp if options.strategy == "fsdp" else "ddp",
            precision="bf16-mixed",
            gradient_clip_val=None if options.strategy == "fsdp" else 1.0,
            max_steps=options.steps,
            logger=False,
            enable_checkpointing=False,
            default_root_dir=folder,
        )
        trainer.fit(Gpt(), DataLoader(RandomTokens(options.length), batch_size=options.batch))


if __name__ == "__main__":
    main()
