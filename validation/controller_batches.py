"""Measures what a controller process takes to send a padded batch to workers and to join their answers, in CPU time.

    python validation/controller_batches.py

The operations are those of verl's `DataProto` (verl/protocol.py, commit f252da3) on tensors of a batch: a chunk is
copied to contiguous memory twice (`contiguous`, `consolidate`), serialised by `torch.save`, taken out of its buffer and
pickled into memory that workers share; on the way back, `torch.load` and one `torch.cat` over all chunks. Writes
`results/controller-batches.md`.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import io
import pickle
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from presim.cli.script import sentences
from presim.system.files import write_file

if TYPE_CHECKING:
    import torch

RESULT = Path(__file__).parent / "results" / "controller-batches.md"
_SAMPLES, _CHUNK_SAMPLES = 64, 16
_REPEATS = 5
_LENGTHS = ((1024, 3072), (1024, 27648))  # prompt, response


def batch_of(samples: int, prompt: int, response: int) -> dict[str, torch.Tensor]:
    """Tensors of verl's batch before log-probabilities."""
    import torch

    whole, part = (samples, prompt + response), (samples, response)
    return {
        "input_ids": torch.randint(0, 150_000, whole),
        "attention_mask": torch.ones(whole, dtype=torch.int64),
        "position_ids": torch.arange(prompt + response).repeat(samples, 1),
        "responses": torch.randint(0, 150_000, part),
        "response_mask": torch.ones(part, dtype=torch.int64),
        "prompts": torch.randint(0, 150_000, (samples, prompt)),
    }


def send(batch: dict[str, torch.Tensor], samples: int) -> list[bytearray]:
    """Chunks as they lie in memory that workers share."""
    import torch

    chunks = []
    for start in range(0, samples, _CHUNK_SAMPLES):
        chunk = {name: tensor[start : start + _CHUNK_SAMPLES].contiguous() for name, tensor in batch.items()}
        consolidated = {name: tensor.clone() for name, tensor in chunk.items()}
        buffer = io.BytesIO()
        torch.save(consolidated, buffer)
        pickled = pickle.dumps((buffer.getvalue(), {}, {}), protocol=5)
        shared = bytearray(len(pickled))
        shared[:] = pickled
        chunks.append(shared)
    return chunks


def receive(chunks: list[bytearray]) -> dict[str, torch.Tensor]:
    """Chunks joined to a batch again."""
    import torch

    parts = [torch.load(io.BytesIO(pickle.loads(chunk)[0]), weights_only=False) for chunk in chunks]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def _cpu_s(operation: Callable[[], object]) -> float:
    start_s = time.process_time()
    operation()
    return time.process_time() - start_s


def main() -> None:
    """Measure and write the page."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    import torch

    torch.set_num_threads(1)
    rows, sends, receives = [], [], []
    for prompt, response in _LENGTHS:
        batch = batch_of(_SAMPLES, prompt, response)
        size_gb = sum(tensor.numel() * tensor.element_size() for tensor in batch.values()) / 1e9
        chunks = send(batch, _SAMPLES)
        send_s = statistics.median(_cpu_s(functools.partial(send, batch, _SAMPLES)) for _ in range(_REPEATS)) / size_gb
        receive_s = statistics.median(_cpu_s(functools.partial(receive, chunks)) for _ in range(_REPEATS)) / size_gb
        rows.append(f"| {prompt:,} + {response:,} | {size_gb:.3f} | {send_s:.2f} | {receive_s:.2f} |")
        sends.append(send_s)
        receives.append(receive_s)
    lines = [
        "# Batches through one controller",
        "",
        f"{datetime.date.today()}, by `python validation/controller_batches.py` with PyTorch {torch.__version__}: CPU",
        "seconds of one core for each GB of a padded batch, by the operations of verl's `DataProto`. The machine has",
        "no GPU, and its core is not that of a GPU server.",
        "",
        "| prompt + response, tokens | GB | send, s/GB | receive and join, s/GB |",
        "|---|---|---|---|",
        *rows,
        "",
        f"Mean: {statistics.mean(sends):.1f} s/GB to send, {statistics.mean(receives):.1f} s/GB to receive.",
        "",
    ]
    write_file(RESULT, "\n".join(lines).encode())


if __name__ == "__main__":
    with sentences():
        main()
