"""Plans that are read from traces which presim did not compose."""

from __future__ import annotations

import pytest

from presim.composition.like import plan_of
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Manifest, Phase, Trace
from presim.trace.signatures import Elementwise

MOMENTS = ("lerp_", "addcmul_", "addcdiv_")


def updated_by(*operators: str) -> Trace:
    """A step whose optimizer launches these operators."""
    build = TraceBuilder(Manifest(world_size=1, rank=0, gpu="h100-sxm", gpus_per_node=1, script="t.py"))
    for name in operators:
        work = Elementwise(1 << 20, 1 << 20, 1 << 18, "float32", operator=name)
        build.work(work, host_ns=1_000, operator=name, phase=Phase.OPTIMIZER)
    build.step(host_ns=1_000)
    return build.trace()


@pytest.mark.parametrize(
    ("operators", "optimizer"),
    [
        (["aten::_fused_adamw_"], "adamw"),
        ([f"aten::_foreach_{name}" for name in MOMENTS], "adamw"),
        ([f"aten::{name}" for name in MOMENTS], "adamw"),
        (["aten::_foreach_lerp_", "aten::_foreach_addcmul_"], "none"),
        (["aten::_foreach_add_"], "none"),
    ],
    ids=str,
)
def test_adam_is_known_by_its_kernel_or_by_its_operators(operators: list[str], optimizer: str) -> None:
    assert plan_of(updated_by(*operators), {"sequence": 16})["optimizer"] == optimizer
