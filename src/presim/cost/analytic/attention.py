"""Fused attention: tiles of 128 queries by 128 keys run in waves over the SMs.

Decoding is limited by reading the cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from presim.cost.analytic.gpu_figures import Device, precision
from presim.cost.analytic.operator_constants import AttentionConstants, find_constants
from presim.cost.price import Origin, Price
from presim.hardware.constants import value
from presim.trace.dtypes import dtype_bytes
from presim.trace.signatures import Attention

Array = NDArray[np.float64]

_TILE = 128
_DECODE_QUERIES = 16  # with at most this many queries, the keys are split over the SMs instead
_DECODE_SHARE = value("attention.decode_share")
_DECODE_ROUND_US = value("attention.decode_round_us")
_WHOLE_KEYS = 4  # key tiles that FlashAttention 3 never divides
_BACKWARD_FLOPS = 2.5  # relative to forward: Dao, FlashAttention-2 (2023), section 4.1
_DROPOUT_SLOTS = value("attention.dropout_slots")
_INTEGER_LANES = 64  # of an SM (CUDA C++ Programming Guide, arithmetic instructions: 64 results a clock since Volta)
_WIDE_BACKWARD = value("attention.wide_backward")  # head dimensions above 128 leave too few registers

_FALLBACKS = {
    "cudnn": ("cudnn", "flash"),
    "flash": ("flash", "cudnn"),
    "flash3": ("flash3", "cudnn", "flash"),
    "efficient": ("efficient", "flash"),
    "flex": ("flex", "flash"),
}


def price(signatures: Sequence[Attention], device: Device) -> list[Price]:
    """One price per signature, in order."""
    return [_price_one(signature, device) for signature in signatures]


def _price_one(signature: Attention, device: Device) -> Price:
    names = _names(signature)
    constants, borrowed = find_constants(
        AttentionConstants, "attention", device.attention_generation or device.generation, names
    )
    backward = signature.direction == "backward"
    decode = signature.q_len <= _DECODE_QUERIES and not backward
    duration, bound = seconds(signature, device, constants)
    limit = 2 * constants.launch_us
    if decode:
        duration = min(duration, _decode_seconds(signature, device, constants))
        limit, bound = 2 * constants.decode_launch_us, "memory"
    is_calibrated = signature.dtype in ("bfloat16", "float16") and signature.backend in _FALLBACKS
    width = (
        constants.uncertainty
        * borrowed
        * device.uncertainty_factor
        * (1 if is_calibrated else 2)
        * (1.7 if backward or decode else 1)
    )
    bound = "latency" if duration * 1e6 < limit else bound
    return Price(max(1, round(duration * 1e9)), Origin.ANALYTIC, min(width, 0.9), "analytic/attention", bound)


def _names(signature: Attention) -> tuple[str, ...]:
    """Names of the constants to use, best first. FP8 has its own where measured."""
    names = _FALLBACKS.get(signature.backend, ("flash", "cudnn"))
    return (f"{names[0]}-fp8", *names) if signature.dtype.startswith("float8") else names


def seconds(signature: Attention, device: Device, constants: AttentionConstants) -> tuple[float, str]:
    """Duration and bottleneck of the forward or backward pass.

    arithmetic: waves of query tiles, each as long as its visible keys (half of them if causal, few in a window).
    memory: q, k, v and the result once; in the backward pass their gradients too. Joined as in `gemm.seconds`.
    """
    backward = signature.direction == "backward"
    dim = (signature.head_dim + signature.v_head_dim) / 2
    softmax = constants.softmax_dim / (constants.backward_products if backward else 1)
    products = constants.efficiency * (1 + softmax / 128)
    softmax *= (
        1 if device.throttles else device.tensor_ratio
    )  # reduced tensor throughput does not slow the exponentials
    efficiency = products * dim / (dim + softmax)
    efficiency = min(efficiency, 0.95) * (constants.backward if backward else 1)
    if backward and signature.head_dim > 128 and constants.wide_backward:
        dim, efficiency = signature.head_dim, efficiency * _WIDE_BACKWARD
    clocks = 1 if device.burst else device.sustained
    per_sm = device.peak(precision(signature.dtype, "tf32")) / device.sms * efficiency * clocks
    unit = 4 * _TILE * _TILE * dim / per_sm * (_BACKWARD_FLOPS if backward else 1)
    sequences = signature.batch * signature.heads
    pairs, rows, longest = _tiles(signature)
    tiles = sequences * rows
    overhead = constants.tile_overhead + (constants.window_overhead if _is_bounded(signature) else 0.0)
    parts = _key_parts(signature, tiles, longest, device.sms)
    tiles, longest = tiles * parts, longest / parts
    total_s = sequences * (pairs + overhead * rows * parts) * unit
    waves = np.ceil(tiles / device.sms) * total_s / tiles
    shared = (1 - constants.quantisation) * total_s / device.sms + constants.quantisation * waves
    arithmetic = max(shared, (longest + overhead) * unit * max(constants.lone, 1.0))
    arithmetic += _dropout_seconds(signature, sequences * pairs, device)
    memory = (_bytes(signature) + _partial_result_bytes(signature, parts)) / (device.memory_Bps * constants.memory)
    joined = float((arithmetic**constants.blend + memory**constants.blend) ** (1 / constants.blend))
    launch = constants.launch_us * 1e-6 * (2 if backward else 1)
    if backward and constants.backward_passes:
        joined += constants.backward_passes * _bytes_around_backward(signature) / device.memory_Bps
    return joined + launch, "compute" if arithmetic >= memory else "memory"


def _dropout_seconds(signature: Attention, tiles: float, device: Device) -> float:
    """Time to draw a random number for each score: integer work of the warps that also multiply."""
    if not signature.dropout or not device.clock_hz:
        return 0.0
    return tiles * _TILE * _TILE * _DROPOUT_SLOTS / (_INTEGER_LANES * device.sms * device.clock_hz)


def _tiles(signature: Attention) -> tuple[float, float, float]:
    """Key tiles over all query tiles of a sequence, number of query tiles, and the most key tiles of one."""
    rows, columns = -(-signature.q_len // _TILE), -(-signature.kv_len // _TILE)
    longest, pairs = columns, rows * columns
    if signature.causal:
        before = -(-max(signature.kv_len - signature.q_len, 0) // _TILE)
        pairs = min(rows * before + rows * (rows + 1) // 2, pairs)
    if _is_bounded(signature):
        longest = min(-(-(signature.window + _TILE) // _TILE), columns)
        pairs = min(pairs, rows * longest)
    return max(pairs, 1), max(rows, 1), max(longest, 1)


def _key_parts(signature: Attention, tiles: float, longest: float, sms: int) -> int:
    """Parts into which FlashAttention 3 divides the keys of a paged cache, so that few query tiles occupy all SMs.

    It takes the fewest parts that reach 0.85 of the best occupancy, and one where the tiles occupy 0.8 of the SMs or
    see at most four key tiles (Dao-AILab/flash-attention, hopper/heuristics.h). Kernels of contiguous tensors, which
    train, do not divide.
    """
    if not signature.paged or signature.backend != "flash3" or tiles >= 0.8 * sms or longest <= _WHOLE_KEYS:
        return 1
    parts = np.arange(1, min(sms, int(longest)) + 1)
    waves = tiles * parts / sms
    occupied = waves / np.ceil(waves)
    return int(parts[np.argmax(occupied >= 0.85 * occupied.max())])


def _partial_result_bytes(signature: Attention, parts: int) -> float:
    """Bytes of partial results in float32, written and read, where keys are divided."""
    rows = signature.batch * signature.heads * signature.q_len
    return 8.0 * parts * rows * signature.v_head_dim if parts > 1 else 0.0


def _is_bounded(signature: Attention) -> bool:
    """Whether a window reduces the work. It does not in cuDNN's FP8 backward pass (9.19 to 9.26).

    With a window of 128, that pass takes four times as long for twice the tokens; in 16 bits and forward it takes twice
    as long (NVIDIA/cudnn-frontend 60e572b to e99b0d0, benchmark/sdpa_benchmark_training/results/gpt_oss, GB200 and
    GB300).
    """
    is_fp8 = signature.backend == "cudnn" and signature.dtype.startswith("float8")
    return signature.window > 0 and not (is_fp8 and signature.direction == "backward")


def _bytes(signature: Attention) -> float:
    """Bytes of queries, keys, values and the result; twice as many in the backward pass."""
    size = dtype_bytes(signature.dtype) * signature.batch * (signature.head_dim + signature.v_head_dim)
    once = size * (signature.heads * signature.q_len + signature.kv_heads * signature.kv_len)
    return once * (2 if signature.direction == "backward" else 1)


def _bytes_around_backward(signature: Attention) -> float:
    """Bytes moved by the kernels around the backward pass.

    They multiply the result by its gradient and reduce in float32. They zero, accumulate and cast the query gradients.
    Gradients of keys and values shared by several heads are computed per head and then summed.
    """
    size, rows = dtype_bytes(signature.dtype), signature.batch * signature.heads * signature.q_len
    moved_bytes = rows * (2 * size * signature.v_head_dim + (8 + size) * signature.head_dim)
    if signature.heads != signature.kv_heads:
        keys = signature.batch * signature.heads * signature.kv_len
        moved_bytes += 2 * size * keys * (signature.head_dim + signature.v_head_dim)
    return moved_bytes


def _decode_seconds(signature: Attention, device: Device, constants: AttentionConstants) -> float:
    """Decoding time: few queries against a long cache. Heads that share keys read them once."""
    visible = min(signature.window, signature.kv_len) if signature.window else signature.kv_len
    size = dtype_bytes(signature.dtype) * signature.batch * (signature.head_dim + signature.v_head_dim)
    moved_bytes = size * (signature.kv_heads * visible + signature.heads * signature.q_len)
    arithmetic = 2 * moved_bytes / dtype_bytes(signature.dtype) * signature.q_len / device.peak("bf16")
    if not device.throttles:  # with 64 or more heads per key head, reduced tensor cores are slower than memory
        arithmetic = max(arithmetic, signature.flops / (device.peak("bf16") * _DECODE_SHARE))
    memory = moved_bytes / (device.memory_Bps * constants.decode_memory)
    rounds = np.ceil(signature.batch * signature.kv_heads / device.sms) * _DECODE_ROUND_US * 1e-6
    return max(arithmetic, memory, float(rounds)) + constants.decode_launch_us * 1e-6
