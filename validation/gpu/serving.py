"""Kernels and steps of inference engines: paged attention, products with few rows, experts, small kernels, graphs.

    python validation/gpu/serving.py RESULTS.jsonl SECONDS [--families attention,step]

Times are of calls in a replayed CUDA graph, on inputs that take turns and together exceed the L2 cache. A case that
fails leaves a line with its error. Attention and experts need vLLM's package (0.33), of which only FlashAttention 3's
library and two files with Triton kernels are loaded.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cases import limited
from serving_work.attempts import unmeasured

from presim.cli.script import sentences
from presim.cost.profile import CARD_LOST
from presim.errors import InputError

with sentences():
    import torch

if TYPE_CHECKING:
    from serving_work.timing import Case, Row

CASE_S = 40  # a case that takes longer is given up
COMPILERS = max(1, min(12, (os.cpu_count() or 1) // 2))  # compile Triton kernels while others are measured
FATAL = ("CUDA error", "captur", "CUBLAS")  # words of errors after which this process measures nothing more


def all_cases() -> Iterator[Case]:
    """In the order of what is wanted most; kernels that have to be compiled come late."""
    from serving_work import attention, checks, experts, libraries, pointwise, products, steps, transformers_steps

    yield from pointwise.launch_cases()
    yield from attention.cases()
    yield from steps.attention_cases()
    yield from checks.cases()
    yield from steps.cases()
    yield from transformers_steps.cases()
    yield from pointwise.cases()
    yield from experts.cases()
    yield from products.cases()
    yield from attention.other_cases()
    yield from libraries.cases()


def attempted(case: Case) -> Row:
    """What was measured, or why there is nothing."""
    from serving_work.timing import in_graph

    try:
        with limited(CASE_S):
            return (case.measure or in_graph)(case.make())
    except Exception as error:  # noqa: BLE001  # whatever another version of a library raises: the others go on
        lines = str(error).splitlines() or [""]
        return {"error": f"{type(error).__name__}: {lines[0][:300]}"}


def compile_share(share: int) -> None:
    """Compile every so-manieth Triton kernel of the experts into Triton's cache, without launching it."""
    from serving_work import experts
    from triton.runtime.jit import JITFunction

    launched = JITFunction.run

    def compiled(self: JITFunction, *args: object, grid: object, warmup: bool, **more: object) -> object:
        return launched(self, *args, grid=grid, warmup=True, **more)

    JITFunction.run = compiled
    for compiling in experts.compiles()[share::COMPILERS]:
        try:
            compiling()
        except Exception as error:  # noqa: BLE001  # the case itself will say so
            print(f"{type(error).__name__}: {error}", file=sys.stderr)


def start_compilers() -> list[subprocess.Popen[bytes]]:
    """Processes that compile; they hold little of the GPU's memory."""
    command = [sys.executable, __file__, "none", "0", "--compile"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return [subprocess.Popen([*command, str(share)], **quiet) for share in range(COMPILERS)]


def measure(results: Path, ends: float, families: set[str]) -> int:
    """Measure the cases that the file lacks until the time is used up; returns the exit code."""
    rows = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    pending = unmeasured(rows, [case for case in all_cases() if not families or case.family in families])
    compilers = start_compilers() if any(case.family == "experts" for case in pending) else []
    gpu, code, last = torch.cuda.get_device_name(), 0, ""
    while pending and time.monotonic() < ends:
        case = pending.pop(0)
        if case.family != last:
            release()
            last = case.family
        if case.family == "experts":
            wait(compilers, ends)
        began = time.monotonic()
        row = {"gpu": gpu, "family": case.family, "shape": case.shape, **attempted(case)}
        row["took_s"] = round(time.monotonic() - began, 4)
        with results.open("a") as file:
            file.write(json.dumps(row) + "\n")
        if any(word in str(row.get("error", "")) for word in FATAL):
            code = CARD_LOST
            break
    for process in compilers:
        process.kill()
    print(f"{len(pending)} left" if pending else "nothing left")
    return code


def release() -> None:
    """Free the weights that the last family kept."""
    from serving_work import experts, libraries, steps, transformers_steps

    for kept in (experts.weights, libraries.weights, steps.decoder, transformers_steps.model):
        kept.cache_clear()
    gc.collect()
    torch.cuda.empty_cache()


def wait(compilers: list[subprocess.Popen[bytes]], ends: float) -> None:
    """Until they have ended."""
    while compilers:
        try:
            compilers.pop().wait(max(ends - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            return


def main() -> None:
    """All cases that the file lacks, until the time is used up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", metavar="RESULTS.jsonl", type=Path)
    parser.add_argument("seconds", metavar="SECONDS", type=float)
    parser.add_argument("--families", default="", help="only these, e.g. attention,step (default: all)")
    parser.add_argument("--compile", type=int, metavar="SHARE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    ends = time.monotonic() + options.seconds
    if not torch.cuda.is_available():
        raise InputError("there is no GPU here that PyTorch can use")
    if options.compile is not None:
        compile_share(options.compile)
        return
    sys.exit(measure(options.results, ends, set(filter(None, options.families.split(",")))))


if __name__ == "__main__":
    with sentences():
        main()
