"""Latencies of one GPU and CPU time of calls on its host: the CUDA runtime's by `latencies.cu`, PyTorch's here.

    python validation/gpu/latencies.py RESULTS.jsonl SECONDS

A line has `ns`, the median of batches. The runtime's part needs nvcc; without it, a line says so. PyTorch's calls are
on small tensors, so that the host limits; each batch starts on an idle GPU.
"""

from __future__ import annotations

import functools
import json
import mmap
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from presim.cli.script import sentences

with sentences():
    import cases
    import torch
    from torch.nn import functional

SOURCE = Path(__file__).with_suffix(".cu")
RUNTIME_S = 60  # for compiling and running latencies.cu
BATCHES, CALLS = 15, 40
PYTORCH_ONLY = "--pytorch-only"  # for the emulated GPU, which runs no compiled kernel; marks the cases in the trace
MARK, MARK_STEP = 8 << 20, 512  # bytes of the allocation before the first marked case, and more for each later one


def host(call: Callable[[], object], calls: int = CALLS, batches: int = BATCHES) -> dict[str, object]:
    """Host time of one call in ns, and CPU time of all threads."""
    call()
    call()
    wall, cpu = [], []
    for _ in range(batches):
        torch.cuda.synchronize()
        began, used = time.perf_counter(), time.process_time()
        for _ in range(calls):
            call()
        wall.append((time.perf_counter() - began) / calls * 1e9)
        cpu.append((time.process_time() - used) / calls * 1e9)
    torch.cuda.synchronize()
    return {"ns": statistics.median(wall), "low": sorted(wall)[len(wall) // 10], "cpu_ns": statistics.median(cpu),
            "calls": calls}  # fmt: skip


def waited(call: Callable[[], object], rounds: int = 60) -> dict[str, object]:
    """Wall time in ns from before one call to the end of its work."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) * 1e9)
    return {"ns": statistics.median(times), "low": sorted(times)[rounds // 10]}


def operators() -> Iterator[tuple[str, Callable[[], object]]]:
    """Common operators on small tensors."""
    a, b = (torch.randn(64, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    grown = torch.randn(64, 64, device="cuda", requires_grad=True)
    weight, rows = torch.randn(64, device="cuda"), torch.randn(64, 64, device="cuda")
    heads = torch.randn(1, 4, 64, 64, device="cuda", dtype=torch.bfloat16)
    index, target = torch.arange(64, device="cuda"), torch.arange(64, device="cuda")
    scalar, pinned = torch.zeros((), device="cuda"), torch.zeros(64, pin_memory=True)
    here, event, other = torch.zeros(64, device="cuda"), torch.cuda.Event(), torch.cuda.Stream()
    yield "empty", lambda: torch.empty(64, 64, device="cuda")
    yield "zeros", lambda: torch.zeros(64, 64, device="cuda")
    yield "view", lambda: a.view(-1)
    yield "transpose", lambda: a.transpose(0, 1)
    yield "add", lambda: a + b
    yield "add_ in place", lambda: a.add_(b)
    yield "mul with a scalar", lambda: a * 0.5
    yield "cast to float32", lambda: a.float()
    yield "gelu", lambda: functional.gelu(a)
    yield "sum", lambda: a.sum()
    yield "mm", lambda: a @ b
    yield "linear", lambda: functional.linear(a, b)
    yield "linear with bias", lambda: functional.linear(a, b, a[0])
    yield "bmm", lambda: heads[0] @ heads[0]
    yield "layer_norm", lambda: functional.layer_norm(rows, (64,), weight, weight)
    yield "rms_norm", lambda: functional.rms_norm(rows, (64,), weight)
    yield "softmax", lambda: functional.softmax(rows, -1)
    yield "attention", lambda: functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    yield "embedding", lambda: functional.embedding(index, rows)
    yield "cross_entropy", lambda: functional.cross_entropy(rows, target)
    yield "cat", lambda: torch.cat([a, b])
    yield "dropout", lambda: functional.dropout(rows, 0.1)
    yield "contiguous after transpose", lambda: a.t().contiguous()
    yield "copy from pinned memory", lambda: here.copy_(pinned, non_blocking=True)
    yield "item", lambda: scalar.item()
    yield "event record", lambda: event.record()
    yield "stream waits for an event", lambda: other.wait_event(event)
    yield "forward and backward of mul", lambda: (grown * grown).sum().backward()


def modules() -> Iterator[tuple[str, Callable[[], object]]]:
    """A small transformer layer in eager mode, and optimizer steps over small parameters."""
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True, device="cuda", dtype=torch.bfloat16)
    tokens = torch.randn(1, 64, 64, device="cuda", dtype=torch.bfloat16)
    parameters = [torch.zeros(64, 64, device="cuda", requires_grad=True) for _ in range(64)]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    yield "layer forward", lambda: layer(tokens)
    yield "layer forward and backward", lambda: layer(tokens).sum().backward()
    for kind in ("fused", "foreach"):
        optimizer = torch.optim.AdamW(parameters, **{kind: True})
        yield f"AdamW {kind}, 64 tensors", optimizer.step
    yield "zero_grad of 64 tensors", lambda: [parameter.grad.zero_() for parameter in parameters]
    yield "clip_grad_norm_ of 64 tensors", lambda: torch.nn.utils.clip_grad_norm_(parameters, 1.0)


def graphed() -> dict[str, object]:
    """A CUDA graph of 100 small additions."""
    value, graph = torch.zeros(64, device="cuda"), torch.cuda.CUDAGraph()
    value.add_(1)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(100):
            value.add_(1)
    graph.replay()
    return {**host(graph.replay, 5), "waited": waited(graph.replay)["ns"]}


def allocated() -> dict[str, object]:
    """A block that the caching allocator must take from the driver, and that it gives back."""
    times, freed = [], []
    for _ in range(10):
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
        began = time.perf_counter()
        block = torch.empty(64 << 20, dtype=torch.int8, device="cuda")
        times.append((time.perf_counter() - began) * 1e9)
        del block
        began = time.perf_counter()
        torch.cuda.empty_cache()
        freed.append((time.perf_counter() - began) * 1e9)
    return {"ns": statistics.median(times), "freed_ns": statistics.median(freed)}


def host_memory() -> dict[str, object]:
    """Blocks of 64 MiB of the host: locked and freed, registered unused and used, and copied to twice from the GPU."""
    runtime, size = torch.cuda.cudart(), 64 << 20
    source = torch.zeros(size, dtype=torch.int8, device="cuda")
    times: dict[str, list[float]] = {}

    def measure(name: str, call: Callable[[], object]) -> object:
        torch.cuda.synchronize()
        began = time.perf_counter()
        returned = call()
        times.setdefault(name, []).append((time.perf_counter() - began) * 1e9)
        return returned

    for _ in range(8):
        torch._C._host_emptyCache()
        block = measure("lock", lambda: torch.empty(size, dtype=torch.int8, pin_memory=True))
        del block
        measure("unlock", torch._C._host_emptyCache)
        for state in ("unused", "used"):
            pages = mmap.mmap(-1, size)
            if state == "used":
                measure("first touch", lambda pages=pages: pages.write(bytes(size)))
            address = torch.frombuffer(pages, dtype=torch.int8).data_ptr()
            measure(f"register {state}", lambda address=address: runtime.cudaHostRegister(address, size, 0))
            measure(f"unregister {state}", lambda address=address: runtime.cudaHostUnregister(address))
        host = torch.frombuffer(mmap.mmap(-1, size), dtype=torch.int8)
        for state in ("unused", "used"):
            measure(f"copy to {state}", lambda host=host: host.copy_(source))
    medians = {f"{name} ns": statistics.median(found) for name, found in times.items()}
    return {"ns": medians["lock ns"], "MiB": size >> 20, **medians}


def memory() -> dict[str, object]:
    """What the process takes of the card beside PyTorch's blocks: context, libraries, workspaces."""
    found = {}
    for name in ("context", "with cuBLAS"):
        free, total = torch.cuda.mem_get_info()
        found[name] = total - free - torch.cuda.memory_reserved()
        torch.randn(256, 256, device="cuda") @ torch.randn(256, 256, device="cuda")
        torch.cuda.synchronize()
    return {"total": torch.cuda.mem_get_info()[1], **found}


def machine() -> dict[str, object]:
    """The host, and a loop of Python on it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    fields = {key.strip(): word.strip() for key, _, word in (line.partition(":") for line in lines)}
    times = []
    for _ in range(15):
        began = time.perf_counter()
        total = 0
        for number in range(20000):
            total += number & 7
        times.append((time.perf_counter() - began) * 1e9)
    return {
        "ns": statistics.median(times), "cpu": fields.get("model name", ""), "MHz": fields.get("cpu MHz", ""),
        "cores": os.cpu_count(), "python": platform.python_version(), "kernel": platform.release(),
    }  # fmt: skip


def table() -> dict[str, cases.Case]:
    """All cases of PyTorch."""
    found: dict[str, cases.Case] = {"machine": machine, "memory": memory}
    for name, call in operators():
        found[f"torch: {name}"] = functools.partial(host, call)
    for name, call in modules():
        found[f"torch: {name}"] = functools.partial(host, call, 10)
    one = torch.zeros(64, device="cuda")
    found["torch: add_ and synchronise"] = functools.partial(waited, lambda: one.add_(1))
    found["torch: graph of 100 additions"] = graphed
    found["torch: 64 MiB that the cache lacks"] = allocated
    found["torch: 64 MiB of the host"] = host_memory
    return found


def marked() -> dict[str, cases.Case]:
    """All cases of PyTorch, each behind an allocation whose size tells its place."""

    def one(place: int, case: cases.Case) -> dict[str, object]:
        torch.empty(MARK + MARK_STEP * place, dtype=torch.int8, device="cuda")
        return case()

    return {name: functools.partial(one, place, case) for place, (name, case) in enumerate(table().items())}


def runtime(results: Path) -> None:
    """Compile and run latencies.cu, and add its lines; not again once they are there."""
    if results.exists() and '"launch, no argument"' in results.read_text():
        return
    compiler = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    error: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        program, said = str(Path(folder) / "latencies"), Path(folder) / "lines"
        try:
            compiled(compiler, program)
            with said.open("w") as out:
                subprocess.run([program], stdout=out, check=True, timeout=RUNTIME_S)
        except (OSError, subprocess.SubprocessError) as failure:
            error = {"case": "runtime", "error": f"{failure}: {getattr(failure, 'stderr', '') or ''}"[:300]}
        lines = said.read_text() if said.exists() else ""
    with results.open("a") as file:
        file.write(lines[: lines.rfind("\n") + 1])
        if error:
            file.write(json.dumps(error) + "\n")


def compiled(compiler: str, program: str) -> None:
    """Compile latencies.cu for this GPU, or for Hopper where nvcc does not see it.

    Raises:
        subprocess.CalledProcessError: neither compiles.
    """
    for architecture in ("native", "sm_90"):
        command = [compiler, "-O2", f"-arch={architecture}", str(SOURCE), "-o", program]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=RUNTIME_S)
        if ended.returncode == 0:
            return
    ended.check_returncode()


if __name__ == "__main__":
    with sentences():
        if only := PYTORCH_ONLY in sys.argv:
            sys.argv.remove(PYTORCH_ONLY)
        elif len(sys.argv) > 2 and torch.cuda.is_available():
            runtime(Path(sys.argv[1]))
        cases.main(__doc__ or "", marked if only else table)
