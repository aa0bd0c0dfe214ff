"""The recipe of Megatron's encoders: BERT's two losses and bidirectional attention."""

from __future__ import annotations

import pytest

from presim.trace.schema import Phase
from support.captured import ROOT, run

pytestmark = [pytest.mark.torch_cuda, pytest.mark.needs("megatron.core")]

LAYERS, HIDDEN, VOCABULARY, WORDS, TEXTS = 2, 256, 1024, 128, 2
RECIPE = ROOT / "validation" / "recipes" / "megatron_encoders.py"


@pytest.mark.long
def test_bert_has_products_of_its_layers_of_its_head_and_of_which_sentence_comes_first() -> None:
    job = run(
        *(str(RECIPE), "--family", "bert", "--engine", "local", "--style", "gpt", "--tied", "--positions", "learned"),
        *("--layers", str(LAYERS), "--hidden", str(HIDDEN), "--ffn", str(4 * HIDDEN), "--heads", "4"),
        *("--kv-heads", "4", "--vocab", str(VOCABULARY), "--sequence", str(WORDS), "--batch", str(TEXTS)),
        *("--accumulate", "1"),
        world_size=2,
        steps=2,
    )
    words = WORDS * TEXTS
    layers = LAYERS * (2 * words * 12 * HIDDEN**2 + 2 * 2 * words * WORDS * HIDDEN)
    head = 2 * words * (HIDDEN**2 + VOCABULARY * HIDDEN)
    order = 2 * TEXTS * (HIDDEN**2 + 2 * HIDDEN)
    assert job.gemm_flops(Phase.FORWARD) == layers + head + order
    assert job.gemm_flops(Phase.BACKWARD) == 2 * job.gemm_flops(Phase.FORWARD)
