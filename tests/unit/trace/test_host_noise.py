"""Host time of stretches that recur, without what disturbed them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from presim.trace.builder import TraceBuilder
from presim.trace.host_noise import HostNoise, undisturbed, waited_for, without_host_noise
from presim.trace.schema import WAITS, Kind, Trace
from presim.trace.signatures import Copy
from support import workloads

TIMES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 10**7)), min_size=1, max_size=200)


def llama(host_ns: NDArray[np.int64] | None = None) -> Trace:
    """Four steps of eight layers on the reference host."""
    trace = workloads.llama_8b(steps=4, layers=8)
    columns = trace.columns if host_ns is None else {**trace.columns, "host_ns": host_ns}
    manifest = msgspec.structs.replace(trace.manifest, reference_host=True)
    return dataclasses.replace(trace, columns=columns, manifest=manifest)


@given(TIMES)
def test_no_stretch_takes_longer_than_the_mean_of_its_times_or_less_than_its_shortest(
    times: list[tuple[int, int]],
) -> None:
    named, took = (np.array(column, np.int64) for column in zip(*times))
    stretch = np.unique(named, return_inverse=True)[1]
    result = undisturbed(took, stretch)
    for each in np.unique(stretch):
        own, before = result[stretch == each], took[stretch == each]
        if len(before) < 8:
            assert own.tolist() == before.tolist()
            continue
        assert len(set(own.tolist())) == 1
        assert before.min() <= own[0] <= round(before.mean())


@given(st.integers(0, 10**6), st.integers(0, 50))
def test_times_that_are_equal_stay_and_one_that_was_disturbed_becomes_as_the_others(each: int, others: int) -> None:
    stretch = np.zeros(20 + others, np.int64)
    took = np.full(len(stretch), each)
    assert undisturbed(took, stretch).tolist() == took.tolist()
    disturbed = took.copy()
    disturbed[7] += 10**9
    assert undisturbed(disturbed, stretch).max() <= each + 0.5 * each / 20 + 1


@given(TIMES, st.data())
def test_what_has_come_in_so_far_counts_as_undisturbed_says(times: list[tuple[int, int]], data: st.DataObject) -> None:
    """In pieces of any size: by the times that were known, or a sixteenth fewer; what has come up once as it came."""
    named, took = (np.array(column, np.int64) for column in zip(*times))
    recurring = HostNoise()
    entries = [recurring.entry(0, 0, name, None, None) for name in range(6)]
    stretch = np.array([recurring.stretch(-1, entries[name]) for name in named.tolist()])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(took)), max_size=5)))
    for begin, end in zip([0, *cuts], [*cuts, len(took)]):
        result = recurring.take(took[begin:end], stretch[begin:end])
        for each, before, found in zip(stretch[begin:end].tolist(), took[begin:end].tolist(), result.tolist()):
            known = took[:end][stretch[:end] == each]
            if len(known) < 2:
                assert found == before
            elif len(known) <= 128:
                fewest = max(2, int(np.ceil(len(known) * 16 / 17)))
                lately = (known[:count] for count in range(fewest, len(known) + 1))
                assert found in {int(undisturbed(some, np.zeros(len(some), np.int64), 2)[0]) for some in lately}


def test_of_many_times_the_latest_count_and_memory_stays() -> None:
    recurring = HostNoise()
    stretch = np.full(50, recurring.stretch(-1, recurring.entry(0, 0, None, "aten::add", "layers.0")))
    for _ in range(10):
        slow = recurring.take(np.full(50, 5_000), stretch)
    for _ in range(10):
        fast = recurring.take(np.full(50, 1_000), stretch)
    assert (slow[-1], fast[-1]) == (5_000, 1_000)
    assert recurring._times.nbytes < 1 << 16


def test_layers_are_alike_but_for_their_numbers() -> None:
    recurring = HostNoise()
    first, other = (recurring.entry(0, 1, None, "aten::add", f"layers.{layer}.mlp") for layer in (3, 17))
    assert first == other != recurring.entry(0, 2, None, "aten::add", "layers.3.mlp")


@given(st.permutations(range(40)))
def test_which_time_came_first_makes_no_difference(order: list[int]) -> None:
    took, stretch = np.arange(40, dtype=np.int64) ** 2, np.arange(40, dtype=np.int64) % 3
    assert undisturbed(took[order], stretch[order]).tolist() == undisturbed(took, stretch)[order].tolist()


def test_steps_without_disturbances_take_what_they_took() -> None:
    trace = llama()
    assert without_host_noise([trace])[0].columns["host_ns"].tolist() == trace.columns["host_ns"].tolist()


def test_a_disturbance_in_a_layer_vanishes_and_one_in_the_first_step_stays() -> None:
    trace = llama()
    host_ns = trace.columns["host_ns"].astype(np.int64)
    setup, second, *_ = trace.steps()
    scopes = np.array([*trace.scopes, ""])[trace.columns["scope"].astype(np.int64)]
    in_layers = np.flatnonzero(np.char.find(scopes, "layers.3") >= 0)
    first = int(in_layers[in_layers < setup.stop][4])
    later = int(in_layers[in_layers >= second.start][4])
    host_ns[[first, later]] += 50_000_000
    after = without_host_noise([llama(host_ns)])[0].columns["host_ns"]
    assert after[first] == host_ns[first]
    assert after[later] < 1_000_000


def test_a_rank_that_was_captured_beside_other_work_takes_what_the_others_take() -> None:
    quiet = llama()
    host_ns = quiet.columns["host_ns"].astype(np.int64)
    scopes = np.array([*quiet.scopes, ""])[quiet.columns["scope"].astype(np.int64)]
    in_layers = np.flatnonzero(np.char.find(scopes, "layers.3") >= 0)[1:]
    in_layers = in_layers[in_layers >= quiet.steps()[1].start]
    first, *_, last = (
        each.columns["host_ns"] for each in without_host_noise([quiet, quiet, quiet, llama(3 * host_ns)])
    )
    assert first[in_layers].tolist() == last[in_layers].tolist()
    assert host_ns[in_layers].sum() < first[in_layers].sum() < 1.15 * host_ns[in_layers].sum()
    assert last[0] == 3 * host_ns[0]  # the first step sets up


def read_backs(took_ns: Sequence[int]) -> Trace:
    """Three steps that read tensors of growing size back and compute for so long behind each."""
    build = TraceBuilder()
    for _ in range(3):
        for size, host_ns in enumerate(took_ns, start=1):
            build.work(Copy(direction="d2h", bytes=size * 1024), host_ns=10_000)
            build.stream_sync(stream=0, host_ns=2_000)
            build.alloc(0, 512, host_ns=host_ns)
            build.free(0, 512, host_ns=1_000)
        build.step()
    trace = build.trace()
    manifest = msgspec.structs.replace(trace.manifest, reference_host=True)
    return dataclasses.replace(trace, manifest=manifest)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=12))
def test_what_is_computed_behind_a_read_back_goes_by_what_was_read(took_ns: list[int]) -> None:
    """However much the times differ that end with the same entry, for tensors are not of one size."""
    trace = read_backs(took_ns)
    assert without_host_noise([trace])[0].columns["host_ns"].tolist() == trace.columns["host_ns"].tolist()


@given(st.lists(st.tuples(st.sampled_from([Kind.WORK, Kind.ALLOC, *WAITS]), st.integers(0, 3))), st.data())
def test_a_wait_is_known_by_the_last_work_before_it_however_entries_come_in(
    entries: list[tuple[int, int]], data: st.DataObject
) -> None:
    kind = np.array([kind for kind, _ in entries], np.int64)
    signature = np.array([number if kind == Kind.WORK else -1 for kind, number in entries], np.int64)
    found = waited_for(kind, signature)
    for place, (is_kind, own) in enumerate(zip(kind.tolist(), signature.tolist())):
        before = [number for number in signature[:place].tolist() if number >= 0]
        assert found[place] == (own if is_kind not in WAITS else before[-1] if before else -1)
    cut = data.draw(st.integers(0, len(kind)))
    earlier = [-1, *signature[:cut][signature[:cut] >= 0].tolist()][-1]
    pieces = waited_for(kind[:cut], signature[:cut]), waited_for(kind[cut:], signature[cut:], earlier)
    assert np.concatenate(pieces).tolist() == found.tolist()


def test_a_trace_without_steps_or_of_an_unknown_host_is_left_alone() -> None:
    once = workloads.llama_8b(steps=1, layers=2)
    assert without_host_noise([once])[0] is once
    elsewhere = workloads.llama_8b(steps=3, layers=2)
    assert without_host_noise([elsewhere])[0] is elsewhere
