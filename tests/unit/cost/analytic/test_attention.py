"""Attention: causal halves, backward's share, backends, windows and decoding."""

from __future__ import annotations

import statistics
from pathlib import Path

import msgspec
import pytest

from presim import hardware
from presim.cost.analytic import attention
from presim.cost.analytic.gpu_figures import Device, device_of
from presim.cost.price import Price
from presim.studies.validation.case_tables import read_table
from presim.studies.validation.cases import Case
from presim.studies.validation.published_operators import OPERATORS, signature_of
from presim.trace.signatures import Attention

PAPERS = Path(__file__).parents[4] / "validation" / "papers"
PUBLISHED, CUDNN = PAPERS / "attention.csv", PAPERS / "cudnn.csv"

LLAMA = Attention(
    direction="forward", batch=1, heads=32, kv_heads=8, q_len=8192, kv_len=8192, head_dim=128, v_head_dim=128,
    causal=True, dtype="bfloat16", backend="cudnn",
)  # fmt: skip


@pytest.fixture
def h100() -> Device:
    return device_of(hardware.gpu("h100-sxm"))


def priced(device: Device, **changes: object) -> Price:
    return attention.price([msgspec.structs.replace(LLAMA, **changes)], device)[0]


def test_causal_costs_about_half(h100: Device) -> None:
    ratio = priced(h100, causal=False).duration_ns / priced(h100).duration_ns
    assert 1.8 < ratio < 2.0


def test_backward_costs_about_three_forwards(h100: Device) -> None:
    """2.5 times the FLOPs at 0.83 of the efficiency."""
    ratio = priced(h100, direction="backward").duration_ns / priced(h100).duration_ns
    assert 2.5 < ratio < 3.5


def test_backward_is_doubted_more(h100: Device) -> None:
    assert priced(h100, direction="backward").uncertainty > priced(h100).uncertainty


def test_backends_rank_on_hopper(h100: Device) -> None:
    times = [priced(h100, backend=backend).duration_ns for backend in ("cudnn", "flash", "efficient")]
    assert times == sorted(times)


def test_an_unknown_backend_is_taken_for_flash_and_doubted(h100: Device) -> None:
    known, unknown = priced(h100, backend="flash"), priced(h100, backend="newest")
    assert unknown.duration_ns == known.duration_ns
    assert unknown.uncertainty == 2 * known.uncertainty


def test_a_window_bounds_the_work(h100: Device) -> None:
    assert priced(h100, window=512).duration_ns < priced(h100).duration_ns / 4


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_only_cudnns_backward_in_fp8_works_beyond_the_window(dtype: str) -> None:
    """Measured on a GB300 (NVIDIA/cudnn-frontend c3552de): bf16 0.855 and 0.439 ms, FP8 5.221 and 1.487 ms."""
    gb300 = device_of(hardware.gpu("gb300"), burst=True)
    heads = {"batch": 2, "heads": 128, "kv_heads": 128, "head_dim": 64, "v_head_dim": 64, "window": 128, "dtype": dtype}
    times = {
        (direction, length): priced(gb300, direction=direction, q_len=length, kv_len=length, **heads).duration_ns
        for direction in ("forward", "backward")
        for length in (4096, 8192)
    }
    assert times["forward", 8192] < 2.1 * times["forward", 4096]
    growth, measured = times["backward", 8192] / times["backward", 4096], {"bfloat16": 1.95, "float8_e4m3fn": 3.51}
    assert growth == pytest.approx(measured[dtype], rel=0.1)


def test_decoding_reads_the_cache_once_for_all_heads_that_share_it(h100: Device) -> None:
    price = priced(h100, q_len=1, batch=64, kv_len=32768)
    cache_ns = 64 * 2 * 8 * 32768 * 128 * 2 / 3350
    assert price.bound == "memory"
    assert cache_ns < price.duration_ns < 1.5 * cache_ns


def test_few_heads_leave_sms_idle(h100: Device) -> None:
    """One head has 8 query tiles of 1024 tokens for 132 SMs: 16 heads still take about as long."""
    one, sixteen = (priced(h100, heads=heads, kv_heads=1, q_len=1024, kv_len=1024).duration_ns for heads in (1, 16))
    assert sixteen < 1.6 * one


def test_wide_heads_backward_are_less_efficient(h100: Device) -> None:
    narrow, wide = (priced(h100, direction="backward", head_dim=dim).duration_ns for dim in (128, 192))
    assert wide > 1.5 * narrow


@pytest.mark.parametrize(("gpu", "points"), [("h100-sxm", 24), ("b200", 6)])
def test_backward_is_within_a_tenth_of_published_speeds_on_average(gpu: str, points: int) -> None:
    """FlashAttention-2 and cuDNN at head dimensions 64 and 128, timed alone; single points are up to 13 % off."""
    device = device_of(hardware.gpu(gpu), burst=True)
    errors = []
    for row in read_table(PUBLISHED, OPERATORS.required, "an operator"):
        case = Case(row)
        if case.text("gpu") == gpu and case.text("direction") == "backward":
            work = signature_of(case)
            assert isinstance(work, Attention)
            errors.append(abs(attention.price([work], device)[0].duration_ns / 1e3 / float(case.text("time_us")) - 1))
    assert len(errors) == points
    assert statistics.mean(errors) < 0.1


@pytest.mark.parametrize("model", ["llama3.1", "dsv3", "kimiK26", "gpt_oss"])
@pytest.mark.parametrize(("gpu", "precision"), [("gb300", "bfloat16"), ("gb300", "fp8"), ("gb200", "fp8")])
def test_cudnn_is_within_a_tenth_of_its_authors_benchmark_on_average(gpu: str, precision: str, model: str) -> None:
    """Heads of 64 to 192, windows of 128 and 1,024, both directions; nothing was fitted to Kimi K2.6."""
    device, errors = device_of(hardware.gpu(gpu)), []
    for row in read_table(CUDNN, OPERATORS.required, "an operator"):
        if (row["gpu"], row["precision"], row["model"]) == (gpu, precision, model):
            work = signature_of(Case(row))
            assert isinstance(work, Attention)
            errors.append(abs(attention.price([work], device)[0].duration_ns / 1e3 / float(row["time_us"]) - 1))
    assert len(errors) >= 20
    assert statistics.mean(errors) < 0.1


def test_backward_suffers_less_from_exponentials_at_small_head_dimensions(h100: Device) -> None:
    """There are as many of them beside two and a half times the products."""
    forward, backward = (
        priced(h100, direction=direction, head_dim=64, v_head_dim=64).duration_ns
        / priced(h100, direction=direction).duration_ns
        for direction in ("forward", "backward")
    )
    assert backward < 0.93 * forward


@pytest.mark.parametrize(("length", "published"), [(4096, 127.7), (32768, 140.3)])
def test_attention_beside_cut_tensor_cores_hardly_waits_for_exponentials(length: int, published: float) -> None:
    """InferSim's FlashAttention 3 on an H20, of 148 TFLOP/s."""
    work = Attention("forward", 1, 64, 8, length, length, 128, 128, True, "bfloat16", "flash3")
    (made,) = attention.price([work], device_of(hardware.gpu("h20"), burst=True))
    assert work.flops / made.duration_ns / 1e3 == pytest.approx(published, rel=0.08)


@pytest.mark.parametrize("heads", [64, 128])
def test_decoding_of_many_heads_a_key_is_bound_by_cut_tensor_cores(heads: int) -> None:
    """InferSim's H20 computes 68 TFLOP/s where 64 or 128 heads share one of keys."""
    work = Attention("forward", 64, heads, 1, 1, 16384, 128, 128, True, "bfloat16", "flash3")
    (made,) = attention.price([work], device_of(hardware.gpu("h20"), burst=True))
    assert work.flops / made.duration_ns / 1e3 == pytest.approx(68, rel=0.15)


@pytest.mark.parametrize(("keys", "measured_us"), [(512, 15.3), (2560, 22.2), (16896, 66.8)])
def test_few_query_tiles_share_a_paged_cache_s_keys_among_all_sms(h100: Device, keys: int, measured_us: float) -> None:
    """512 queries of 8 heads have 32 tiles for 132 SMs; measured on an H100 (validation/results/serving-h100.md)."""
    work = Attention("forward", 1, 8, 1, 512, keys, 128, 128, True, "bfloat16", "flash3", paged=True)
    whole = msgspec.structs.replace(work, paged=False)
    paged, contiguous = attention.price([work, whole], h100)
    assert paged.duration_ns / 1e3 == pytest.approx(measured_us, rel=0.3)
    assert (paged.duration_ns < 0.8 * contiguous.duration_ns) == (keys > 512)


def test_tiles_for_most_sms_leave_a_paged_cache_s_keys_whole(h100: Device) -> None:
    work = Attention("forward", 1, 32, 8, 512, 16896, 128, 128, True, "bfloat16", "flash3", paged=True)
    paged, contiguous = attention.price([work, msgspec.structs.replace(work, paged=False)], h100)
    assert paged.duration_ns == contiguous.duration_ns


def test_dropout_costs_as_much_for_each_score_whatever_the_head(h100: Device) -> None:
    """In BERT large's layers on an H100, it made the forward pass twice as long (108 us)."""

    def added(dim: int, direction: str = "forward") -> float:
        bert: dict[str, object] = {"batch": 16, "heads": 16, "kv_heads": 16, "q_len": 512, "kv_len": 512}
        bert |= {"causal": False, "head_dim": dim, "v_head_dim": dim}
        without, with_it = (priced(h100, **bert, direction=direction, dropout=drops) for drops in (False, True))
        return with_it.duration_ns - without.duration_ns

    assert added(64) == pytest.approx(54_000, rel=0.25)
    assert added(64, "backward") == pytest.approx(added(64), rel=0.25)
    assert added(128) == pytest.approx(added(64), rel=0.25)
