"""Flex attention's mask, read from the source that inductor generates."""

from __future__ import annotations

import pytest

from presim.capture.flex_attention import is_causal

POSITIONS = """
        tmp2 = (m)
        tmp3 = (n)
"""


@pytest.mark.parametrize(
    ("comparison", "causal"),
    [
        ("tmp4 = tmp2 >= tmp3", True),
        ("tmp4 = tmp3 <= tmp2", True),
        ("tmp4 = tmp3 >= tmp2", False),
        ("tmp4 = tmp3 >= tmp7", False),
        ("", False),
    ],
)
def test_a_mask_is_causal_where_the_query_s_position_is_at_least_the_key_s(comparison: str, causal: bool) -> None:
    assert is_causal(f"{POSITIONS}        {comparison}\n        mask_mod_output = tmp4\n") == causal
