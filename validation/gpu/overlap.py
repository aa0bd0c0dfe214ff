"""How much kernels slow each other on one GPU: work alone, and beside a copy or a kernel that holds k SMs.

    python validation/gpu/overlap.py RESULTS.jsonl SECONDS

The neighbour runs on a stream of its own for longer than the work; the work is timed between two events. A line has the
time alone and beside, the SMs that the neighbour holds, what it reads and writes a second, and how long it lasts.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from presim.cli.script import sentences
from presim.errors import InputError

with sentences():
    import torch
    import triton
    import triton.language as tl
    from torch.nn.functional import layer_norm, scaled_dot_product_attention

BLOCK = 4096
RUNS = 15
SM_COUNTS = (4, 8, 16, 32)
TRIAL = 2000  # rounds
Run = Callable[[], object]
Beside = tuple[Run, int, int]  # a call, the SMs that it holds, the bytes that it reads and writes
Measure = Callable[[], dict[str, object]]


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


def neighbours() -> dict[str, Callable[[float], Beside]]:
    """What slows: from a duration in seconds to a call that lasts about so long."""
    bytes_ = 1 << 30
    source, target = (torch.empty(bytes_, dtype=torch.int8, device="cuda") for _ in range(2))
    span = bytes_ // 128 // BLOCK * BLOCK

    def copying(seconds: float) -> Beside:
        one = timed(lambda: target.copy_(source, non_blocking=True))
        times = max(1, round(seconds / one))
        return lambda: [target.copy_(source, non_blocking=True) for _ in range(times)], 0, 2 * bytes_ * times

    def holding(programs: int) -> Callable[[float], Beside]:
        def made(seconds: float) -> Beside:
            one = timed(lambda: hold[(programs,)](source, target, TRIAL, span, BLOCK)) / TRIAL
            rounds = max(1, round(seconds / one))
            return (
                lambda: hold[(programs,)](source, target, rounds, span, BLOCK),
                programs,
                2 * programs * rounds * BLOCK,
            )

        return made

    return {"copy": copying, **{f"hold {count} SMs": holding(count) for count in SM_COUNTS}}


def timed(run: Run, neighbour: Run | None = None, stream: torch.cuda.Stream | None = None) -> float:
    """Median time in seconds of the work on the default stream, with the neighbour begun just before."""
    run()
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


def pairs(done: set[tuple[str, str]]) -> Iterator[tuple[dict[str, object], Measure]]:
    """Each pair of work and neighbour that is not done, and what measures it."""
    stream, beside = torch.cuda.Stream(), neighbours()
    for work, run in works().items():
        for name, make in beside.items():
            if (work, name) not in done:
                pair = {"gpu": torch.cuda.get_device_name(), "work": work, "beside": name}
                yield pair, functools.partial(measured, run, make, stream)


def measured(run: Run, make: Callable[[float], Beside], stream: torch.cuda.Stream) -> dict[str, object]:
    """Times of a pair, and what its neighbour takes."""
    alone = timed(run)
    neighbour, sms, moved = make(4 * alone)
    lasts = timed(neighbour)
    return {
        "alone_s": alone,
        "beside_s": timed(run, neighbour, stream),
        "neighbour_s": lasts,
        "neighbour_sms": sms,
        "neighbour_GBps": moved / lasts * 1e-9,
    }


def attempted(measure: Measure) -> dict[str, object]:
    """What was measured, or why there is nothing."""
    try:
        return measure()
    except RuntimeError as error:
        return {"error": (str(error).splitlines() or [type(error).__name__])[0]}


def main() -> None:
    """All pairs that the file lacks, until the time is used up or one fails, behind which another call goes on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", metavar="RESULTS.jsonl", type=Path)
    parser.add_argument("seconds", metavar="SECONDS", type=float)
    options = parser.parse_args()
    ends, results = time.monotonic() + options.seconds, options.results
    if not torch.cuda.is_available():
        raise InputError("there is no GPU here that PyTorch can use")
    rows = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    pending = list(pairs({(row["work"], row["beside"]) for row in rows}))
    while pending and time.monotonic() < ends:
        pair, measure = pending.pop(0)
        row = pair | attempted(measure)
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        if "error" in row:  # after some the card answers this process no more
            break
    print(f"{len(pending)} left" if pending else "nothing left")


if __name__ == "__main__":
    with sentences():
        main()
