"""Sizes in the source of flex attention, and the keys that a mask lets a query see."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from presim.capture.adapters import flex_attention
from presim.capture.adapters.flex_attention import KernelFacts, sizes_of
from presim.capture.adapters.flex_masks import Mask


@pytest.fixture(autouse=True)
def _no_assumptions() -> Iterator[None]:
    yield
    flex_attention._POLICY = flex_attention.MaskPolicy()


def test_constant_sizes_are_parsed() -> None:
    """Dynamic sizes are parameters of the kernel."""
    source = "    GQA_SHARED_HEADS : tl.constexpr = 16\n    ZQ = 1\n    HQ = 16\n    Q_LEN = ks0\n    KV_LEN = 32768\n"
    assert sizes_of(source) == {"GQA_SHARED_HEADS": 16, "ZQ": 1, "HQ": 16, "KV_LEN": 32768}


@pytest.mark.parametrize(
    ("mask", "block", "visited", "notes"),
    [
        (Mask("causal", 0, True), 128, (4096, True), 0),
        (Mask("causal", 0, False), 128, (4096, True), 1),  # of documents
        (Mask("causal", 1024, True), 128, (1152, False), 0),
        (Mask("causal", 3000, True), 128, (4096, True), 0),  # hides less than positions do
        (Mask("shared", 0, True), 128, (2048, False), 0),
        (Mask("", 0, False), 1 << 30, (4096, False), 0),  # without blocks there is no mask
    ],
)
def test_a_query_visits_what_its_mask_may_show(mask: Mask, block: int, visited: tuple[int, bool], notes: int) -> None:
    facts = KernelFacts(mask, {"SPARSE_KV_BLOCK_SIZE": block})
    assert flex_attention._visited(facts, 4096, 4096) == visited
    assert len(flex_attention.notes()) == notes


def test_a_policy_gives_the_share_of_blocks() -> None:
    flex_attention._POLICY = flex_attention.MaskPolicy(visited_share=0.125)
    facts = KernelFacts(Mask("causal", 0, False), {"SPARSE_KV_BLOCK_SIZE": 128})
    assert flex_attention._visited(facts, 4096, 4096) == (512, False)
    assert not flex_attention.notes()


def test_a_share_that_no_mask_asks_for_is_named() -> None:
    flex_attention._POLICY = flex_attention.MaskPolicy(visited_share=0.125)
    assert flex_attention._visited(KernelFacts(Mask(), {}), 4096, 4096) == (4096, False)
    assert flex_attention.notes()[0].startswith("The policy attention_share had no effect")
