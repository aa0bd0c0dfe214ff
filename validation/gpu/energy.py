"""Power of classes of GPU work, by NVML's energy counter, with clocks and temperature.

    python validation/gpu/energy.py RESULTS.jsonl SECONDS

Each case keeps the GPU busy for `WARM_S`, then for `WINDOW_S`. A thread reads the counter during the window; power is
the energy between the first and the last change of the counter over the time between them. Nothing changes a setting
of the card.
"""

from __future__ import annotations

import collections
import functools
import threading
import time
from collections.abc import Callable, Iterator

from presim.cli.script import sentences

with sentences():
    import cases
    import torch
    from meter import Meter, Nvml, Sample, summary, watched
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import layer_norm, scaled_dot_product_attention, softmax

WARM_S, WINDOW_S = 0.4, 1.2
CHUNK_S = 0.01  # of work between two looks at the clock
Run = Callable[[], object]


def measured(meter: Meter, run: Run, seconds: float = WINDOW_S, warm: float = WARM_S) -> dict[str, object]:
    """Power, clocks and rate of work that is repeated without a gap.

    Raises:
        RuntimeError: the counter changed less than twice in the window.
    """
    once = duration(run)
    repeated(run, once, warm)
    samples: list[Sample] = []
    stop = threading.Event()
    thread = threading.Thread(target=watched, args=(meter, samples, stop), daemon=True)
    before = meter.state()
    thread.start()
    runs, took = repeated(run, once, seconds)
    reasons, after = meter.reasons(), meter.state()
    stop.set()
    thread.join()
    return {**summary(samples), "before": before, "after": after, "reasons": reasons, "run_s": took / max(runs, 1),
            "runs": runs, "limit_watts": meter.limit_watts()}  # fmt: skip


def duration(run: Run) -> float:
    """Approximate time of one run in seconds."""
    run()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    return max((time.perf_counter() - began) / 3, 1e-6)


def repeated(run: Run, once: float, seconds: float) -> tuple[int, float]:
    """Repeat work for a time, always with a chunk queued behind the one that runs; runs, and seconds in all."""
    chunk = max(1, round(CHUNK_S / once))
    queued: collections.deque[torch.cuda.Event] = collections.deque()
    began, runs = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for _ in range(chunk):
            run()
        runs += chunk
        queued.append(torch.cuda.Event())
        queued[-1].record()
        if len(queued) > 2:
            queued.popleft().synchronize()
    torch.cuda.synchronize()
    return runs, time.perf_counter() - began


def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Normally distributed values: power depends on how many bits change."""
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def product(m: int, n: int, k: int, dtype: torch.dtype = torch.bfloat16, tf32: bool = False, scale: float = 1) -> Run:
    """A matrix product; with `scale` 0 of zeros."""
    left, right = random(m, k, dtype=dtype) * scale, random(k, n, dtype=dtype) * scale

    def run() -> torch.Tensor:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        return left @ right

    return run


def fp8(side: int) -> Run:
    """An FP8 product with a factor a tensor."""
    left, right = random(side, side, dtype=torch.float8_e4m3fn), random(side, side, dtype=torch.float8_e4m3fn).t()
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(left, right, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def attention(backend: SDPBackend, backward: bool) -> Run:
    """Causal attention of 32 heads of 128 over 4,096 tokens."""
    heads = [random(2, 32, 4096, 128).requires_grad_(backward) for _ in range(3)]

    def forward() -> torch.Tensor:
        with sdpa_kernel([backend]):
            return scaled_dot_product_attention(*heads, is_causal=True)

    if not backward:
        return forward
    result = forward()
    gradient = torch.randn_like(result)
    return lambda: torch.autograd.grad(result, heads, gradient, retain_graph=True)


def norm() -> Run:
    """Layer norm of 65,536 rows."""
    rows, weight = random(65536, 4096), random(4096)
    return lambda: layer_norm(rows, (4096,), weight, weight)


def pointwise() -> Run:
    """A sum of two tensors of 1 GiB."""
    one, other = random(1 << 29), random(1 << 29)
    out = torch.empty_like(one)
    return lambda: torch.add(one, other, out=out)


def rows_softmax() -> Run:
    """Softmax of 65,536 rows."""
    rows = random(65536, 8192)
    return lambda: softmax(rows, -1)


def copied(source: str, target: str) -> Run:
    """A copy of 256 MiB; host memory is pinned."""
    here = torch.empty(1 << 28, dtype=torch.int8, device=source, pin_memory=source == "cpu").random_()
    there = torch.empty(1 << 28, dtype=torch.int8, device=target, pin_memory=target == "cpu")
    return lambda: there.copy_(here, non_blocking=True)


def small() -> Run:
    """A kernel of one block, 64 times: the GPU waits for launches."""
    value = torch.zeros(32, device="cuda")

    def run() -> None:
        for _ in range(64):
            value.add_(1)

    return run


def mixed() -> Run:
    """A product and norms that take about as long."""
    multiply, normalise = product(8192, 8192, 8192), norm()
    times = max(1, round(duration(multiply) / duration(normalise)))

    def run() -> None:
        multiply()
        for _ in range(times):
            normalise()

    return run


def gaps(share: float) -> Run:
    """A product of about 1.5 ms, after which the GPU has nothing to do for this share of the time."""
    multiply = product(8192, 8192, 8192)
    pause = duration(multiply) * share / (1 - share)

    def run() -> None:
        multiply()
        torch.cuda.synchronize()
        until = time.perf_counter() + pause
        while time.perf_counter() < until:
            pass

    return run


def makers() -> Iterator[tuple[str, Callable[[], Run]]]:
    """Each case's name and what prepares its work."""
    flash, cudnn = SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION
    yield "bf16 8192x8192x8192", functools.partial(product, 8192, 8192, 8192)
    yield "bf16 2048x4096x4096", functools.partial(product, 2048, 4096, 4096)
    yield "fp8 8192x8192x8192", functools.partial(fp8, 8192)
    yield "norm 65536x4096", norm
    yield "copy 256 MiB", functools.partial(copied, "cuda", "cuda")
    yield "flash forward", functools.partial(attention, flash, False)
    yield "flash backward", functools.partial(attention, flash, True)
    yield "bf16 1x8192x8192", functools.partial(product, 1, 8192, 8192)
    yield "bf16 16x8192x8192", functools.partial(product, 16, 8192, 8192)
    yield "host to device", functools.partial(copied, "cpu", "cuda")
    yield "half product, half norm", mixed
    yield "gaps of 50 %", functools.partial(gaps, 0.5)
    yield "gaps of 10 %", functools.partial(gaps, 0.1)
    yield "launch-bound", small
    yield "pointwise 3 GiB", pointwise
    yield "softmax 65536x8192", rows_softmax
    yield "tf32 8192x8192x8192", functools.partial(product, 8192, 8192, 8192, torch.float32, True)
    yield "fp32 8192x8192x8192", functools.partial(product, 8192, 8192, 8192, torch.float32)
    yield "bf16 zeros 8192x8192x8192", functools.partial(product, 8192, 8192, 8192, scale=0)
    yield "cudnn forward", functools.partial(attention, cudnn, False)
    yield "cudnn backward", functools.partial(attention, cudnn, True)
    yield "device to host", functools.partial(copied, "cuda", "cpu")


def table(meter: Meter) -> dict[str, cases.Case]:
    """All cases, the idle GPU first: its context is there, and no kernel has run for long."""

    def idle() -> dict[str, object]:
        return measured(meter, lambda: time.sleep(0.01))

    return {"idle": idle, **{name: lambda make=make: measured(meter, make()) for name, make in makers()}}


if __name__ == "__main__":
    with sentences():
        cases.main(__doc__ or "", lambda: table(Nvml(torch.cuda.current_device())))
