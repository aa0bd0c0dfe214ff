"""A step composed from a model and a plan equals the capture of a program with that plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import pytest

from presim.composition.compose import compose
from presim.composition.plan import Plan
from presim.evaluation.evaluate_traces import Evaluation, evaluate
from presim.hardware.cluster_choice import choose_cluster
from presim.trace.signatures import Attention, Collective, Gemm
from support.captured import run
from support.long_cases import marked
from support.models import llama

pytestmark = [pytest.mark.torch_cuda]
CASES = {
    "recomputed, 128 H100": (("h100-sxm", 128), ("--model", "8b"), Plan(sequence=8192, recompute="full")),
    "kept, 16 H100": (("h100-sxm", 16), ("--no-checkpoint", "--sequence", "4096"), Plan(sequence=4096)),
    "two samples, 16 A100": (
        ("a100-80gb-sxm", 16),
        ("--sequence", "4096", "--batch", "2"),
        Plan(sequence=4096, micro_batch=2, recompute="full"),
    ),
}


def communication_and_products(evaluation: Evaluation) -> Counter[Hashable]:
    """The last step's products and attention by every property in their price, collectives by size and group."""
    trace = evaluation.priced.trace
    chosen = trace.columns["signature"][trace.steps()[-1]]
    found: Counter[Hashable] = Counter()
    for index in chosen[chosen >= 0].tolist():
        one = trace.signatures[index]
        if isinstance(one, (Gemm, Attention)):
            found[one] += 1
        elif isinstance(one, Collective):
            found[one.kind, one.bytes, one.dtype, trace.manifest.groups[one.group].size] += 1
    return found


@pytest.mark.parametrize("name", marked(CASES, ["kept, 16 H100", "two samples, 16 A100"]))
def test_the_composed_step_equals_the_capture(name: str) -> None:
    """The same products, attention and collectives; step time within 2 %, as host time scatters, memory within 2 %."""
    (gpu, gpus), arguments, plan = CASES[name]
    captured = run("llama_fsdp2.py", *arguments, gpu=gpu, world_size=gpus).evaluation
    job = compose(llama(32, is_8b=True), plan, choose_cluster(gpu=gpu, world_size=gpus))
    composed = evaluate(job, choose_cluster(gpu=gpu, world_size=gpus))
    assert communication_and_products(composed) == communication_and_products(captured)
    assert composed.result.step_time_s == pytest.approx(captured.result.step_time_s, rel=0.02)
    mine, theirs = composed.result.memory, captured.result.memory
    assert mine.peak_allocated_bytes == pytest.approx(theirs.peak_allocated_bytes, rel=0.005)
    assert mine.peak_reserved_bytes == pytest.approx(theirs.peak_reserved_bytes, rel=0.02)
