"""Build the request of a search over the knobs of a space file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from presim.errors import InputError
from presim.evaluation.options import RunOptions
from presim.planner.knobs import CLUSTER
from presim.planner.of_model import check_sequence
from presim.planner.search_options import SearchOptions, request_of
from presim.planner.search_request import SearchRequest
from presim.planner.space import Space, parse_knobs
from presim.planner.spaces import rules
from presim.planner.spaces.constraint_facts import facts_of, launch_shape
from presim.planner.spaces.file import read_space
from presim.planner.spaces.plan_fields import as_plans
from presim.planner.trials.placeholders import placeholders
from presim.planner.trials.trial import Value


def request_for_space(
    model: str, command: Sequence[str], settings: SearchOptions, options: RunOptions, fixed: Mapping[str, Value]
) -> SearchRequest:
    """Request for a search over a space's knobs with composed points; ``command`` captures the best of them.

    Raises:
        InputError: as `request_for_model` and `request_for_command`.
    """
    from presim.composition.graph.take import open_graph

    assert settings.space is not None
    space = read_space(settings.space)
    placed = rules.with_placeholders(space, command)
    knob_names = [*space.knobs, *placeholders(command), *CLUSTER]
    varied = parse_knobs(settings.vary, any_name=True)
    if unknown := [name for name in varied if name not in knob_names]:
        raise InputError(
            f"{unknown[0]} is not a knob of the space {settings.space}, which has {', '.join(space.knobs)}"
        )
    check_sequence(fixed, varied)
    point_space, plan_fields, unmeant = as_plans(space, rules.space_of(space, placed, varied))
    facts = {**launch_shape(command, options), **facts_of(model), **fixed}
    checked, notes = rules.checkable_rules(space, [*point_space.varied, *point_space.fixed], facts)
    space_with_plan = Space(point_space.varied, {**point_space.fixed, **space.plan, **fixed})
    words = rules.words_of(
        space, placed, {**{name: (value,) for name, value in point_space.fixed.items()}, **point_space.varied}
    )
    shape: dict[str, Any] = {name: facts[name] for name in ("nodes", "gpus_per_node", "world_size") if name in facts}
    cluster = dataclasses.replace(options, **shape) if options.cluster is None else options
    graph = msgspec.msgpack.encode(open_graph(model, settings.dtype))
    return dataclasses.replace(
        request_of(" ".join(command), settings, cluster, space_with_plan, graph=graph),
        confirm=settings.confirm,
        confirm_command=placed,
        words=words,
        plan_fields=plan_fields,
        rules=checked,
        notes=[*notes, *unmeant],
    )


def request_with_space(
    command: Sequence[str],
    settings: SearchOptions,
    options: RunOptions,
    varied: Mapping[str, tuple[Value, ...]],
    facts: Mapping[str, Value],
) -> SearchRequest:
    """Request for a search over a space file's knobs. A single value for a name that is no knob counts as a fact."""
    assert settings.space is not None
    space = read_space(settings.space)
    placed = rules.with_placeholders(space, command)
    knob_names = {*space.knobs, *placeholders(command), *CLUSTER}
    if several := [name for name, values in varied.items() if name not in knob_names and len(values) > 1]:
        raise InputError(
            f"{several[0]} is not a knob of the space {settings.space}, which has {', '.join(space.knobs)}"
        )
    known_facts = {**launch_shape(command, options), **facts}
    known_facts |= {name: values[0] for name, values in varied.items() if name not in knob_names}
    point_space = rules.space_of(space, placed, varied)
    checked, notes = rules.checkable_rules(space, [*point_space.varied, *point_space.fixed], known_facts)
    request = request_of(" ".join(command), settings, options, point_space, command=placed)
    return dataclasses.replace(
        request,
        words=rules.words_of(space, placed, point_space.varied),
        rules=checked,
        notes=notes,
        confirm=settings.confirm,
        confirm_command=placed,
    )
