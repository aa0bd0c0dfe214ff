"""Planning DTensor operators on lists once for alike tensors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from presim.capture.adapters.dtensor_lists import CallPlans
from support import emulated

CODE = """
import torch, torch.distributed as dist
import torch.distributed.tensor._ops.utils as utils
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import _sharding_prop
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from presim.capture.adapters import dtensor_flags, dtensor_lists, dtensor_outputs

dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=32)
mesh = init_device_mesh("cuda", (4, 8), mesh_dim_names=("dp", "tp"))
layer = lambda: nn.Sequential(nn.Linear(64, 64, bias=False), nn.Linear(64, 64, bias=False), nn.LayerNorm(64))
model = nn.Sequential(*(layer() for _ in range(6))).cuda()
for part in model:
    parallelize_module(part, mesh["tp"], {"0": ColwiseParallel(), "1": RowwiseParallel()})
    fully_shard(part, mesh=mesh["dp"])

propagator, schemas = torch.distributed.tensor.DTensor._op_dispatcher.sharding_propagator, []
plan = propagator.propagate_op_sharding_non_cached
propagator.propagate_op_sharding_non_cached = lambda schema: (schemas.append(schema), plan(schema))[1]
for fused in (True, False):
    optimizer = torch.optim.AdamW(model.parameters(), fused=fused, foreach=not fused)
    model(torch.ones(2, 64, device="cuda")).sum().backward()
    grads = [[p.grad for p in model.parameters() if p.grad.device_mesh.ndim == n] for n in (1, 2)]
    [torch.nn.utils.get_total_norm(some) for some in grads if some]
    optimizer.step()
    optimizer.zero_grad()
expand, counts = utils.expand_to_full_mesh_op_strategy, [0]
def counted(*args, **kwargs):
    counts[0] += 1
    return expand(*args, **kwargs)
utils.expand_to_full_mesh_op_strategy = counted

def spec(value):
    return [str(value), str(getattr(value, "use_strided_shard_as_shard_order", None))]
def summary(schema):
    sharding = plan(schema)
    outputs = sharding.output_spec if isinstance(sharding.output_spec, tuple | list) else [sharding.output_spec]
    return [str(schema.op), [spec(o) for o in outputs], sharding.needs_redistribute, str(sharding.redistribute_schema)]

made = []
empty = torch.empty_strided
torch.empty_strided = lambda *args, **kwargs: (made.append(args), empty(*args, **kwargs))[1]
def fakes():
    derive = propagator._propagate_tensor_meta_non_cached
    return [[made.clear(), str(derive(schema)), len(made)][1:] for schema in schemas]

results["theirs"], theirs = [summary(schema) for schema in schemas], counts[0]
results["their outputs"] = fakes()
dtensor_flags.install()
dtensor_lists.install()
dtensor_outputs.install()
results["ours"] = [summary(schema) for schema in schemas]
results["our outputs"] = fakes()
results["expansions"] = [theirs, counts[0] - theirs]
leaves = [leaf for schema in schemas for leaf in torch.utils._pytree.tree_leaves(schema.args_schema)]
placements = [placement for leaf in leaves for placement in getattr(leaf, "placements", ())]
results["strided"] = sum(isinstance(placement, _sharding_prop._StridedShard) for placement in placements)
"""


@pytest.mark.torch_cuda
def test_plans_are_those_of_pytorch(tmp_path: Any) -> None:
    """Fused and foreach optimizers and norms over FSDP2 with tensor parallelism are planned alike, with less work."""
    emulated.require_cuda_torch()
    results: dict[str, Any] = emulated.run(CODE, tmp_path, TORCH_NCCL_ENABLE_MONITORING="0").results
    operators = {plan[0] for plan in results["theirs"]}
    assert {"aten._fused_adamw_.default", "aten._foreach_norm.Scalar"} <= operators
    assert results["ours"] == results["theirs"]
    ours, theirs = (results[f"{whose} outputs"] for whose in ("our", "their"))
    assert [text for text, _ in ours] == [text for text, _ in theirs]
    assert 4 * sum(fakes for _, fakes in ours) < sum(fakes for _, fakes in theirs)
    theirs, ours = results["expansions"]
    assert 3 * ours < theirs
    assert results["strided"] > 0, "tensor parallelism below FSDP2 has strided shards"


def spec(*placements: str, flag: bool | None = None) -> SimpleNamespace:
    """An operand with one possible spec, which is compared by its placements alone."""
    return SimpleNamespace(
        strategies=[SimpleNamespace(output_spec=Spec(placements, flag))],
    )


class Spec(tuple[str, ...]):
    """Placements, equal whatever their flag."""

    use_strided_shard_as_shard_order: bool | None

    def __new__(cls, placements: tuple[str, ...], flag: bool | None) -> Spec:
        self = super().__new__(cls, placements)
        self.use_strided_shard_as_shard_order = flag
        return self


def schema(*operands: SimpleNamespace) -> SimpleNamespace:
    """An operator's call with one tensor per list."""
    return SimpleNamespace(op="norm", args_strategy=operands, kwargs_strategy=())


def planned(plans: CallPlans, calls: list[list[SimpleNamespace]], *, has_list: bool = True) -> list[list[str]]:
    """What operators get for the schemas of their tensors; each plan is numbered by PyTorch's expansion."""
    numbers = iter(range(100))
    utils = SimpleNamespace(
        expand_to_full_mesh_op_strategy=lambda mesh, op_schema, strategies, **options: f"plan {next(numbers)}"
    )
    plans.share(utils)

    def expand_list(mesh: str, op_schema: Any, *args: Any) -> Any:
        tensors = op_schema.tensors
        return lambda: [
            utils.expand_to_full_mesh_op_strategy(mesh, tensor, [["shard"]], inplace_op=True) for tensor in tensors
        ]

    module = SimpleNamespace(_expand_single_dim_strategy_to_mesh=expand_list)
    plans.keep_within_calls(module)
    argument = SimpleNamespace(children=()) if has_list else SimpleNamespace()
    whole = [SimpleNamespace(args_schema=(argument,), tensors=tensors) for tensors in calls]
    return [module._expand_single_dim_strategy_to_mesh("mesh", call)() for call in whole]


def test_alike_tensors_of_a_call_share_a_plan() -> None:
    """Placements and the flag of strided shards tell tensors apart; another call plans anew."""
    kinds = [schema(spec("S0")), schema(spec("R")), schema(spec("S0")), schema(spec("S0", flag=True))]
    assert planned(CallPlans(), [kinds, kinds[:1]]) == [["plan 0", "plan 1", "plan 0", "plan 2"], ["plan 3"]]


def test_operators_without_lists_are_planned_by_pytorch() -> None:
    kinds = [schema(spec("S0")), schema(spec("S0"))]
    assert planned(CallPlans(), [kinds], has_list=False) == [["plan 0", "plan 1"]]


def test_specs_without_a_hash_are_planned_each() -> None:
    """Symbolic shapes have none."""
    symbolic = SimpleNamespace(strategies=[SimpleNamespace(output_spec={"shape": "s0"})])
    assert planned(CallPlans(), [[schema(symbolic), schema(symbolic)]]) == [["plan 0", "plan 1"]]


def test_a_pytorch_without_these_functions_is_not_patched() -> None:
    other = SimpleNamespace()
    CallPlans().share(other)
    CallPlans().keep_within_calls(other)
    assert not vars(other)
