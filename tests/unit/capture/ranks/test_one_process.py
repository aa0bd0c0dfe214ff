"""Programs for one process with several GPUs are told from ranks."""

from __future__ import annotations

import msgspec
import pytest

from presim.capture.launchers.launch import Launch
from presim.capture.ranks.one_process import is_one_process
from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.job import Job
from presim.trace.schema import GpuUse

COPY = msgspec.structs.replace(
    default_manifest(), world_size=2, gpus_per_node=2, has_process_group=False, context_bytes=10,
    gpus=(GpuUse(0, 30, 60, 2), GpuUse(1, 20, 40, 2)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "launcher", "expected"),
    [
        ({}, "", True),
        ({}, "python", True),
        ({"exit": "out_of_memory"}, "", True),  # copies may lack memory that one process has
        ({}, "torchrun", False),
        ({"has_process_group": True}, "", False),
        ({"has_process_group": True, "exit": "raised"}, "", True),  # accelerate joins one, and refuses device maps
        ({"has_process_group": True, "exit": "raised"}, "torchrun", False),
        ({"gpus": (GpuUse(0, 30, 40, 2), GpuUse(1, 10, 40, 2))}, "", False),  # only a context on the second GPU
        ({"gpus": ()}, "", False),
        ({"world_size": 4}, "", False),  # two nodes
    ],
)
def test_copies_with_data_on_several_gpus_and_no_group_are_one_process(
    changes: dict[str, object], launcher: str, expected: bool
) -> None:
    job = Job.of(TraceBuilder(msgspec.structs.replace(COPY, **changes)).trace())
    assert is_one_process(job, Launch("train.py", launcher=launcher)) == expected
