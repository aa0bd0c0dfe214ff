"""Copies of a layer refer to what their neighbours in the captured model say, in either direction."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from presim.composition.replan.allocator_pools import _connected
from presim.composition.replan.layer_laws import CallOrigins
from presim.composition.replan.layer_names import names_of
from presim.composition.replan.layer_regions import Regions

HEAD, LAYER, TAIL = 2, 3, 4  # calls before, of each layer, and after


def model(num_layers: int, added: int) -> CallOrigins:
    """A forward region and a backward one of as many layers, with calls around them."""
    begins = np.array([HEAD, HEAD + LAYER * num_layers + TAIL])
    columns = (np.full(2, LAYER), np.full(2, num_layers), np.array([1, -1]))
    return CallOrigins.of(Regions(begins, *columns), added, HEAD + 2 * (LAYER * num_layers + TAIL))


def references(num_layers: int) -> np.ndarray:
    """Each backward call refers to its layer's forward call; forward calls to the layer before; others to nothing."""
    captured = np.full(HEAD + 2 * (LAYER * num_layers + TAIL), -1)
    backward = HEAD + LAYER * num_layers + TAIL
    for layer in range(num_layers):
        for call in range(LAYER):
            position = HEAD + LAYER * layer + call
            captured[position] = position - LAYER if layer else HEAD - 1
            captured[backward + LAYER * (num_layers - 1 - layer) + call] = position
    captured[backward - 1] = backward - TAIL - 1  # the loss refers to the last layer's output
    captured[-1] = HEAD  # an update refers to the first layer's first call
    return captured


@given(num_layers=st.integers(3, 8), added=st.integers(1, 9))
def test_an_extended_model_refers_as_one_captured_with_so_many_layers(num_layers: int, added: int) -> None:
    layout = model(num_layers, added)
    sources, shifts = layout.sources()
    targets, lawless = layout.targets(references(num_layers), sources, shifts)
    assert not len(lawless)
    np.testing.assert_array_equal(targets, references(num_layers + added))


@given(num_layers=st.integers(3, 8), added=st.integers(1, 9))
def test_captured_calls_are_where_their_copies_put_them(num_layers: int, added: int) -> None:
    layout = model(num_layers, added)
    sources, _ = layout.sources()
    calls = np.arange(len(layout.region))
    images = layout.images(calls, layout.shift_of(calls))
    np.testing.assert_array_equal(sources[images], calls)


def test_a_call_that_refers_to_something_else_in_each_layer_follows_no_law() -> None:
    layout = model(5, 2)
    captured = references(5)
    captured[HEAD + LAYER * np.arange(5)] = [0, 1, 0, 1, 0]
    _, lawless = layout.targets(captured, *layout.sources())
    assert lawless.tolist() == [HEAD + LAYER * 2]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=20))
def test_blocks_that_share_a_segment_or_a_kind_are_of_one_pool(pairs: list[tuple[int, int]]) -> None:
    first, second = np.array(pairs).T
    groups = _connected(first, second)
    for column in (first, second):
        for number in set(column.tolist()):
            assert len(set(groups[column == number].tolist())) == 1
    merged = [set(pair) for pair in zip(first.tolist(), (second + 10).tolist())]
    while True:  # the finest such groups
        joined: list[set[int]] = []
        for part in merged:
            overlapping = [group for group in joined if group & part]
            joined = [group for group in joined if not group & part] + [part.union(*overlapping)]
        if len(joined) == len(merged):
            break
        merged = joined
    assert len(set(groups.tolist())) == len(merged)


def test_names_are_taken_apart_at_the_layer_s_number() -> None:
    table = ("Model.layers.0.up", "Model.layers.12.up", "Model.layers.3", "FSDP::gather(layers.4)", "Model.head")
    names = names_of(table, "layers.")
    assert names.layers.tolist() == [0, 12, 3, 4, -1, -1]
    assert names.rests[0] == names.rests[1] != names.rests[2]
    renamed, indices = names.renamed(table, np.array([0, 3]), np.array([7, 12]))
    assert [renamed[index] for index in indices] == ["Model.layers.7.up", "FSDP::gather(layers.12)"]
