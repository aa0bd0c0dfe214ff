"""How much kernels slow each other on one GPU: work alone, and beside a copy or a kernel that holds k SMs.

    python validation/gpu/overlap.py RESULTS.jsonl SECONDS

The neighbour runs on a stream of its own for longer than the work; the work is timed between two events. A line has the
time alone, beside, and what the neighbour moved.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import triton
import triton.language as tl
from torch.nn.functional import layer_norm, scaled_dot_product_attention

BLOCK = 4096
RUNS = 15
SM_COUNTS = (4, 8, 16, 32)
Run = Callable[[], object]


@triton.jit
def hold(source, target, rounds, span, BLOCK: tl.constexpr):
    """One program an SM: reads and writes its part again and again, as a collective's channel does."""
    offsets = tl.program_id(0) * span + tl.arange(0, BLOCK)
    for turn in range(rounds):
        at = offsets + (turn * BLOCK) % span
        tl.store(target + at, tl.load(source + at))


def works() -> dict[str, Run]:
    """What is slowed."""
    square = [torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    heads = [torch.randn(2, 32, 4096, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    rows = torch.randn(65536, 4096, device="cuda", dtype=torch.bfloat16)
    return {
        "gemm 8192^3": lambda: square[0] @ square[1],
        "attention 2x32x4096x128": lambda: scaled_dot_product_attention(*heads, is_causal=True),
        "layer norm 65536x4096": lambda: layer_norm(rows, (4096,)),
    }


def neighbours() -> dict[str, Callable[[float], Run]]:
    """What slows: from a duration in seconds to a call that lasts about so long."""
    bytes_ = 1 << 30
    source, target = (torch.empty(bytes_, dtype=torch.int8, device="cuda") for _ in range(2))
    span = bytes_ // 128 // BLOCK * BLOCK

    def copying(seconds: float) -> Run:
        return lambda: [target.copy_(source, non_blocking=True) for _ in range(max(1, round(seconds * 1000)))]

    def holding(programs: int) -> Callable[[float], Run]:
        def made(seconds: float) -> Run:
            rounds = max(1, int(seconds / 1e-6))
            return lambda: hold[(programs,)](source, target, rounds, span, BLOCK)

        return made

    return {"copy": copying, **{f"hold {count} SMs": holding(count) for count in SM_COUNTS}}


def timed(run: Run, neighbour: Run | None, stream: torch.cuda.Stream) -> float:
    """Median time in seconds of the work on the default stream, with the neighbour begun just before."""
    times = []
    for _ in range(RUNS):
        torch.cuda.synchronize()
        if neighbour is not None:
            with torch.cuda.stream(stream):
                neighbour()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(times)


def main(path: str, seconds: str) -> None:
    """All pairs that the file lacks, until the time is used up."""
    ends = time.monotonic() + float(seconds)
    results = Path(path)
    done = (
        {(row["work"], row["beside"]) for row in map(json.loads, results.read_text().splitlines())}
        if results.exists()
        else set()
    )
    stream, left = torch.cuda.Stream(), 0
    beside = neighbours()
    for work, run in works().items():
        for name, make in beside.items():
            if (work, name) in done:
                continue
            if time.monotonic() > ends:
                left += 1
                continue
            run()
            alone = timed(run, None, stream)
            slowed = timed(run, make(4 * alone), stream)
            row = {
                "gpu": torch.cuda.get_device_name(),
                "work": work,
                "beside": name,
                "alone_s": alone,
                "beside_s": slowed,
            }
            with results.open("a") as file:
                file.write(json.dumps(row) + "\n")
    print(f"{left} left" if left else "nothing left")


if __name__ == "__main__":
    main(*sys.argv[1:3])
