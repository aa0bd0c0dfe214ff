"""What readers of tables share."""

from __future__ import annotations

from presim.cost.measured.importers.import_tables import sample


def test_a_sample_is_the_same_each_time_and_keeps_the_order() -> None:
    rows = list(range(1000))
    chosen = sample(rows, 100, "table")
    assert chosen == sample(rows, 100, "table") == sorted(set(chosen))
    assert (len(chosen), sample(rows, 0, "table"), sample(rows, 2000, "table")) == (100, rows, rows)
    assert chosen != sample(rows, 100, "another")
