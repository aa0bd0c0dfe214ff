"""The work of Triton kernel launches, from intermediate code as printed by Triton 3.8.

The code in ``ttir`` is of kernels in ``tests/integration/scripts/triton_kernels.py``, without its source locations.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from presim.capture.adapters.triton_programs import strata, trip_count
from presim.capture.adapters.triton_scalars import Address, Scalar
from presim.capture.adapters.triton_work import TritonKernel, TritonLaunch

CODE = Path(__file__).parent / "ttir"
BF16 = 2


def kernel(name: str) -> TritonKernel:
    return TritonKernel((CODE / f"{name}.ttir").read_text(), warps=8, capability=90)


def unknown(place: Address) -> Scalar:
    return None


def multiply(m: int, n: int, k: int) -> TritonLaunch:
    """Tiles of 128 x 256, 64 deep."""
    sizes = {"a": BF16 * m * k, "b": BF16 * k * n, "c": BF16 * m * n}
    places: dict[str, Scalar] = {name: Address(name) for name in sizes}
    grid = (-(-m // 128) * -(-n // 256), 1, 1)
    return kernel("product").work_of_launch(places | {"m": m, "n": n, "k": k}, sizes, grid, unknown)


def test_a_product_has_its_flops_and_each_matrix_once_from_memory() -> None:
    found = multiply(8192, 8192, 8192)
    assert found.products == {"bfloat16": 2 * 8192**3}
    assert found.read == {"a": BF16 * 8192**2, "b": BF16 * 8192**2}
    assert found.written == {"c": BF16 * 8192**2}
    assert found.loaded == BF16 * 8192**3 // 256 + BF16 * 8192**3 // 128  # what the caches serve, too
    assert found.rounds == (8192 / 256 + 8192 / 128) / 2
    assert (found.programs, found.longest, found.guesses) == (2048, 1.0, ())


@given(st.integers(1, 40), st.integers(1, 20), st.integers(0, 70))
def test_loops_follow_the_arguments_of_the_launch(m: int, n: int, k: int) -> None:
    """The rest of a partial tile is computed too."""
    found = multiply(128 * m, 256 * n, 64 * k)
    assert found.products.get("bfloat16", 0) == 2 * (128 * m) * (256 * n) * (64 * k)
    assert multiply(128 * m - 1, 256 * n - 1, max(64 * k - 1, 0)).products == found.products


def attend(length: int) -> TritonLaunch:
    """4 sequences of 32 heads of 128, 8 of keys; tiles of 128 queries and 64 keys, up to the diagonal."""
    size = BF16 * 4 * length * 128
    sizes = {"queries": 32 * size, "keys": 8 * size, "values": 8 * size, "outputs": 32 * size}
    places: dict[str, Scalar] = {name: Address(name) for name in sizes}
    numbers: dict[str, Scalar] = {"heads": 32, "kv_heads": 8, "length": length, "scale": 0.1}
    return kernel("causal_attention").work_of_launch(places | numbers, sizes, (length // 128, 4 * 32, 1), unknown)


def test_causal_attention_computes_half_of_the_tiles_and_those_on_the_diagonal() -> None:
    found = attend(4096)
    tiles = sum(2 * (row + 1) for row in range(4096 // 128))  # of 64 keys
    assert found.products == {"bfloat16": pytest.approx(4 * 32 * tiles * 2 * 2 * 128 * 64 * 128)}
    assert 1.5 < found.longest <= 2.0  # the last tile of queries sees all keys, the mean one half of them
    assert found.instructions[1] > 4 * 32 * tiles * 128 * 64  # an exponential for each score


def group(ends: tuple[int, ...] | None) -> TritonLaunch:
    """8 experts, 16,384 rows of 4096, weights of 2048 x 4096; 132 programs iterate over tiles of 128 x 128."""
    sizes = {"x": BF16 * 16384 * 4096, "w": BF16 * 8 * 2048 * 4096, "y": BF16 * 16384 * 2048, "offsets": 4 * 9}
    places: dict[str, Scalar] = {name: Address(name) for name in sizes}

    def read(place: Address) -> Scalar:
        return ends[place.offset] if ends and place.tensor == "offsets" else None

    numbers: dict[str, Scalar] = {"groups": 8, "n": 2048, "k": 4096}
    return kernel("grouped_product").work_of_launch(places | numbers, sizes, (132, 1, 1), read)


def test_known_device_values_decide_loops() -> None:
    even = group(tuple(range(0, 16385, 2048)))
    assert even.products == {"bfloat16": pytest.approx(2 * 16384 * 2048 * 4096)}
    assert not even.guesses
    skewed = group((0, 1, 2, 3, 4, 5, 6, 7, 16384))  # seven experts with a row each take a whole tile
    assert skewed.products["bfloat16"] == pytest.approx(2 * (7 * 128 + 16384) * 2048 * 4096, rel=0.01)


def test_loops_that_depend_on_unknown_values_are_bounded_by_the_outputs_with_a_note() -> None:
    found = group(None)
    assert found.guesses == ("loops that depend on them are assumed to write each output once",)
    assert found.products == {"bfloat16": pytest.approx(2 * 16384 * 2048 * 4096)}


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(1, 9))
def test_a_loop_has_the_iterations_of_python_s_range(low: int, high: int, step: int) -> None:
    assert trip_count(low, high, step) == len(range(low, high, step))
    assert trip_count(None, high, step) is None


@given(st.integers(1, 5000), st.integers(1, 200))
def test_a_sample_is_stratified_and_reproducible(size: int, most: int) -> None:
    found = strata(size, most)
    assert len(found) == min(size, most)
    assert found == sorted(found)
    assert found == strata(size, most)
    assert all(0 <= one < size for one in found)
