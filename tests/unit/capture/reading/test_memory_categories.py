"""Categories of memory blocks, from hand-written logs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from presim.capture.reading.memory_categories import categorize
from presim.trace.schema import BUCKETS, COLUMNS, Category, Kind, Phase

SCOPES = {"model": 0, BUCKETS: 1}
OPERATORS = {"aten::mm": 0, "FSDP::all_gather_copy_out": 1, "FSDP::post_backward_reduce": 2}


class Log:
    """Entries of a log as columns; each takes 10 ns of host time."""

    def __init__(self) -> None:
        self.rows: list[dict[str, int]] = []

    def add(self, kind: Kind, phase: Phase = Phase.OTHER, **fields: int) -> None:
        self.rows.append(
            {"kind": kind, "phase": phase, "signature": -1, "scope": -1, "operator": -1, "host_ns": 10, **fields}
        )

    def block(
        self, address: int, born: Phase, died: Phase | None, *, named: Category | None = None, operator: int = -1
    ) -> None:
        """A block's allocation and, unless ``died`` is None, its free."""
        self.add(Kind.ALLOC, born, object=address, value=512, operator=operator)
        if named is not None:
            self.add(Kind.RETAG, born, object=address, value=named)
        if died is not None:
            self.add(Kind.FREE, died, object=address, value=512)

    def columns(self) -> dict[str, np.ndarray[Any, Any]]:
        return {name: np.array([row.get(name, 0) for row in self.rows], dtype) for name, dtype in COLUMNS.items()}

    def categorized(self) -> list[tuple[Kind, int, int]]:
        """Kind, address and value of each entry."""
        result = categorize(self.columns(), OPERATORS, SCOPES)
        return [
            (Kind(kind), *rest) for kind, *rest in zip(*(result[name].tolist() for name in ("kind", "object", "value")))
        ]

    def categories(self) -> dict[int, Category]:
        """Category by address."""
        return {address: Category(value) for kind, address, value in self.categorized() if kind == Kind.RETAG}


@pytest.mark.parametrize(
    ("born", "died", "category"),
    [
        (Phase.FORWARD, Phase.FORWARD, Category.TEMPORARY),
        (Phase.FORWARD, Phase.BACKWARD, Category.ACTIVATION),
        (Phase.FORWARD, None, Category.ACTIVATION),
        (Phase.RECOMPUTE, Phase.RECOMPUTE, Category.TEMPORARY),
        (Phase.RECOMPUTE, Phase.BACKWARD, Category.ACTIVATION),
        (Phase.BACKWARD, Phase.BACKWARD, Category.TEMPORARY),
        (Phase.OPTIMIZER, Phase.OPTIMIZER, Category.TEMPORARY),
    ],
)
def test_an_unnamed_block_is_categorised_by_its_lifetime(born: Phase, died: Phase | None, category: Category) -> None:
    log = Log()
    log.block(0x1000, born, died)
    assert log.categories() == {0x1000: category}


def test_a_block_allocated_outside_any_phase_has_no_category() -> None:
    log = Log()
    log.block(0x1000, Phase.OTHER, None)
    assert log.categories() == {}


def test_a_block_that_outlives_backward_is_an_activation() -> None:
    """A variable of the script keeps the logits until it is reassigned in the next step."""
    log = Log()
    log.add(Kind.ALLOC, Phase.FORWARD, object=0x1000, value=512)
    log.add(Kind.DEVICE_SYNC, Phase.BACKWARD)
    log.add(Kind.FREE, Phase.FORWARD, object=0x1000, value=512)
    assert log.categories() == {0x1000: Category.ACTIVATION}


def test_a_name_overrides_the_lifetime() -> None:
    log = Log()
    log.block(0x1000, Phase.BACKWARD, Phase.OPTIMIZER, named=Category.GRADIENT)
    log.block(0x2000, Phase.FORWARD, Phase.FORWARD, named=Category.INPUT, operator=1)
    assert log.categories() == {0x1000: Category.GRADIENT, 0x2000: Category.INPUT}


def test_the_first_name_of_a_block_stays() -> None:
    """A parameter passed to a module as an input is a parameter."""
    log = Log()
    log.block(0x1000, Phase.OTHER, None, named=Category.PARAMETER)
    log.add(Kind.RETAG, object=0x1000, value=Category.INPUT)
    assert log.categories() == {0x1000: Category.PARAMETER}


def test_fsdp_buffers_are_recognised_by_their_range() -> None:
    log = Log()
    log.block(0x1000, Phase.FORWARD, Phase.BACKWARD, operator=1)
    log.block(0x2000, Phase.BACKWARD, Phase.BACKWARD, operator=2)
    log.block(0x3000, Phase.FORWARD, Phase.BACKWARD, operator=0)
    assert log.categories() == {
        0x1000: Category.PARAMETER,
        0x2000: Category.COMMUNICATION,
        0x3000: Category.ACTIVATION,
    }


def test_an_address_used_twice_is_two_blocks() -> None:
    """The first one's name does not apply to the second."""
    log = Log()
    log.block(0x1000, Phase.FORWARD, Phase.FORWARD, named=Category.INPUT)
    log.block(0x1000, Phase.BACKWARD, Phase.BACKWARD)
    retags = [value for kind, _, value in log.categorized() if kind == Kind.RETAG]
    assert retags == [Category.INPUT, Category.TEMPORARY]


def test_a_name_without_a_live_block_is_dropped() -> None:
    log = Log()
    log.block(0x1000, Phase.OTHER, Phase.OTHER)
    log.add(Kind.RETAG, object=0x1000, value=Category.PARAMETER)
    assert log.categories() == {}


def test_each_retag_follows_its_allocation_and_host_time_is_kept() -> None:
    """The time before a moved entry is added to the next remaining one."""
    log = Log()
    log.add(Kind.ALLOC, Phase.FORWARD, object=0x1000, value=512)
    log.add(Kind.WORK, Phase.FORWARD, signature=0)
    log.add(Kind.RETAG, Phase.FORWARD, object=0x1000, value=Category.INPUT)
    log.add(Kind.WORK, Phase.FORWARD, signature=0)
    result = categorize(log.columns(), OPERATORS, SCOPES)
    assert result["kind"].tolist() == [Kind.ALLOC, Kind.RETAG, Kind.WORK, Kind.WORK]
    assert result["host_ns"].tolist() == [10, 0, 10, 20]
    assert result["signature"].tolist() == [-1, -1, 0, 0]


def test_an_empty_log_stays_empty() -> None:
    assert len(categorize(Log().columns(), OPERATORS, SCOPES)["kind"]) == 0


def test_what_differentiable_operators_leave_before_any_module_runs_is_no_activation() -> None:
    """A framework flattens parameters with them; a block of the first step's own forward pass ends with the step."""
    log = Log()
    log.block(0x1000, Phase.FORWARD, None)
    log.add(Kind.ALLOC, Phase.FORWARD, object=0x2000, value=512)
    log.add(Kind.WORK, Phase.FORWARD, signature=0, scope=0)
    log.add(Kind.WORK, Phase.BACKWARD, signature=0)
    log.add(Kind.FREE, Phase.BACKWARD, object=0x2000, value=512)
    log.add(Kind.STEP)
    assert log.categories() == {0x2000: Category.ACTIVATION}


def test_buckets_of_ddp_are_communication() -> None:
    """Those of the set-up, and those that the second forward pass allocates."""
    log = Log()
    log.add(Kind.ALLOC, Phase.OTHER, object=0x1000, value=512, scope=1)
    log.add(Kind.ALLOC, Phase.FORWARD, object=0x2000, value=512, scope=1)
    log.add(Kind.WORK, Phase.BACKWARD, signature=0, scope=0)
    assert log.categories() == {0x1000: Category.COMMUNICATION, 0x2000: Category.COMMUNICATION}


def test_names_belong_to_the_block_that_lives_at_their_address() -> None:
    """The first name counts; a block that is allocated over has none, and a name without a block is ignored."""
    log = Log()
    log.add(Kind.RETAG, object=1, value=Category.GRADIENT)
    log.block(1, Phase.BACKWARD, None, named=Category.INPUT)
    log.block(2, Phase.BACKWARD, None, named=Category.PARAMETER)
    log.add(Kind.RETAG, object=2, value=Category.GRADIENT)
    log.block(1, Phase.BACKWARD, Phase.BACKWARD)
    log.add(Kind.RETAG, object=1, value=Category.BUFFER)
    columns = categorize(log.columns(), OPERATORS, SCOPES)
    is_name = columns["kind"] == Kind.RETAG
    assert [*zip(columns["object"][is_name].tolist(), columns["value"][is_name].tolist())] == [
        (2, Category.PARAMETER),
        (1, Category.TEMPORARY),
    ]
