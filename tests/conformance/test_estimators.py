"""What every estimator promises; run over all of them, on every generation of GPU."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import strategies as made
from conformance.registry import ESTIMATORS, GPUS, MONOTONE
from presim import hardware
from presim.cost import estimator_conformance
from presim.cost.price import Estimator
from presim.trace.signatures import Attention, Collective, Gemm, GroupedGemm, Kernel, Signature
from support.long_cases import examples

pytestmark = [pytest.mark.parametrize("gpu", GPUS), pytest.mark.parametrize("name", ESTIMATORS)]
QUICK = settings(max_examples=examples(8), deadline=None)


@pytest.fixture
def estimator(name: str, gpu: str) -> Estimator:
    return ESTIMATORS[name](hardware.gpu(gpu))


def fresh(name: str, gpu: str) -> Estimator:
    """Hypothesis wants no fixture that outlives an example."""
    return ESTIMATORS[name](hardware.gpu(gpu))


@QUICK
@given(st.lists(made.signatures(), min_size=1, max_size=12))
def test_answers_are_complete_deterministic_and_independent(name: str, gpu: str, signatures: list[Signature]) -> None:
    estimator_conformance.check_answers(fresh(name, gpu), signatures)


@QUICK
@given(made.signatures())
def test_nothing_beats_the_datasheet(name: str, gpu: str, signature: Signature) -> None:
    estimator_conformance.check_roofline(fresh(name, gpu), signature, hardware.gpu(gpu))


@QUICK
@given(made.gemms() | made.grouped(), st.sampled_from(("m", "n", "k", "batch")), st.integers(1, 64))
def test_larger_products_take_no_less(name: str, gpu: str, small: Gemm | GroupedGemm, side: str, more: int) -> None:
    side = "groups" if isinstance(small, GroupedGemm) and side == "batch" else side
    step = 1 if side in ("batch", "groups") else 16
    scale = small.groups if isinstance(small, GroupedGemm) and side == "m" else 1  # rows of each group stay even
    large = msgspec.structs.replace(small, **{side: getattr(small, side) + step * more * scale})
    if side != "groups":  # more groups of fewer rows each are no larger
        estimator_conformance.check_order(fresh(name, gpu), small, large, exact=name in MONOTONE)


@QUICK
@given(made.attentions(), st.sampled_from(("batch", "heads", "length")), st.integers(2, 5))
def test_longer_attention_takes_no_less(name: str, gpu: str, small: Attention, what: str, times: int) -> None:
    fields = {"batch": ("batch",), "heads": ("heads", "kv_heads"), "length": ("kv_len",)}[what]
    if what == "length" and small.q_len == small.kv_len:
        fields = ("q_len", "kv_len")
    changed = {field: getattr(small, field) * times for field in fields}
    large = msgspec.structs.replace(small, **changed)
    estimator_conformance.check_order(fresh(name, gpu), small, large, exact=name in MONOTONE)


@QUICK
@given(made.memory_bound() | made.copies() | made.kernels(), st.integers(1, 1 << 32))
def test_more_bytes_take_no_less(name: str, gpu: str, small: Signature, more: int) -> None:
    field = "bytes" if hasattr(small, "pinned") or isinstance(small, Kernel) else "bytes_read"
    large = msgspec.structs.replace(small, **{field: getattr(small, field) + more})
    estimator_conformance.check_order(fresh(name, gpu), small, large, exact=name in MONOTONE)


def test_collectives_are_left_to_collective_models(estimator: Estimator) -> None:
    assert estimator.price([Collective(kind="all_reduce", bytes=1, dtype="float32", group=0)]) == [None]


def test_no_signatures_no_prices(estimator: Estimator) -> None:
    assert estimator.price([]) == []
