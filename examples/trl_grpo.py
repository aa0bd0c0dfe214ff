"""Train a small Qwen3 with TRL's GRPOTrainer, which generates with the model itself.

presim run --gpu h100-sxm examples/trl_grpo.py --tokens 16
"""

import argparse
import tempfile
from pathlib import Path

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

WORDS = 1000


def save_model(folder: str) -> None:
    """Write a model with random weights, and a tokenizer of numbered words."""
    vocabulary = {word: index for index, word in enumerate(["pad", "eos", "unk", *(f"w{i}" for i in range(WORDS))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="unk"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="pad", eos_token="eos", unk_token="unk", padding_side="left"
    ).save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=len(vocabulary), hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, max_position_embeddings=512, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)


def reward(completions: list[str], **columns: object) -> list[float]:
    """Longer completions are better."""
    return [float(len(completion)) for completion in completions]


def main() -> None:
    """Train for a few steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=16, help="most tokens of a completion")
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        save_model(folder)
        config = GRPOConfig(
            output_dir=str(Path(folder) / "out"), per_device_train_batch_size=4, num_generations=4, beta=0.04,
            max_completion_length=arguments.tokens, max_steps=arguments.steps, report_to=[], save_strategy="no",
        )  # fmt: skip
        prompts = Dataset.from_dict({"prompt": ["w1 w2 w3 w4 w5 w6 w7 w8"] * 64})
        GRPOTrainer(model=folder, reward_funcs=reward, args=config, train_dataset=prompts).train()


if __name__ == "__main__":
    main()
