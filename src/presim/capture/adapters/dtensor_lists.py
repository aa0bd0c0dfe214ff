"""Plan the tensors of a list with the same shape and placements once in a DTensor operator.

``clip_grad_norm_``, foreach and fused optimizers hand DTensor lists of all parameters. At the first such call PyTorch
enumerates the combinations of placements of every tensor, for an optimizer of a two-dimensional mesh thousands each,
though all layers have the same few kinds of parameters. Within one call, the plan of a tensor serves its likes. The
plans are those that PyTorch makes; only the host time of the first step shrinks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from presim.capture.script.after_import import when_imported

_EXPAND_LIST, _EXPAND_TENSOR = "_expand_single_dim_strategy_to_mesh", "expand_to_full_mesh_op_strategy"


def install() -> None:
    """Install for DTensor."""
    plans = CallPlans()
    when_imported("torch.distributed.tensor._sharding_prop", plans.keep_within_calls)
    when_imported("torch.distributed.tensor._ops.utils", plans.share)


class CallPlans:
    """The plans of the tensors of one call, in each thread; none outside of calls with lists."""

    def __init__(self) -> None:
        self._thread = threading.local()

    def keep_within_calls(self, module: Any) -> None:
        """Keep plans while PyTorch plans an operator with lists; ``module``: where it asks for that."""
        expand = getattr(module, _EXPAND_LIST, None)
        if expand is None:
            return

        def expand_list(mesh: Any, op_schema: Any, *args: Any) -> Callable[..., Any]:
            strategy: Callable[..., Any] = expand(mesh, op_schema, *args)
            has_list = any(hasattr(argument, "children") for argument in op_schema.args_schema)
            return self._with_plans(strategy) if has_list else strategy

        setattr(module, _EXPAND_LIST, expand_list)

    def share(self, module: Any) -> None:
        """Take a tensor's plan from its likes in the same call; ``module``: where PyTorch makes the plan."""
        expand = getattr(module, _EXPAND_TENSOR, None)
        if expand is None:
            return

        def expand_tensor(mesh: Any, op_schema: Any, strategies: Any, *args: Any, **kwargs: Any) -> Any:
            plans: dict[Hashable, Any] | None = getattr(self._thread, "plans", None)
            if plans is None:
                return expand(mesh, op_schema, strategies, *args, **kwargs)
            key = _frozen((mesh, op_schema.op, _input_specs(op_schema), strategies, args, sorted(kwargs.items())))
            try:
                plan = plans.get(key)
            except TypeError:  # symbolic shapes have no hash
                return expand(mesh, op_schema, strategies, *args, **kwargs)
            if plan is None:
                plan = plans[key] = expand(mesh, op_schema, strategies, *args, **kwargs)
            return plan

        setattr(module, _EXPAND_TENSOR, expand_tensor)

    def _with_plans(self, strategy: Callable[..., Any]) -> Callable[..., Any]:
        def expand_with_plans(*args: Any) -> Any:
            self._thread.plans = {}
            try:
                return strategy(*args)
            finally:
                self._thread.plans = None

        return expand_with_plans


def _input_specs(op_schema: Any) -> list[Any]:
    """What the plan of one tensor depends on: mesh, placements, order of shards, shape and type of each operand.

    Specs are equal whatever they say of strided shards, so that is listed beside them.
    """
    specs = (
        (strategy.output_spec, getattr(strategy.output_spec, "use_strided_shard_as_shard_order", None))
        for operand in (*op_schema.args_strategy, *op_schema.kwargs_strategy)
        for strategy in operand.strategies
    )
    return list(specs)


def _frozen(value: Any) -> Any:
    """Nested plain lists and tuples as tuples."""
    if type(value) in (list, tuple):
        items: Sequence[Any] = value
        return tuple(map(_frozen, items))
    return value
