"""Train a small Llama with the Trainer of transformers: DDP, FSDP2 or DeepSpeed, as accelerate sets them up.

presim run --gpu h100-sxm --nodes 1 examples/hf_trainer.py --backend fsdp
"""

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

BACKENDS = {
    "ddp": {},
    "fsdp": {
        "fsdp": "full_shard auto_wrap",
        "fsdp_config": {"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]},
    },
    "deepspeed": {
        "deepspeed": {
            "bf16": {"enabled": "auto"},
            "zero_optimization": {"stage": 3},
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto",
            "train_micro_batch_size_per_gpu": "auto",
        }
    },
}


class RandomTokens(Dataset):
    """Samples of random tokens; a real data set would be read here."""

    def __init__(self, vocabulary: int, length: int) -> None:
        self.tokens = torch.randint(vocabulary, (4096, length))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def main() -> None:
    """Some steps of training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=BACKENDS, default="ddp")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--layers", type=int, default=8)
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(
            output_dir=output,
            per_device_train_batch_size=options.batch,
            max_steps=options.steps,
            bf16=True,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            **BACKENDS[options.backend],
        )
        config = LlamaConfig(
            vocab_size=32000,
            hidden_size=1024,
            intermediate_size=2816,
            num_hidden_layers=options.layers,
            num_attention_heads=16,
            num_key_value_heads=4,
        )
        model = LlamaForCausalLM(config)
        trainer = Trainer(model, arguments, train_dataset=RandomTokens(config.vocab_size, options.length))
        trainer.train()


if __name__ == "__main__":
    main()
