"""Parsing flex attention's mask and sizes from inductor's source."""

from __future__ import annotations

import pytest

from presim.capture.adapters.flex_attention import has_more_conditions, mask_of, sizes_of

POSITIONS = """
        tmp2 = (m)
        tmp3 = (n)
        tmp5 = tl.load(in_ptr9 + tmp2)
        tmp6 = tl.load(in_ptr10 + tmp3)
        tmp7 = tmp2 + tmp3
"""


@pytest.mark.parametrize(
    ("comparison", "mask"),
    [
        ("tmp2 >= tmp3", "causal"),
        ("tmp3 <= tmp2", "causal"),
        ("tmp3 >= tmp2", ""),
        ("tmp5 >= tmp3", "shared"),
        ("tmp5 >= tmp6", "shared"),
        ("tmp3 >= tmp5", ""),  # the document began before the key
        ("tmp7 >= tmp3", ""),
        ("tmp2 >= tmp9", ""),
    ],
)
def test_a_mask_is_causal_if_the_query_position_is_at_least_the_key_s(comparison: str, mask: str) -> None:
    assert mask_of(f"{POSITIONS}        tmp8 = {comparison}\n        mask_mod_output = tmp8\n") == mask


def test_constant_sizes_are_parsed() -> None:
    """Dynamic sizes are parameters of the kernel."""
    source = "    GQA_SHARED_HEADS : tl.constexpr = 16\n    ZQ = 1\n    HQ = 16\n    Q_LEN = ks0\n    KV_LEN = 32768\n"
    assert sizes_of(source) == {"GQA_SHARED_HEADS": 16, "ZQ": 1, "HQ": 16, "KV_LEN": 32768}


@pytest.mark.parametrize(
    ("lines", "has_more"),
    [
        (("tmp8 = tmp2 >= tmp3", "mask_mod_output = tmp8"), False),
        (("tmp8 = tmp2 >= tmp3", "tmp10 = tmp8 & tmp9", "mask_mod_output = tmp10"), True),  # of one document
        (("tmp8 = tmp5 == tmp6", "mask_mod_output = tmp8"), True),
    ],
)
def test_conditions_besides_positions_are_seen(lines: tuple[str, ...], has_more: bool) -> None:
    assert has_more_conditions(POSITIONS + "".join(f"        {line}\n" for line in lines)) == has_more
