"""Weights of virtual stages that are gathered one ahead."""

from __future__ import annotations

import msgspec
import numpy as np

from presim.trace.builder import TraceBuilder, default_manifest
from presim.trace.collective import Collective
from presim.trace.schema import Group, Kind, Trace
from presim.trace.signatures import Gemm
from presim_study.gathered_ahead import gathered_ahead

COMPUTE, BESIDE = 0, 7


def staged(name: str = "DATA_PARALLEL_GROUP_WITH_CP", steps: int = 2) -> Trace:
    """Three virtual stages in each step, each of which gathers its weights when it begins."""
    group = Group(name=name, size=2, ranks=(0, 1))
    build = TraceBuilder(msgspec.structs.replace(default_manifest(), world_size=2, groups=(group,)))
    for _ in range(steps):
        for stage in range(3):
            build.wait(build.record(stream=COMPUTE, host_ns=stage), stream=BESIDE)
            gather = Collective(kind="all_gather", bytes=1000 + stage, dtype="bfloat16", group=0)
            build.work(gather, stream=BESIDE, host_ns=10 + stage)
            build.wait(build.record(stream=BESIDE), stream=COMPUTE)
            build.work(Gemm(m=64, n=64, k=64 * (stage + 1), batch=1, dtype="bfloat16"), stream=COMPUTE)
        build.step()
    return build.trace()


def asked(trace: Trace) -> list[str]:
    """What each step asks for, in order."""
    names = []
    for number in trace.columns["signature"].tolist():
        signature = trace.signatures[number] if number >= 0 else None
        match signature:
            case Collective():
                names.append(f"gather {signature.bytes - 1000}")
            case Gemm():
                names.append(f"run {signature.k // 64 - 1}")
    return names


def test_a_stage_is_gathered_before_the_one_before_it_runs() -> None:
    each = ["gather 0", "gather 1", "run 0", "gather 2", "run 1", "run 2"]
    assert asked(gathered_ahead(staged())) == each * 2


def test_nothing_is_lost_and_each_stage_still_waits_for_its_own_weights() -> None:
    before, after = staged(), gathered_ahead(staged())
    for name in before.columns:
        assert sorted(after.columns[name].tolist()) == sorted(before.columns[name].tolist())
    serial, kind = after.columns["object"], after.columns["kind"].astype(np.int64)
    for wait in np.flatnonzero(kind == Kind.STREAM_WAIT).tolist():
        assert serial[wait] in serial[:wait][kind[:wait] == Kind.EVENT_RECORD]
    for stage in (1, 2):  # the gather, what records its end, the wait for that, and then the stage's work
        gather, run = (asked(after).index(f"{what} {stage}") for what in ("gather", "run"))
        assert gather < run


def test_gathers_of_other_groups_stay_where_they_are() -> None:
    assert asked(gathered_ahead(staged("TENSOR_MODEL_PARALLEL_GROUP"))) == asked(staged())
