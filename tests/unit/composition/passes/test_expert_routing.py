"""Loads of experts: what they conserve, and that they are those of drawn choices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.composition.passes.expert_routing import EVEN, apportion, inclusion, load_of, parse, scaled
from presim.errors import InputError

RANKS, TOKENS, LAYERS = 4, 2048, 8


@pytest.mark.parametrize(("capacity", "padded"), [(0.0, False), (1.0, False), (2.5, False)])
def test_even_routing_with_room_for_all_changes_nothing(capacity: float, padded: bool) -> None:
    assert load_of(parse("balanced", capacity, padded), 16, 2, RANKS, TOKENS, LAYERS) is EVEN


@given(st.floats(0, 2), st.integers(0, 5), st.sampled_from([1, 2, 4]), st.sampled_from([16, 64]))
def test_a_rank_sends_all_its_copies_and_the_fullest_receives_the_most(
    skew: float, seed: int, chosen: int, experts: int
) -> None:
    load = load_of(parse(f"zipf:{skew}:{seed}"), experts, chosen, RANKS, TOKENS, LAYERS)
    assert load.sent == pytest.approx(1, abs=0.05)  # the approximation of drawing without replacement
    assert load.received >= load.sent * 0.999
    if load.shares:
        assert sum(load.shares) == pytest.approx(1)
        assert list(load.shares) == sorted(load.shares, reverse=True)
        assert load.shares[0] * RANKS * load.sent == pytest.approx(load.received)
    if load.groups:
        assert sum(load.groups) == pytest.approx(1)
        assert len(load.groups) == experts // RANKS


@given(st.floats(0.1, 2), st.floats(0, 2))
def test_no_rank_receives_more_than_its_capacity(capacity: float, skew: float) -> None:
    dropped = load_of(parse(f"zipf:{skew}", capacity), 16, 2, RANKS, TOKENS, LAYERS)
    padded = load_of(parse(f"zipf:{skew}", capacity, True), 16, 2, RANKS, TOKENS, LAYERS)
    assert dropped.received <= capacity * 1.0001
    assert dropped.sent <= min(1.05, capacity * 1.0001)
    assert (padded.sent, padded.received) == (pytest.approx(capacity), pytest.approx(capacity))


def test_a_seed_decides() -> None:
    first, again, other = (load_of(parse(f"zipf:1:{seed}"), 16, 2, RANKS, TOKENS, LAYERS) for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("chosen", [1, 2, 8])
def test_inclusion_is_that_of_draws_without_replacement(chosen: int) -> None:
    """Drawn as the emulated device draws: the greatest of log(weight) plus Gumbel noise."""
    weights = np.arange(1, 33, dtype=float) ** -1.0
    random = np.random.default_rng(0)
    keys = np.log(weights) + random.gumbel(size=(40_000, len(weights)))
    picked = np.argsort(-keys, axis=1)[:, :chosen]
    drawn = np.bincount(picked.ravel(), minlength=len(weights)) / len(keys)
    found = inclusion(weights, chosen)
    assert found.sum() == pytest.approx(chosen)
    assert found == pytest.approx(drawn, abs=0.03)


def test_experts_without_weight_get_nothing() -> None:
    assert inclusion(np.array([1.0, 0.0, 1.0]), 2).tolist() == [1.0, 0.0, 1.0]


@given(st.integers(0, 10_000), st.lists(st.floats(0.01, 1), min_size=1, max_size=9))
def test_all_rows_are_dealt_out(rows: int, weights: list[float]) -> None:
    shares = [one / sum(weights) for one in weights]
    assert sum(apportion(rows, shares, len(shares))) == rows
    assert sum(apportion(rows, (), len(shares))) == rows


def test_rows_are_rounded_up_and_never_none() -> None:
    assert (scaled(10, 1.2), scaled(10, 1.21), scaled(10, 0.0)) == (12, 13, 1)


def test_loads_of_other_experts_are_refused(tmp_path: object) -> None:
    path = f"{tmp_path}/loads"
    with open(path, "w") as file:
        file.write("1 2 3")
    with pytest.raises(InputError, match="routing has loads of 3 experts, but the model has 16"):
        load_of(parse(f"file:{path}"), 16, 2, RANKS, TOKENS, LAYERS)
