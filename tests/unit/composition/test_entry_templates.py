"""Templates of trace entries."""

from __future__ import annotations

import pytest

from presim.composition.entry_templates import Rows, Tables
from presim.composition.host_gaps import host_times
from presim.errors import InputError
from presim.trace.schema import Category, Phase


def test_a_block_that_64_bits_cannot_count_is_one_sentence() -> None:
    rows = Rows(Tables(), host_times(), Phase.FORWARD)
    rows.alloc("0", (1 << 63) - 1, Category.OTHER)
    assert len(rows.template()) == 1
    rows.alloc("1", 1 << 63, Category.OTHER)
    sentence = r"^a tensor of the step takes 2\^63 bytes or more; lower sequence or micro_batch$"
    with pytest.raises(InputError, match=sentence):
        rows.template()
