"""What scripts read from the emulated device, and that the device is asked for the same with values and without."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from presim import api
from presim.trace.schema import Kind, Trace
from support.captured import SCRIPTS, run

pytestmark = pytest.mark.torch_cuda


def capture(script: str, *args: str, values: tuple[str, ...] = ()) -> Trace:
    """A script of the tests, run to its end under other policies than the usual ones."""
    return api.evaluate_run(
        str(SCRIPTS / script), *args, gpu="h100-sxm", values=values, script_to_stderr=True
    ).priced.trace


def entries(trace: Trace) -> list[tuple[Any, ...]]:
    """All that was asked of the device in order, but for host time and where memory lies.

    Frees that follow each other are sorted: autocast drops its cache in the order of addresses on the heap.
    """
    places: dict[int, int] = {}
    columns = {name: column.tolist() for name, column in trace.columns.items()}
    found = []
    for i, kind in enumerate(columns["kind"]):
        signature, operator = columns["signature"][i], columns["operator"][i]
        place = columns["object"][i]
        if Kind.ALLOC <= kind <= Kind.RETAG:
            place = places.setdefault(place, len(places))
        found.append(
            (
                Kind(kind).name,
                columns["phase"][i],
                columns["stream"][i],
                trace.signatures[signature] if signature >= 0 else None,
                trace.operators[operator] if operator >= 0 else "",
                place,
                columns["value"][i],
            )
        )
    runs = itertools.groupby(found, key=lambda entry: entry[0] == Kind.FREE.name)
    return [entry for frees, run_ in runs for entry in (sorted(run_, key=str) if frees else run_)]


def test_small_tensors_are_computed_for_real() -> None:
    """The script checks itself: factories, indexing, in place, out=, foreach, random, backward, graph replay."""
    job = run("small_values.py")
    assert (job.trace.manifest.exit, job.trace.manifest.error) == ("ok", "")


@pytest.mark.parametrize("script", ["without_values.py", "compiled.py"])
def test_the_device_is_asked_for_the_same_with_and_without_values(script: str) -> None:
    """Kernels, copies, streams, synchronisations and memory, in the same order."""
    run(script)  # what torch.compile keeps is there from here on
    computed, zeros = capture(script), capture(script, values=("off",))
    assert len(computed) > 100
    assert entries(computed) == entries(zeros)
