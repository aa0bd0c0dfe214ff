"""Hugging Face's generate(): it ends with the end-of-sequence token, or at the length that was asked for."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

END = 7
config = LlamaConfig(
    vocab_size=32000,
    hidden_size=1024,
    intermediate_size=2048,
    num_hidden_layers=2,
    num_attention_heads=8,
    eos_token_id=END,
    pad_token_id=0,
)
model = LlamaForCausalLM(config).to("cuda", torch.bfloat16)
prompt = torch.randint(10, 32000, (4, 16), device="cuda")
sampled = {"greedy": {}, "sampled": {"do_sample": True, "top_k": 50, "top_p": 0.9}}[sys.argv[1]]
text = model.generate(prompt, max_new_tokens=32, **sampled)
assert text[:, :16].tolist() == prompt.tolist()
print("tokens", text.shape[1] - 16)
assert text.shape[1] - 16 == int(sys.argv[2]), text.shape
