"""`presim compose --like` reads a plan from a capture and composes the same work: a sample of all plans."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from presim.evaluation.options import EvaluationOptions, RunOptions
from presim.verbs.compose import compose_like
from support.captured import evaluated
from support.long_cases import marked
from support.models import LLAMA

pytestmark = [pytest.mark.torch_cuda]
RECIPE = Path(__file__).parents[2] / "validation" / "recipes" / "hf_fsdp2.py"


@pytest.mark.long
@pytest.mark.parametrize(
    "words", marked(["--style ddp --accumulate 2", "--shard 2 --accumulate 2 --keep"], ["--style ddp --accumulate 2"])
)
def test_a_plan_is_read_from_its_capture(words: str, tmp_path: Path) -> None:
    """Equal products, attention and collectives. A small model waits for its host, so step times are not compared.

    Captures of one DDP job differ by 3 % in allocated memory. DDP replaces its first gradient bucket in the second
    step, and frees the old one sooner or later; probably NCCL's watchdog thread, which polls every 100 ms, holds it.
    """
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA | {"num_hidden_layers": 2}))
    options = RunOptions(gpu="h100-sxm", world_size=4, steps=3, save=str(tmp_path / "job"))
    evaluated(RECIPE, str(config), "--sequence", "512", *words.split(), options=options)
    agreement = compose_like(str(config), tmp_path / "job", {}, EvaluationOptions())[1]
    assert agreement.differences == ()
    assert abs(agreement.error("peak allocated")) < 0.05
