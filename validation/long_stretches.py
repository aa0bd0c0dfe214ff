"""Compares the host time of long computations without device calls in a trace with their CPU time.

    python validation/long_stretches.py [--spin N] [--copy N] >table.md

``--spin`` and ``--copy``: number of concurrent processes that compute, or that copy memory. Each kind of work runs once
per step while a small model is trained.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np

from presim.cli.script import sentences
from presim.errors import InputError
from presim.studies.validation.error_summary import markdown
from presim.trace import job_store
from presim.trace.schema import Kind, Trace

SPIN = "print(flush=True)\nwhile True: pass"
COPY = "import numpy as np\na = np.zeros(40_000_000, np.float32)\nb = a + 1\nprint(flush=True)\nwhile True: b[:] = a"
STEPS = 6  # the first sets up
BYTES = 512  # blocks that mark ends of stretches: so many times their number


def kinds_of_work() -> Mapping[str, Callable[[], object]]:
    """Typical host work between two calls, by name."""
    import torch

    data, half = bytes(100_000_000), torch.zeros(25_000_000, dtype=torch.bfloat16)
    document = json.dumps([{"number": number, "list": [number] * 5} for number in range(30_000)])
    text, words = "the quick brown fox jumps over the lazy dog 123 " * 4000, re.compile(r"\w+|\s+")
    values = np.random.default_rng(0).standard_normal(1_000_000)
    return {
        "SHA-1 of 100 MB": lambda: hashlib.sha1(data).digest(),
        "25 million values from bf16 to fp32": half.float,
        "JSON of 2 MB read": lambda: json.loads(document),
        "words of 200 kB found": lambda: words.findall(text),
        "a million values sorted": lambda: np.sort(values),
        "a million rounds of Python": lambda: sum(number * number & 7 for number in range(1_000_000)),
        "a dictionary of 150,000": lambda: {number * 7919 % 1_000_003: str(number) for number in range(150_000)},
    }


def program(times: Path) -> None:
    """Train and compute. Writes the CPU time of each kind of work, ms, in all steps but the first."""
    import torch

    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, device="cuda")
    optimizer, rows = torch.optim.SGD(layer.parameters(), 0.1), torch.randn(4, 64, 256, device="cuda")
    kinds, spent = kinds_of_work(), []
    for _ in range(STEPS):
        for number, compute in enumerate(kinds.values(), start=1):
            layer(rows).square().mean().backward()
            begin = time.process_time()
            compute()
            spent.append(1e3 * (time.process_time() - begin))
            torch.empty(BYTES * 1000 * number, dtype=torch.uint8, device="cuda")
        optimizer.step()
    medians = np.median(np.reshape(spent, (STEPS, -1))[1:], axis=0)
    times.write_text(json.dumps(dict(zip(kinds, medians.tolist()))))


def counted_ms(trace: Trace, kinds: int) -> list[float]:
    """Host time of each kind of work in the trace, ms: median of the steps after the first."""
    size, host_ns = (trace.columns[name].astype(np.int64) for name in ("value", "host_ns"))
    ends = [np.flatnonzero(trace.mask(Kind.ALLOC) & (size == BYTES * 1000 * number)) for number in range(1, kinds + 1)]
    return [float(np.median(host_ns[places[1:]])) / 1e6 for places in ends]


@contextlib.contextmanager
def beside(codes: list[str]) -> Iterator[None]:
    """Run processes with this Python code concurrently."""
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for code in codes]
    try:
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def table(spin: int, copy: int) -> str:
    """CPU time and what the trace has, by kind of work.

    Raises:
        InputError: the program could not be captured.
    """
    with tempfile.TemporaryDirectory() as folder, beside([SPIN] * spin + [COPY] * copy):
        trace, times = Path(folder, "trace"), Path(folder, "times.json")
        presim = [sys.executable, "-m", "presim", "run", "--gpu", "h100-sxm", "--steps", "0", "--quiet"]
        done = subprocess.run([*presim, "--save", trace, __file__, "--program", times], stdout=subprocess.DEVNULL)
        if done.returncode:
            raise InputError(f"the program ended with {done.returncode}; what it printed is above")
        spent = json.loads(times.read_text())
        (captured,) = job_store.load(trace).traces.values()
    counted = counted_ms(captured, len(spent))
    rows = [
        [name, f"{cpu:.1f}", f"{mine:.1f}", f"{mine / cpu:.2f}"] for (name, cpu), mine in zip(spent.items(), counted)
    ]
    return markdown(("work", "CPU time, ms", "in the trace, ms", "ratio"), rows)


def processes(text: str) -> int:
    """How many run beside.

    Raises:
        argparse.ArgumentTypeError: it is no number, or below 0.
    """
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is no number of processes; give 0 or more")
    return int(text)


def main() -> None:
    """Run as the captured program, or capture it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spin", type=processes, default=0, metavar="N", help="other processes that compute")
    parser.add_argument("--copy", type=processes, default=0, metavar="N", help="other processes that copy memory")
    parser.add_argument("--program", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.program:
        program(arguments.program)
    else:
        print(table(arguments.spin, arguments.copy))


if __name__ == "__main__":
    with sentences():
        main()
