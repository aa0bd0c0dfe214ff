"""Which framework a plan needs."""

from __future__ import annotations

from typing import Any

import pytest

from presim.composition.frameworks.framework_choice import EAGER, framework_needed
from presim.composition.plan import Plan


@pytest.mark.parametrize(
    ("fields", "framework"),
    [
        ({}, EAGER),
        ({"tensor": 8}, EAGER),
        ({"pipeline": 4, "global_batch": 32}, EAGER),
        ({"data_style": "hsdp"}, EAGER),
        ({"tensor": 2, "pipeline": 2}, "megatron"),
        ({"expert": 8, "pipeline": 2}, "megatron"),
        ({"tensor": 2, "expert": 8}, "megatron"),
        ({"data_style": "zero1"}, "megatron"),
    ],
)
def test_megatron_is_asked_where_only_megatron_trains_so(fields: dict[str, Any], framework: str) -> None:
    assert framework_needed(Plan(sequence=4096, **fields), fields.keys()) == framework
