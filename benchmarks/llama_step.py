"""The step that `capture_step.py` times: Hugging Face's Llama-8B on one GPU, forward, backward and AdamW."""

import os
import statistics
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

WARM_UP, COUNTED = 3, 7


def main() -> None:
    """Write the median host time of a step, s."""
    config = LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        use_cache=False,
        attn_implementation="sdpa",
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.to_empty(device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.zeros(1, 4096, dtype=torch.int64, device="cuda")
    times = []
    for _ in range(WARM_UP + COUNTED):
        start = time.perf_counter()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    with open(os.environ.get("PRESIM_BENCHMARK_OUT", "/dev/stdout"), "w") as out:
        out.write(repr(statistics.median(times[WARM_UP:])))


if __name__ == "__main__":
    main()
