"""The constants' files: complete, plausible, and they say where they come from."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from presim import hardware
from presim.cost.analytic import operator_constants
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.analytic.gpu_figures import device_of, precision
from presim.cost.collectives import collective_constants
from presim.trace.signatures import Gemm

KINDS: dict[str, type[operator_constants.ConstantsOrigin]] = {
    "gemm": operator_constants.GemmConstants,
    "attention": operator_constants.AttentionConstants,
    "memory_bound": operator_constants.MemoryConstants,
}
ENTRIES: list[tuple[str, type[operator_constants.ConstantsOrigin], dict[str, Any]]] = [
    (f"{section}.{generation}.{name}", kind, entry)
    for section, kind in KINDS.items()
    for generation, entries in operator_constants.table()[section].items()
    for name, entry in entries.items()
]
ENTRIES += [
    (f"{section}.{name}", kind, entry)
    for section, kind in (
        ("link", collective_constants.LinkConstants),
        ("fabric", collective_constants.FabricConstants),
    )
    for name, entry in collective_constants.table()[section].items()
]


@pytest.mark.parametrize(("name", "kind", "entry"), ENTRIES, ids=[name for name, _, _ in ENTRIES])
def test_an_entry_is_complete_and_says_where_it_comes_from(
    name: str, kind: type[operator_constants.ConstantsOrigin], entry: dict[str, Any]
) -> None:
    read = msgspec.convert(entry, kind, strict=False)
    assert 0 < read.uncertainty < 1
    assert re.search(r" [0-9a-f]{7}\b|[Dd]erived|[Gg]uess|github.com/", read.source), f"{name}: {read.source}"
    assert not read.points or read.held_out_median > 0, f"{name} has {read.points} points but no error"
    unknown = set(entry) - set(kind.__struct_fields__)
    assert not unknown, f"{name} has {unknown} that no formula reads"


@pytest.mark.parametrize("gpu", hardware.gpus(), ids=lambda gpu: gpu.id)
def test_every_gpu_of_the_catalogue_finds_constants(gpu: hardware.Gpu) -> None:
    generation = device_of(gpu).generation
    assert operator_constants.find_constants(operator_constants.GemmConstants, "gemm", generation, ("bf16",))
    assert operator_constants.find_constants(operator_constants.GemmConstants, "gemm", generation, ("fp32",))
    assert operator_constants.find_constants(
        operator_constants.AttentionConstants, "attention", generation, ("flash", "cudnn")
    )
    assert operator_constants.find_constants(
        operator_constants.MemoryConstants, "memory_bound", generation, ("elementwise",)
    )


def test_borrowed_constants_are_doubted() -> None:
    _, own = operator_constants.find_constants(operator_constants.GemmConstants, "gemm", "hopper", ("bf16",))
    _, other = operator_constants.find_constants(operator_constants.GemmConstants, "gemm", "cdna3", ("bf16",))
    _, unheard = operator_constants.find_constants(operator_constants.GemmConstants, "gemm", "rubin", ("bf16",))
    assert (own, other, unheard) == (1.0, operator_constants.BORROWED, operator_constants.BORROWED)


def test_precision_by_type_and_accumulation() -> None:
    assert precision("float32") == "fp32"
    assert precision("float32", "tf32") == "tf32"
    assert precision("float8_e5m2") == "fp8"
    assert precision("int64") == "fp32"


def test_what_steps_on_two_gpus_tell_is_kept_of_the_peak() -> None:
    """GB300 has GB200's FP8 peak, and a fifth more of it is left in a step; B200 is what the tables are of."""
    shares = {name: device_of(hardware.gpu(name)).sustained for name in ("b200", "gb200", "gb300")}
    assert shares["b200"] == 1.0
    assert shares["gb300"] / shares["gb200"] == pytest.approx(1.22, abs=0.01)


@pytest.mark.parametrize("name", ["gb200", "gb300"])
def test_eight_bits_are_twice_as_fast_as_sixteen_and_no_more(name: str) -> None:
    """1.9 to 2.0 is what was measured on Blackwell at best, and what the peaks say."""
    device = AnalyticEstimator(hardware.gpu(name))
    dtypes = ("bfloat16", "float16", "float8_e4m3fn")
    products = [Gemm(m=8192, n=16384, k=16384, batch=1, dtype=dtype) for dtype in dtypes]
    half, other_half, eighth = (price.duration_ns for price in device.price(products) if price is not None)
    assert 1.85 < half / eighth < 2.05
    assert half == other_half


def test_a_gpu_that_rests_has_one_share_for_all_precisions() -> None:
    resting = device_of(hardware.gpu("gb300"), burst=True)
    assert resting.sustained_share("bf16") == resting.sustained_share("fp8") == resting.sustained
