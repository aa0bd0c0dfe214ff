"""Two data-parallel ranks of vLLM that share experts, by its offline engine; each serves its own prompt."""

from __future__ import annotations

import os
import tempfile

from transformers import Qwen3MoeConfig
from vllm import LLM, SamplingParams

with tempfile.TemporaryDirectory() as folder:
    Qwen3MoeConfig(
        architectures=["Qwen3MoeForCausalLM"],
        vocab_size=1024,
        hidden_size=512,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=64,
        num_experts=16,
        num_experts_per_tok=2,
        moe_intermediate_size=128,
        max_position_embeddings=1024,
        dtype="bfloat16",
    ).save_pretrained(folder)
    engine = LLM(
        model=folder,
        load_format="dummy",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=512,
        data_parallel_size=2,
        enable_expert_parallel=True,
        distributed_executor_backend="external_launcher",
    )
prompt = [7 + int(os.environ["RANK"])] * (48 + 16 * int(os.environ["RANK"]))
sampling = SamplingParams(max_tokens=3, ignore_eos=True, detokenize=False)
answers = engine.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False)
print(f"{len(answers[0].outputs[0].token_ids)} tokens")
