"""Train a Qwen3 of a given size with TRL's GRPOTrainer, which generates with the model itself.

    python trl_rollouts.py --shapes LAYERS,WIDTH,MLP --tokens N

A step is one batch of 8 prompts of 64 tokens with 8 completions of N tokens each.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

WORDS = 151_000
PROMPTS, COMPLETIONS, PROMPT_TOKENS = 8, 8, 64


def tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of numbered words."""
    vocabulary = {word: index for index, word in enumerate(["pad", "eos", "unk", *(f"w{i}" for i in range(WORDS))])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="unk"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="pad", eos_token="eos", unk_token="unk", padding_side="left"
    )


def model(shapes: str) -> Qwen3ForCausalLM:
    """Qwen3 with random weights in bf16."""
    layers, width, ffn = map(int, shapes.split(","))
    configuration = Qwen3Config(
        vocab_size=WORDS + 3,
        hidden_size=width,
        intermediate_size=ffn,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        dtype=torch.bfloat16,
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        made = Qwen3ForCausalLM(configuration)
    torch.set_default_dtype(torch.float32)
    return made


def reward(completions: list[str], **columns: object) -> list[float]:
    """Longer completions are better."""
    return [float(len(completion)) for completion in completions]


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shapes", default="28,1024,3072", help="layers, width, MLP's width (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=32, help="of each completion (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=3)
    o = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=str(Path(folder) / "out"),
            per_device_train_batch_size=PROMPTS * COMPLETIONS,
            num_generations=COMPLETIONS,
            max_completion_length=o.tokens,
            generation_kwargs={"min_new_tokens": o.tokens},
            max_steps=o.steps,
            beta=0.0,
            bf16=True,
            gradient_checkpointing=False,
            report_to=[],
            save_strategy="no",
        )
        prompts = Dataset.from_dict({"prompt": [" ".join(f"w{i}" for i in range(PROMPT_TOKENS))] * 1024})
        trainer = GRPOTrainer(
            model=model(o.shapes), processing_class=tokenizer(), reward_funcs=reward, args=config, train_dataset=prompts
        )
        trainer.train()


if __name__ == "__main__":
    main()
