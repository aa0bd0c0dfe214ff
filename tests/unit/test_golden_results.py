"""Results of synthetic traces, kept whole: what changes here changes for users.

After an intended change: ``python tests/unit/test_golden_results.py`` writes them anew.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from presim.analysis.summarise import summarise
from presim.report import json
from presim.trace.schema import Trace
from support import fakes, workloads

GOLDEN = Path(__file__).parents[1] / "golden"
TRACES: dict[str, Callable[[], Trace]] = {
    "llama-fsdp": lambda: workloads.llama_8b(steps=3, layers=4),
    "launch-bound": workloads.launch_bound,
    "out-of-memory": workloads.out_of_memory,
}


def encoded(name: str) -> bytes:
    """The result of one of the traces above."""
    trace = TRACES[name]()
    priced = fakes.priced(trace)
    total = trace.manifest.device_total_bytes or fakes.DEVICE.memory_bytes
    device = dataclasses.replace(fakes.DEVICE, gpu=trace.manifest.gpu, memory_bytes=total)
    return json.encode(summarise(priced, fakes.simulate(priced), device))


@pytest.mark.parametrize("name", TRACES)
def test_results_are_as_they_were(name: str) -> None:
    """Byte for byte, so that a change of any figure is seen in review."""
    assert encoded(name).decode() == (GOLDEN / f"result-{name}.json").read_text()


@pytest.mark.parametrize("name", TRACES)
def test_results_survive_their_file(name: str) -> None:
    """What is read back says the same."""
    assert json.encode(json.decode(encoded(name))) == encoded(name)


if __name__ == "__main__":
    for case in TRACES:
        (GOLDEN / f"result-{case}.json").write_bytes(encoded(case))
