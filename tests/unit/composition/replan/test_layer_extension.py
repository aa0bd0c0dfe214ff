"""What only the first of equal layers does before the steps does not keep them from repeating each other."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np

from presim.composition.replan.layer_extension import _without_host_setup
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Kind


def test_pages_that_the_host_touches_first_before_the_steps_are_no_calls_of_layers() -> None:
    build = TraceBuilder()
    for address in range(4):
        build.alloc(address << 20, 1 << 20)
    trace = build.trace()
    kinds = trace.columns["kind"].copy()
    kinds[[1, 3]] = Kind.HOST_CALL
    step = msgspec.structs.replace(trace.manifest.step, begin=2)
    manifest = msgspec.structs.replace(trace.manifest, step=step)
    trace = dataclasses.replace(trace, columns={**trace.columns, "kind": kinds}, manifest=manifest)
    assert _without_host_setup(trace, np.arange(4)).tolist() == [0, 2, 3]
