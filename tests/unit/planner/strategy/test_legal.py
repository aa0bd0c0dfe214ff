"""Legal plans are those that no condition rules out, each once; a value that no plan has is said with its equation."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from presim.composition.plan import Plan
from presim.composition.plan_check import CHECKS
from presim.errors import InputError
from presim.hardware.cluster import Cluster
from presim.hardware.cluster_choice import choose_cluster
from presim.planner.space import Space
from presim.planner.strategy.legal import equivalent, illegal_reason, illegal_values, legal_points
from presim.planner.trials.trial import Point, Value, key

BLOCKS = 12
VALUES: dict[str, tuple[Value, ...]] = {
    "nodes": (1, 2, 3),
    "tensor": (1, 2, 3, 8),
    "pipeline": (1, 2, 4, 16),
    "virtual": (1, 2, 4),
    "schedule": ("", "gpipe", "dualpipe", "dualpipev"),
    "sequence_parallel": (False, True),
    "context": (1, 2, 3),
    "context_style": ("all-gather", "ring"),
    "expert": (1, 2),
    "micro_batch": (1, 2, 5),
    "recompute": ("none", "full"),
    "activation_budget": (1.0, 0.5),
    "reshard": (True, False),
    "data_style": ("fsdp2", "hsdp", "ddp", "zero1"),
    "shard": (0, 2, 8),
    "global_batch": (48, 60),
}


def cluster_of(point: Mapping[str, Value]) -> Cluster:
    return cluster(int(point.get("nodes", 1)))


@functools.cache
def cluster(nodes: int) -> Cluster:
    return choose_cluster(gpu="h100-sxm", nodes=nodes)


@some.composite
def spaces(draw: some.DrawFn) -> Space:
    names = draw(some.lists(some.sampled_from(sorted(VALUES)), min_size=1, max_size=6, unique=True))
    varied = {}
    for name in names:
        values = draw(some.lists(some.sampled_from(VALUES[name]), min_size=1, max_size=3, unique=True))
        varied[name] = tuple(values)
    return Space(varied, {"sequence": 4096, **({} if "global_batch" in varied else {"global_batch": 48})})


@settings(deadline=None)
@given(spaces())
def test_the_legal_points_are_those_of_the_product_that_no_condition_rules_out(space: Space) -> None:
    legal = [point for point in space if not illegal_reason(point, cluster_of(point), BLOCKS)]
    firsts = {key(equivalent(point, space.varied, cluster_of(point))) for point in legal}
    generated = [key(point) for point in legal_points(space, cluster_of, BLOCKS)]
    assert sorted(generated) == sorted(firsts & {key(point) for point in legal})
    assert firsts <= {key(point) for point in legal}, "the first of equivalent plans is legal"


class Reader:
    """A plan that remembers the fields that are read."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self.fields = plan, set[str]()

    def __getattr__(self, name: str) -> object:
        if name in Plan.__struct_fields__:
            self.fields.add(name)
            return getattr(self._plan, name)
        attribute = getattr(Plan, name)
        return attribute.fget(self) if isinstance(attribute, property) else functools.partial(attribute, self)


@given(some.data())
def test_conditions_read_no_field_that_they_do_not_name(data: some.DataObject) -> None:
    fields = {name: data.draw(some.sampled_from(values)) for name, values in VALUES.items() if name != "nodes"}
    with contextlib.suppress(InputError):  # the conditions after a broken one rely on it
        for condition in CHECKS:
            reader = Reader(Plan(sequence=4096, **fields))  # type: ignore[arg-type]
            try:
                condition.raise_if_broken(reader, 16, BLOCKS)  # type: ignore[arg-type]
            finally:
                assert reader.fields <= set(condition.fields)


def test_each_value_that_no_plan_has_is_said_once_with_its_equation() -> None:
    space = Space({"tensor": (1, 3, 2), "micro_batch": (1, 7)}, {"sequence": 64, "global_batch": 16})
    legal = list(legal_points(space, cluster_of))
    assert [(point["tensor"], point["micro_batch"]) for point in legal] == [(1, 1), (2, 1)]
    words = [words for _, words in illegal_values(space, cluster_of, 0, legal)]
    assert [text.partition(";")[0] for text in words] == [
        "tensor = 3 does not divide 8 GPUs (8 % 3 = 2)",
        "global_batch = 16 is not a multiple of micro_batch x data = 7 x 8 = 56",
    ]


@pytest.mark.parametrize(
    ("point", "first"),
    [
        ({"tensor": 1, "sequence_parallel": True}, {"tensor": 1, "sequence_parallel": False}),
        ({"pipeline": 2, "reshard": False, "global_batch": 16}, {"pipeline": 2, "reshard": True, "global_batch": 16}),
        ({"data_style": "hsdp", "shard": 8}, {"data_style": "fsdp2", "shard": 0}),
        ({"tensor": 2, "data_style": "hsdp", "shard": 8}, {"tensor": 2, "data_style": "hsdp", "shard": 8}),
    ],
)
def test_a_knob_without_effect_makes_no_other_plan(point: Point, first: Point) -> None:
    assert equivalent({"sequence": 64, **point}, VALUES, cluster(1)) == {"sequence": 64, **first}
