"""What a host that runs ahead of its device sees, with and without a live clock: blocks in use, events, pinned memory.

Hosts take no time here, so that each run gives the same. A case is a line in `CASES`, a program the body of a step in
`PROGRAMS`: ``work(x)`` takes about a millisecond, ``save(x)`` copies 128 MiB to the host in 2.4.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from presim.evaluation.evaluate_traces import Evaluation
from presim.evaluation.options import RunOptions
from presim.trace.schema import HostCall, Kind
from support.captured import evaluated
from support.long_cases import marked

pytestmark = pytest.mark.torch_cuda

PRELUDE = """
import collections, torch
model = torch.nn.Linear(4096, 4096, bias=False, device="cuda", dtype=torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
main, side = torch.cuda.current_stream(), torch.cuda.Stream()
cpu = [torch.empty(16384, 4096, dtype=torch.bfloat16, pin_memory=True) for _ in range(2)]
small = torch.randn(64, 4096, device="cuda", dtype=torch.bfloat16)
def work(x):
    return torch.relu(x @ model.weight).detach()
def save(x, i=0):
    side.wait_stream(main)
    with torch.cuda.stream(side):
        cpu[i % 2].copy_(x, non_blocking=True)
def saved_event(x):
    save(x)
    return side.record_event()
for step in range(3):
    x = torch.randn(16384, 4096, device="cuda", dtype=torch.bfloat16)
{body}
    model(small).float().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
"""
PROGRAMS = {
    "record_stream": """
        for i in range(12):
            x = work(x)
            save(x, i)
            x.record_stream(side)
        """,
    "waits for the side stream": """
        for i in range(12):
            x = work(x)
            save(x, i)
            main.wait_stream(side)
        """,
    "limits itself by events": """
        pending = collections.deque()
        for i in range(12):
            x = work(x)
            pending.append(saved_event(x))
            x.record_stream(side)
            if len(pending) > 2:
                pending.popleft().synchronize()
        """,
    "drops what a query finds done": """
        pending = collections.deque()
        for i in range(12):
            x = work(x)
            pending.append((saved_event(x), x))
            while pending and pending[0][0].query():
                pending.popleft()
        """,
    "polls an event": """
        for i in range(12):
            x = work(x)
            done = saved_event(x)
            x.record_stream(side)
            while not done.query():
                pass
        """,
    "polls a stream": """
        for i in range(12):
            x = work(x)
            save(x)
            x.record_stream(side)
            while not side.query():
                pass
        """,
    "synchronises the device": """
        for i in range(12):
            x = work(x)
            save(x)
            x.record_stream(side)
            torch.cuda.synchronize()
        """,
    "new pinned buffers": """
        for i in range(12):
            buffer = torch.empty(16384, 4096, dtype=torch.bfloat16, pin_memory=True)
            del buffer
            torch._C._host_emptyCache()
        """,
    "pinned buffers from the cache": """
        for i in range(12):
            buffer = torch.empty(16384, 4096, dtype=torch.bfloat16, pin_memory=True)
            del buffer
        """,
    "pinned buffers still in use": """
        for i in range(12):
            buffer = torch.empty(16384, 4096, dtype=torch.bfloat16, pin_memory=True)
            buffer.copy_(x, non_blocking=True)
            del buffer
        """,
    "registers and unregisters": """
        buffer = torch.empty(16384, 4096, dtype=torch.bfloat16)
        for i in range(12):
            torch.cuda.cudart().cudaHostRegister(buffer.data_ptr(), 2 * buffer.numel(), 0)
            torch.cuda.cudart().cudaHostUnregister(buffer.data_ptr())
        """,
    "new pageable memory": """
        for i in range(4):
            x.cpu()
        """,
    "pageable memory used before": """
        host = torch.zeros(16384, 4096, dtype=torch.bfloat16) if step == 0 else host
        for i in range(4):
            host.copy_(x)
        """,
}


class Case(NamedTuple):
    """Expected reserved memory and, in the last step, calls on host memory of a program."""

    program: str
    reserved_MiB: tuple[int, int]
    locks: int | None = None
    first_touches: int | None = None


# Five blocks of 128 MiB, the weights and a workspace are 708 MiB.
CASES = (
    Case("record_stream", (1900, 2100)),  # twelve copies end later than the host asks for the twelfth block
    Case("waits for the side stream", (500, 700)),
    Case("limits itself by events", (600, 1000)),
    Case("drops what a query finds done", (1500, 1900)),
    Case("polls an event", (600, 800)),
    Case("polls a stream", (600, 800)),
    Case("synchronises the device", (600, 800)),
    Case("new pinned buffers", (100, 400), locks=12),
    Case("pinned buffers from the cache", (100, 400), locks=0),
    Case("pinned buffers still in use", (100, 400), locks=0),  # twelve buffers in the first step, and no more later
    Case("registers and unregisters", (100, 400), locks=12),
    Case("new pageable memory", (100, 400), first_touches=4),
    Case("pageable memory used before", (100, 400), first_touches=0),
)


def capture(program: str, folder: Path, *, live: bool) -> Evaluation:
    """The program on one GPU whose host takes no time."""
    body = textwrap.indent(textwrap.dedent(PROGRAMS[program]), "    ")
    script = folder / "script.py"
    script.write_text(PRELUDE.replace("{body}", body))
    return evaluated(script, options=RunOptions(gpu="h100-sxm", world_size=1, host_time=False, live=live))


def calls(evaluation: Evaluation, call: HostCall) -> int:
    """How often the last step makes a call."""
    columns, step = evaluation.priced.trace.columns, evaluation.priced.trace.steps()[-1]
    return int(((columns["kind"][step] == Kind.HOST_CALL) & (columns["object"][step] == call)).sum())


LONG = (  # each holds memory as another does
    *(
        "waits for the side stream",
        "limits itself by events",
        "polls an event",
        "polls a stream",
        "synchronises the device",
    ),
    *("drops what a query finds done", "new pageable memory", "pageable memory used before"),
    *("pinned buffers from the cache", "pinned buffers still in use", "registers and unregisters"),
)


@pytest.mark.parametrize("case", marked(CASES, LONG, lambda case: case.program))
def test_memory_is_what_a_host_that_runs_ahead_holds(case: Case, tmp_path: Path) -> None:
    """With a live clock it is the same to the byte."""
    evaluation = capture(case.program, tmp_path, live=False)
    reserved = evaluation.result.memory.peak_reserved_bytes
    assert case.reserved_MiB[0] <= reserved / 2**20 <= case.reserved_MiB[1], reserved / 2**20
    assert case.locks in (None, calls(evaluation, HostCall.LOCK))
    assert case.first_touches in (None, calls(evaluation, HostCall.FIRST_TOUCH))
    assert capture(case.program, tmp_path, live=True).result.memory.peak_reserved_bytes == reserved
