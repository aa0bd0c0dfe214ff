"""Sentences about refused requests: how many there are, why, and what admits them."""

from __future__ import annotations

import numpy as np

from presim.serving.engines.engine import Limits
from presim.serving.engines.simulate_fleet import Served
from presim.serving.fast import serving_state


def sentences(served: Served, limits: Limits) -> list[str]:
    """One sentence for each reason for which an engine with these limits refuses requests, or none."""
    refused = served.status == serving_state.REFUSED
    prompt, output = served.workload.prompt[refused], served.workload.output[refused]
    too_long = prompt >= limits.max_model_len
    needed = np.minimum(prompt + output, limits.max_model_len)[~too_long]
    pages = np.array([limits.pages(int(tokens) + limits.draft_tokens + limits.lookahead) for tokens in needed])
    too_large = needed[pages >= limits.num_gpu_blocks] if len(needed) else needed
    num_unserved = len(needed) - len(too_large)
    texts = []
    if too_long.any():
        texts.append(
            f"{_requests(int(too_long.sum()), served)} refused: a prompt may have {limits.max_model_len - 1:,} tokens, "
            f"one less than max_model_len, and the longest has {int(prompt.max()):,}. Raise --max-model-len or shorten "
            "the prompts."
        )
    if len(too_large):
        texts.append(
            f"{_requests(len(too_large), served)} refused: the KV cache holds {limits.kv_tokens:,} tokens, and the "
            f"longest request needs {int(too_large.max()):,}. Give the engine more memory for its cache."
        )
    if num_unserved:
        texts.append(f"{_requests(num_unserved, served)} refused: no engine served when they came.")
    return texts


def _requests(count: int, served: Served) -> str:
    total = len(served.workload)
    if count == total:
        return f"All {total:,} requests were" if total > 1 else "The request was"
    return f"{count:,} of {total:,} requests {'were' if count > 1 else 'was'}"
