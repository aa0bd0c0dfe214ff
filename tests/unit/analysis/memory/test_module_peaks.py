"""Peaks of modules by part of the step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from presim.analysis.memory.blocks import allocated_bytes, pinned_host_bytes
from presim.analysis.memory.module_peaks import module_peaks
from presim.result import Held
from presim.trace.builder import TraceBuilder
from presim.trace.schema import Category, HostCall, Kind, Phase, Trace
from presim.trace.signatures import Elementwise
from support import workloads

MIB = 1 << 20
FORWARD, RECOMPUTE, BACKWARD = Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD


class Planted:
    """A network of equal layers whose memory follows by hand: each keeps ``kept`` and works in ``worked`` MiB."""

    def __init__(self, weights: int = 8) -> None:
        self.build, self.addresses = TraceBuilder(), iter(range(0, 1 << 40, 1 << 30))
        self.take(weights, "net", Phase.OTHER, Category.PARAMETER)

    def take(self, size: int, scope: str, phase: Phase, category: Category = Category.OTHER) -> tuple[int, int]:
        block = next(self.addresses), size * MIB
        self.build.alloc(*block, scope=scope, phase=phase, category=category)
        self.build.work(Elementwise(1, 1, 1, "float32"), scope=scope, phase=phase)
        return block

    def run(self, layer: int, phase: Phase, kept: int, worked: int) -> tuple[int, int]:
        output = self.take(kept, f"net.layers.{layer}", phase, Category.ACTIVATION)
        self.build.free(*self.take(worked, f"net.layers.{layer}.mlp", phase, Category.TEMPORARY))
        return output


def peaks(trace: Trace) -> dict[tuple[str, str], tuple[int, int, int, int]]:
    return {
        (peak.path, peak.phase): (
            peak.peak_bytes // MIB,
            peak.before_bytes // MIB,
            peak.after_bytes // MIB,
            peak.new_bytes // MIB,
        )
        for peak in module_peaks(trace, trace.steps()[0], allocated_bytes(trace))
    }


@given(layers=st.integers(1, 5), kept=st.integers(1, 50), worked=st.integers(1, 50))
def test_the_peak_of_layers_follows_in_closed_form(layers: int, kept: int, worked: int) -> None:
    """The last layer's forward pass stands on what all earlier ones keep; recomputation on one layer less."""
    job = Planted()
    outputs = [job.run(layer, FORWARD, kept, worked) for layer in range(layers)]
    job.build.work(Elementwise(1, 1, 1, "float32"))  # the loss
    for layer in reversed(range(layers)):
        job.build.free(*outputs.pop())
        again = job.run(layer, RECOMPUTE, kept, worked)
        job.build.free(*job.take(2 * worked, f"net.layers.{layer}", BACKWARD, Category.TEMPORARY))
        job.build.free(*again)
    job.build.step()
    after = 8 + max(layers - 2, 0) * kept  # the output of the layer below goes, too
    below = 8 + (layers - 1) * kept
    assert {path: row for path, row in peaks(job.build.trace()).items() if path[0] == "net.layers.*"} == {
        ("net.layers.*", "forward"): (below + kept + worked, below, below + kept, kept + worked),
        ("net.layers.*", "recompute"): (below + kept + worked, below, below + kept, kept + worked),
        ("net.layers.*", "backward"): (below + kept + 2 * worked, below + kept, after, 2 * worked),
    }


def test_what_was_alive_is_named_by_category_and_adds_up() -> None:
    """The categories of a peak are those of all live blocks, not only of the module's own."""
    job = Planted()
    job.run(0, FORWARD, 3, 5)
    job.build.step()
    trace = job.build.trace()
    mlp = next(peak for peak in module_peaks(trace, slice(0, len(trace)), allocated_bytes(trace)) if "mlp" in peak.path)
    assert mlp.alive == [Held("parameter", 8 * MIB, 1), Held("temporary", 5 * MIB, 1), Held("activation", 3 * MIB, 1)]
    assert (mlp.peak_bytes, mlp.new_bytes) == (16 * MIB, 5 * MIB)


def test_no_module_peaks_above_its_parent_or_the_job() -> None:
    """A parent runs while its submodules do."""
    trace = workloads.llama_8b(steps=2, layers=4)
    allocated = allocated_bytes(trace)
    by_key = {(peak.path, peak.phase): peak for peak in module_peaks(trace, trace.steps()[-1], allocated)}
    assert by_key
    for (path, phase), peak in by_key.items():
        assert sum(held.bytes for held in peak.alive) == peak.peak_bytes <= int(allocated.max())
        parent = by_key.get((path.rpartition(".")[0], phase))
        assert parent is None or parent.peak_bytes >= peak.peak_bytes


def test_pinned_host_memory_is_the_peak_of_what_is_locked() -> None:
    """Locked and unlocked bytes in order; a trace that was not captured says that it does not know."""
    build = TraceBuilder()
    for call, size in ((HostCall.LOCK, 4), (HostCall.LOCK, 6), (HostCall.UNLOCK, 4), (HostCall.LOCK, 3)):
        build._add(Kind.HOST_CALL, object_=int(call), value=size * MIB)
    assert pinned_host_bytes(build.trace()) == 10 * MIB
