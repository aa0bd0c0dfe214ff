"""Small models as Hugging Face describes them, and their graphs, taken once a process."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

from presim.composition.graph.graph_schema import OperatorGraph
from presim.composition.graph.take import take

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "use_cache": False,
}
LLAMA_8B = LLAMA | {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
}
QWEN_MOE = LLAMA | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 128,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "head_dim": 32,
}


def _taken(fields: dict[str, object]) -> OperatorGraph:
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(fields))
        return take(str(config))


@functools.cache
def qwen_moe() -> OperatorGraph:
    """The graph of a mixture of experts with norms of queries and keys."""
    return _taken(QWEN_MOE)


@functools.cache
def llama(layers: int = 4, *, is_8b: bool = False) -> OperatorGraph:
    """The graph of a Llama with so many layers."""
    return _taken((LLAMA_8B if is_8b else LLAMA) | {"num_hidden_layers": layers})
