"""How many tokens a sequence may have: vLLM 0.33's rules (config/model.py, `_get_and_verify_max_len`)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from presim.composition.models.description import UNLIMITED
from presim.composition.models.export.context_length import lengths

LINEAR = {"rope_type": "linear", "factor": 4.0}
CASES: list[tuple[dict[str, Any], tuple[int, int]]] = [
    ({"max_position_embeddings": 8192}, (8192, 0)),
    ({"n_positions": 1024, "max_position_embeddings": 2048}, (1024, 0)),
    ({"seq_length": 2048}, (2048, 0)),
    ({"max_position_embeddings": 8192, "model_max_length": 131072}, (131072, 0)),
    ({"max_position_embeddings": 4096, "rope_parameters": LINEAR}, (16384, 0)),
    ({"max_position_embeddings": 4096, "rope_parameters": {"full_attention": LINEAR}}, (16384, 0)),
    ({"max_position_embeddings": 4096, "rope_parameters": LINEAR, "model_type": "gemma3_text"}, (4096, 0)),
    ({"max_position_embeddings": 4096, "rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, (4096, 0)),
    ({"max_position_embeddings": 131072, "rope_parameters": {"rope_type": "longrope"},
      "original_max_position_embeddings": 4096}, (131072, 4096)),
    ({"vocab_size": 50280}, (UNLIMITED, 2048)),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(CASES)))
def test_lengths_are_those_of_vllm(case: int) -> None:
    config, expected = CASES[case]
    assert lengths(SimpleNamespace(**config)) == expected
