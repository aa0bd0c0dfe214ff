"""`presim profile` runs exactly a signature's work, as captures on the emulated GPU show."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from presim import hardware
from presim.cost.profile.calls import calls
from presim.cost.profile.calls.families import operators
from presim.cost.profile.measurement_plan import plan
from presim.cost.profile.sweep import standard_sweep
from presim.trace.signatures import (
    Attention,
    Convolution,
    Copy,
    Elementwise,
    Gemm,
    GroupedGemm,
    MemoryBound,
    Normalization,
    Optimizer,
    Signature,
    Softmax,
    Sort,
    family,
)
from support.captured import SCRIPTS, run
from support.command import presim

pytestmark = pytest.mark.torch_cuda

MIB = 1 << 20
FP8 = Gemm(512, 1024, 256, 1, "float8_e4m3fn", out_dtype="bfloat16", layout="NT")
WORK: list[Signature] = [
    *(Gemm(512, 1024, 256, 1, "bfloat16", layout=layout) for layout in ("NN", "NT", "TN", "TT")),
    Gemm(64, 96, 128, 8, "float16", layout="NT"),
    Gemm(512, 512, 512, 1, "float32"),
    Gemm(512, 512, 512, 1, "float32", compute="tf32"),
    Gemm(512, 1024, 256, 1, "bfloat16", layout="TN", accumulate=True),
    *(Gemm(512, 1024, 256, 1, "bfloat16", epilogue=fused) for fused in ("bias", "gelu_bias", "relu_bias")),
    *(
        Gemm(512, 1024, 256, batch, "bfloat16", out_dtype="float32", layout="TN", accumulate=accumulate)
        for batch, accumulate in itertools.product((1, 4), (False, True))
    ),
    Gemm(512, 1024, 256, 1, "int8", compute="int32", out_dtype="int32", layout="NT"),
    msgspec.structs.replace(FP8, epilogue="bias", sums="fast"),
    *(msgspec.structs.replace(FP8, sums=sums) for sums in ("fast", "precise")),
    msgspec.structs.replace(FP8, dtype="float8_e5m2", b_dtype="float8_e4m3fn", sums="precise"),
    msgspec.structs.replace(FP8, out_dtype="float32", sums="fast"),
    msgspec.structs.replace(FP8, scaling="outer"),
    GroupedGemm(8, 4096, 512, 256, "bfloat16"),
    *(
        Attention(direction, 2, 16, kv_heads, 512, 512, 64, 64, True, "bfloat16", backend)
        for direction in ("forward", "backward")
        for backend, kv_heads in (("flash", 4), ("cudnn", 16), ("efficient", 16))
    ),
    *(
        Attention(direction, 2, 16, 16, 512, 512, 64, 64, True, "bfloat16", "cudnn", dropout=True)
        for direction in ("forward", "backward")
    ),
    *(
        Convolution(direction, 8, 64, 128, (56, 56), (3, 3), (28, 28), (2, 2), (1, 1), 1, "bfloat16", layout="nhwc")
        for direction in ("forward", "backward_data", "backward_weight")
    ),
    Copy("d2d", MIB),
    Copy("h2d", MIB, pinned=True),
    Copy("d2h", MIB, pinned=True),
    # Shares of several launches, as a capture of Llama's training has them.
    Optimizer(2344825768, 1758619340, 146551607, "float32", 14, "aten::_fused_adamw_"),
    Optimizer(841019750, 280339917, 140169958, "bfloat16", 165, "aten::_foreach_addcmul_"),
]
LARGEST = 1 << 24  # elements that a host computes in little time
ROUNDED = 16  # bytes that such shares may differ by


def test_each_signature_is_run_exactly(tmp_path: Path) -> None:
    assert set(plan(WORK, (), hardware.gpu("h100-sxm")).work) == set(WORK)
    check(WORK, tmp_path)


@pytest.mark.long
def test_every_operator_that_is_set_up_is_captured_by_its_name(tmp_path: Path) -> None:
    """With one and more operands, of each type, in every layout."""
    work = [each for kind, operator in operators() for each in samples(kind, operator)]
    assert {(type(each), each.operator) for each in work} == set(operators())
    check(work, tmp_path)


def test_the_standard_sweep_is_run_exactly(tmp_path: Path) -> None:
    """Names, types and bytes match captures, so that its rows are found."""
    check(smallest_of_the_sweep(), tmp_path)


@pytest.mark.long
def test_calls_are_valid_on_the_cpu(tmp_path: Path) -> None:
    """PyTorch's CPU kernels check each index; on a GPU an error would leave it unusable."""
    work = [*WORK, *smallest_of_the_sweep(), *(each for kind, name in operators() for each in samples(kind, name))]
    work = [each for each in work if getattr(each, "elements", 0) <= LARGEST and has_kernel_for_hosts(each)]
    work = list(dict.fromkeys(map(quick_for_hosts, work)))
    (tmp_path / "work").write_bytes(msgspec.json.encode(work))
    script = (SCRIPTS / "on_the_host.py", tmp_path / "work", tmp_path / "refused")
    ended = presim("run", "--gpu", "h100-sxm", "--steps", "0", "--quiet", *script)
    assert ended.returncode == 0, ended.stderr
    refused = json.loads((tmp_path / "refused").read_text())
    assert [(each, said) for each, said in zip(work, refused, strict=True) if said] == []
    assert {family(each) for each in work} >= {"gemm", "grouped_gemm", "index", "softmax", "optimizer"}


def quick_for_hosts(signature: Signature) -> Signature:
    """Processors without FP8 multiply such matrices one number at a time."""
    if isinstance(signature, Gemm) and "float8" in signature.dtype:
        return msgspec.structs.replace(signature, m=64, n=96, k=128)
    return signature


def has_kernel_for_hosts(signature: Signature) -> bool:
    """PyTorch has no other CPU attention, wider product results or such norm gradients."""
    if isinstance(signature, Attention):
        return signature.backend == "flash"
    if isinstance(signature, Gemm):
        return "float8" in signature.dtype or signature.out_dtype in ("", "int32")
    mixed = isinstance(signature, Normalization) and signature.operator.endswith("_backward")
    return not mixed or (signature.operator, signature.dtype) == ("aten::native_layer_norm_backward", "float32")


def smallest_of_the_sweep() -> list[Signature]:
    """One of each kind."""
    smallest: dict[tuple[object, ...], Signature] = {}
    for each in standard_sweep():
        names = ("operator", "dtype", "layout", "scaling", "direction", "backend")
        smallest.setdefault((family(each), *(getattr(each, name, "") for name in names)), each)
    return list(smallest.values())


def samples(kind: type[MemoryBound], operator: str) -> Iterator[MemoryBound]:
    """Two signatures of an operator, found by trying sizes of operands and results."""
    count, row, found = 1 << 16, 256, 0
    lists = 4 if operator in ("aten::cat", "aten::_chunk_cat") or kind is Optimizer else 1
    rows = {"row": 0 if "nll" in operator else row} if kind in (Normalization, Softmax) else {}
    for dtype, size in (("bfloat16", 2), ("float32", 4), ("bool", 1), ("int64", 8)):
        large, small, statistics = size * count, size * row, 4 * count // row
        reads = (0, *(large * n for n in (1, 2, 3)), large + count, large + small, large + 2 * small, 9 * count)
        reads += (large // 64 + 8 * row, 4 * large + 4 * lists, 2 * large + statistics + small, (size + 8) * row)
        reads += (2 * large + 2 * statistics + 2 * small, 2 * large + 8 * row)
        writes = (large, count, 4 * count, large + count, size, 8, small, large // 64, 2 * size, 3 * large + 4 * lists)
        writes += (2 * large, small + 8 * row, large + statistics, large + 2 * statistics, large + small)
        writes += (large + 2 * small, 2 * small)
        for read, written in itertools.product(reads, writes):
            made = kind(read, written, count, dtype, lists, operator, **rows)
            if found < 2 and calls(made):
                found += 1
                yield made


def check(work: Sequence[Signature], folder: Path) -> None:
    """Every run launches its signature's work, besides an operator's other work (a memset, group pointers)."""
    (folder / "work.json").write_bytes(msgspec.json.encode(list(work)))
    captured = run("measured_kernels.py", str(folder / "work.json"), steps=0)
    launched = [captured.trace.signatures[index] for index in captured.trace.column("signature") if index >= 0]
    wrong = [(asked, found) for asked, found in runs(launched, work) if not any(meets(one, asked) for one in found)]
    assert wrong == []


def runs(launched: Sequence[Signature], work: Sequence[Signature]) -> Iterator[tuple[Signature, list[Signature]]]:
    """The requested signatures and the work between the script's marks."""
    asked, found, seen = None, [], set()
    for one in launched:
        if isinstance(one, Elementwise) and one.dtype == "int8" and 999 <= one.elements < 1000 + len(work):
            if asked is not None:
                seen.add(asked)
                yield work[asked], found
            asked, found = (one.elements - 1000 if one.elements > 999 else None), []
        else:
            found.append(one)
    assert seen == set(range(len(work)))


def meets(one: Signature, asked: Signature) -> bool:
    """Equal up to rounded shares and the weight gradients written by a norm's other kernel."""
    if isinstance(asked, Optimizer) and isinstance(one, Optimizer):
        names = ("bytes_read", "bytes_written")
        near = all(abs(getattr(one, name) - getattr(asked, name)) <= ROUNDED for name in names)
        return near and (one.operator, one.elements) == (asked.operator, asked.elements)
    if isinstance(asked, Normalization) and asked.operator.endswith("_backward"):
        weights = 2 * asked.row * (asked.bytes_read // asked.elements // 2)
        alone = {asked.bytes_written, asked.bytes_written - weights, asked.bytes_written - weights // 2}
        return one in [msgspec.structs.replace(asked, bytes_written=size) for size in alone]
    return one == asked


@pytest.mark.long
def test_the_measuring_process_reports_times_and_errors(tmp_path: Path) -> None:
    """Its whole loop on the emulated device's clock: cold cache, medians, one line per signature."""
    spread = Elementwise(2 * MIB + 2048, 2 * MIB, MIB, "bfloat16", operator="aten::mul")  # over rows or over columns
    work = [WORK[0], Attention("backward", 1, 8, 8, 512, 512, 64, 64, True, "bfloat16", "flash"), spread]
    (tmp_path / "work").write_bytes(msgspec.json.encode([*work, Sort(1, 1, 1, "int8")]))
    bench = ("-m", "presim.cost.profile.bench", tmp_path / "work", tmp_path / "results", "60")
    ended = presim("run", "--gpu", "h100-sxm", "--steps", "0", "--quiet", *bench)
    assert ended.returncode == 0, ended.stderr
    card, *lines = [json.loads(line) for line in (tmp_path / "results").read_text().splitlines()]
    assert card["gpu"] == "NVIDIA H100 80GB HBM3"
    assert [sorted(line) for line in lines] == [["duration_ns", "samples", "signature", "spread"]] * 3 + [
        ["error", "signature"]
    ]
    assert all(1e3 < line["duration_ns"] < 1e5 and line["samples"] >= 7 for line in lines[:3])
    assert lines[2]["samples"] >= 14


@pytest.mark.long
def test_the_measuring_process_ends_when_the_gpu_fails(tmp_path: Path) -> None:
    """The failed signature has a line; later ones have none, so that another process continues there."""
    (tmp_path / "work").write_bytes(msgspec.json.encode([WORK[0], Sort(1, 1, 1, "int8"), WORK[1]]))
    script = (SCRIPTS / "lost_card.py", tmp_path / "work", tmp_path / "results", "30")
    ended = presim("run", "--gpu", "h100-sxm", "--steps", "0", "--quiet", *script)
    assert ended.returncode == 0, ended.stderr
    _, *lines = [json.loads(line) for line in (tmp_path / "results").read_text().splitlines()]
    assert ["error" in line for line in lines] == [False, True]
