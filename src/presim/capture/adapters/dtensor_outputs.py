"""Derive the outputs of a DTensor operator on lists from one tensor of each kind.

Before DTensor plans an operator, it runs it on fake tensors of all operands for the shapes of its outputs: a thousand
for a fused optimizer, which has none. The operator's schema says whether it has outputs. ``_foreach`` operators compute
each place of their lists by itself, so places with the same operands have the same outputs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from presim.capture.script.after_import import when_imported

_DERIVE = "_propagate_tensor_meta_non_cached"
_BY_PLACE = "aten::_foreach_"

Derive = Callable[[Any, Any], Any]  # propagator and schema of a call -> `TensorMeta` of its outputs


def install() -> None:
    """Install for DTensor."""
    when_imported("torch.distributed.tensor._sharding_prop", _install)


def _install(module: Any) -> None:
    propagator = getattr(module, "ShardingPropagator", None)
    derive: Derive | None = getattr(propagator, _DERIVE, None)
    if derive is None:
        return

    @functools.wraps(derive)
    def derive_by_kind(self: Any, op_schema: Any) -> Any:
        return outputs(op_schema, functools.partial(derive, self), module.DTensorSpec, module.OpSchema)

    setattr(propagator, _DERIVE, derive_by_kind)


def outputs(op_schema: Any, derive: Callable[[Any], Any], spec: type, remake: Callable[..., Any]) -> Any:
    """What ``derive`` says of a call's outputs, asked for as little as possible.

    ``spec``: the type of a tensor in the call. ``remake``: makes a call from an operator, arguments and keywords.
    """
    lists = [argument for argument in op_schema.args_schema if isinstance(argument, list | tuple)]
    if not any(isinstance(element, spec) for elements in lists for element in elements):
        return derive(op_schema)
    schema = op_schema.op._schema
    if not schema.returns:
        return None
    places = _places(op_schema, lists, spec) if schema.name.startswith(_BY_PLACE) else None
    if places is None:
        return derive(op_schema)
    first = {place: number for number, place in reversed(list(enumerate(places)))}
    kept = sorted(first.values())
    arguments = tuple(
        type(argument)(argument[number] for number in kept) if isinstance(argument, list | tuple) else argument
        for argument in op_schema.args_schema
    )
    derived = derive(remake(op_schema.op, arguments, op_schema.kwargs_schema))
    if not isinstance(derived, list | tuple) or len(derived) != len(kept):
        return derive(op_schema)
    by_place = {places[number]: output for number, output in zip(kept, derived)}
    return type(derived)(by_place[place] for place in places)


def _places(op_schema: Any, lists: Sequence[Sequence[Any]], spec: type) -> list[tuple[Any, ...]] | None:
    """Shapes and types of the operands at each place; None where a list has something else or shapes are symbolic."""
    is_plain = all(isinstance(element, spec) for elements in lists for element in elements)
    if not is_plain or len({len(elements) for elements in lists}) != 1:
        return None
    if any(isinstance(value, list | tuple) for value in op_schema.kwargs_schema.values()):
        return None
    places = [tuple(operand.tensor_meta for operand in operands) for operands in zip(*lists)]
    try:
        return places if len(set(places)) < len(places) else None
    except TypeError:  # symbolic shapes have no hash
        return None
