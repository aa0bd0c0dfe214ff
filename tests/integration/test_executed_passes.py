"""Graphs changed by passes run on gloo ranks node by node, with eager PyTorch's loss and gradients."""

from __future__ import annotations

import json
import sys

import pytest

from presim.composition.graph.take import run_exporter
from support.export_server import forked

pytestmark = [pytest.mark.torch_cuda]
CASES = (
    "one rank",
    "tensor of four",
    "vocabulary",
    "sequence",
    "sequence, gathered again",
    "context, all-gather",
    "context, ulysses",
    "context, ring",
    "two parts of the backward pass",
    "half of the activations",
    "no activations",
    "recomputed",
    "experts, all-to-all",
    "experts, all-gather",
    "experts, deepep",
    "fused modules",
    "fused neighbours",
    "fused, then recomputed",
    "selective recomputation",
    "compiled functions",
    "another attention",
    "untied",
)
NARROW = ("fp8-tensor", "fp8-row", "fp8-block", "mxfp8", "int8", "nvfp4", "sparse24", "sparse24, tensor", "w4a16")
ROUNDING = 1e-5  # of float32 sums in another order, relative to the largest gradient of a parameter
OF_SUMS_IN_16_BITS = 2e-2  # the same of bfloat16


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    """Results of all cases; one process traces the model for all of them."""
    folder = tmp_path_factory.mktemp("executed")
    command = [sys.executable, "-m", "support.executing.programs", str(folder), *CASES, *NARROW]
    ended = forked(run_exporter)(command)
    assert ended.returncode == 0, ended.stderr
    found = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    return {one.pop("case"): one for one in found}


@pytest.mark.parametrize("case", CASES)
def test_a_pass_keeps_eager_s_loss_and_gradients(case: str, errors: dict[str, dict[str, float]]) -> None:
    """The gradient of every parameter is compared."""
    found = errors[case]
    assert found["missing"] == 0
    assert found["loss"] < ROUNDING
    assert found["gradients"] < ROUNDING


@pytest.mark.parametrize("case", NARROW)
def test_narrow_products_give_what_eager_layers_of_the_type_give(
    case: str, errors: dict[str, dict[str, float]]
) -> None:
    """Products of the same values are summed alike; only ranks that share a sum round it differently."""
    found = errors[case]
    rounding = OF_SUMS_IN_16_BITS if "tensor" in case.split(", ") else ROUNDING
    assert found["missing"] == 0
    assert found["loss"] < rounding
    assert found["gradients"] < rounding
    assert found["narrow"] > 1e-4, "the type changes nothing here, so that nothing is tested"
