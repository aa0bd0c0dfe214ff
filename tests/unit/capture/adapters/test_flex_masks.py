"""Conditions of flex attention's masks, from inductor's source."""

from __future__ import annotations

import pytest

from presim.capture.adapters.flex_masks import Mask, mask_of

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
    assert mask_of(f"{POSITIONS}        tmp8 = {comparison}\n        mask_mod_output = tmp8\n").positions == mask


@pytest.mark.parametrize(
    ("lines", "mask"),
    [
        (("tmp8 = tmp2 >= tmp3",), Mask("causal", 0, True)),
        (
            ("tmp9 = tl.full([1], True, tl.int1)", "tmp10 = tmp2 >= tmp3", "tmp8 = tmp9 & tmp10"),
            Mask("causal", 0, True),
        ),
        (("tmp9 = tmp2 >= tmp3", "tmp10 = tmp5 == tmp6", "tmp8 = tmp9 & tmp10"), Mask("causal", 0, False)),  # documents
        (
            (
                "tmp9 = tmp2 >= tmp3",
                "tmp10 = tmp2 - tmp3",
                "tmp11 = tl.full([1], 1024, tl.int32)",
                "tmp12 = tmp10 < tmp11",
                "tmp8 = tmp9 & tmp12",
            ),
            Mask("causal", 1024, True),
        ),
        (
            (
                "tmp9 = tmp2 >= tmp3",
                "tmp10 = tmp2 - tmp3",
                "tmp11 = tl.full([1], 1024, tl.int64)",
                "tmp12 = tmp11 >= tmp10",
                "tmp13 = tmp5 == tmp6",
                "tmp14 = tmp9 & tmp12",
                "tmp8 = tmp13 & tmp14",
            ),
            Mask("causal", 1025, False),
        ),
        (("tmp10 = tmp5 - tmp3", "tmp11 = tl.full([1], 8, tl.int64)", "tmp8 = tmp10 < tmp11"), Mask("", 0, False)),
        (("tmp8 = tmp5 == tmp6",), Mask("", 0, False)),
        (("tmp9 = tmp2 >= tmp3", "tmp10 = tmp3 < tmp5", "tmp8 = tmp9 | tmp10"), Mask("", 0, False)),  # a prefix
    ],
)
def test_windows_and_other_conditions_are_seen(lines: tuple[str, ...], mask: Mask) -> None:
    text = "".join(f"        {line}\n" for line in lines)
    assert mask_of(f"{POSITIONS}{text}        mask_mod_output = tmp8\n") == mask


def test_names_behind_the_mask_are_of_other_parts() -> None:
    """The source has several loops and an epilogue, which use the same names again."""
    mask = f"{POSITIONS}        tmp8 = tmp2 >= tmp3\n        mask_mod_output = tmp8\n"
    assert mask_of(f"{mask}        tmp8 = tmp5 * tmp6\n        tmp2 = tmp8\n") == Mask("causal", 0, True)
