"""Serve a batch of prompts with vLLM's offline engine: Llama-3.1-8B's shapes with random weights, tokens as prompts.

presim run --gpu h100-sxm --steps 0 examples/vllm_offline.py --eager
"""

import argparse
import os
import tempfile

from transformers import LlamaConfig
from vllm import LLM, SamplingParams


def save_config(folder: str, layers: int) -> None:
    """What vLLM would find beside the weights."""
    LlamaConfig(
        architectures=["LlamaForCausalLM"],
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        dtype="bfloat16",
    ).save_pretrained(folder)


def main() -> None:
    """Start the engine, let it size its KV cache, serve the batch to its end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--input", type=int, default=1000, help="tokens of a prompt")
    parser.add_argument("--output", type=int, default=64, help="tokens to generate for it")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--eager", action="store_true", help="no torch.compile, no CUDA graphs")
    parser.add_argument("--tensor-parallel", type=int, default=1)
    options = parser.parse_args()

    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    with tempfile.TemporaryDirectory() as folder:
        save_config(folder, options.layers)
        engine = LLM(
            model=folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            enforce_eager=options.eager,
            max_model_len=4096,
            tensor_parallel_size=options.tensor_parallel,
            distributed_executor_backend="external_launcher" if ranks > 1 else None,
        )
    prompts = [
        {"prompt_token_ids": [(31 * prompt + position) % 128000 for position in range(options.input)]}
        for prompt in range(options.prompts)
    ]
    sampling = SamplingParams(max_tokens=options.output, ignore_eos=True, detokenize=False)
    answers = engine.generate(prompts, sampling, use_tqdm=False)
    print(f"{sum(len(answer.outputs[0].token_ids) for answer in answers)} tokens for {len(answers)} prompts")


if __name__ == "__main__":
    main()
