"""Learned prices: who answers for whom, what scales how, and what the files that come with presim promise."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance import strategies as made
from presim import hardware
from presim.cost.analytic.analytic_estimator import AnalyticEstimator
from presim.cost.learned.learned_estimator import PACKAGED, LearnedEstimator
from presim.cost.learned.learned_model_file import read, write
from presim.cost.learned.probes import agree_within_rounding, probe_ns
from presim.cost.price import Origin
from presim.errors import InputError
from presim.trace.signatures import Attention, Elementwise, Gemm, Normalization, Sort

FILES = sorted(PACKAGED.glob("*.json"))
GEMM = Gemm(4096, 4096, 4096, 1, "bfloat16", layout="NT")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_packaged_models_are_whole_and_of_these_formulas(path: Path) -> None:
    """After a change of analytic formulas or constants the models have to be fitted again: presim fit."""
    model = read(path)
    assert path.name == f"{model.kind}.{model.gpu}.json"
    assert agree_within_rounding(model.analytic, probe_ns(model.gpu))
    assert all(source.sha256 and source.commit for source in model.sources)


def test_packaged_models_are_of_one_fit() -> None:
    """Each version of a dataset was read the same way for all of them: one call of presim fit makes their files anew.

    RTX PRO 6000's tables came with a later version than the others.
    """
    read_as = [source for path in FILES for source in read(path).sources]
    first = {(source.name, source.commit): source for source in reversed(read_as)}
    assert [source for source in read_as if source != first[source.name, source.commit]] == []
    assert {path.stem.partition(".")[2] for path in FILES if read(path).sources[0].commit == "0.12.0"} == {
        "rtx-pro-6000"
    }


def test_packaged_models_are_small() -> None:
    assert len(FILES) > 20
    assert max(path.stat().st_size for path in FILES) < 700_000
    assert sum(path.stat().st_size for path in FILES) < 8_000_000


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_correction_is_worth_it_on_shapes_it_never_saw(path: Path) -> None:
    """Where there are enough held-out rows to tell, the error is below the formula's and the interval holds."""
    whole = next((part for part in read(path).held_out if part.name == "all"), None)
    if whole and whole.points >= 200:
        assert whole.mape < whole.analytic_mape
        assert 0.65 <= whole.within <= 0.9


def test_a_gpu_without_models_borrows_and_doubts() -> None:
    """At the clocks of tables: how much lower those of a busy GPU are is another doubt, and smaller on GB200."""
    (own,) = LearnedEstimator(hardware.gpu("b200"), burst=True).price([GEMM])
    (borrowed,) = LearnedEstimator(hardware.gpu("gb200"), burst=True).price([GEMM])
    assert own is not None
    assert borrowed is not None
    assert (own.estimator, borrowed.estimator) == ("learned/gemm-half", "learned/gemm-half from b200")
    assert own.origin is borrowed.origin is Origin.LEARNED
    assert borrowed.uncertainty > own.uncertainty


def test_what_no_table_measured_is_left_to_others() -> None:
    assert LearnedEstimator(hardware.gpu("mi300x")).price([GEMM]) == [None]
    assert LearnedEstimator(hardware.gpu("h100-sxm")).price([Sort(8, 8, 1, "float32")]) == [None]


def test_attention_of_another_library_is_left_to_the_formula() -> None:
    """FlashAttention 2 on a Hopper is no slower FlashAttention 3: what corrects the one says nothing of the other."""
    estimator = LearnedEstimator(hardware.gpu("h100-sxm"))
    names = ("cudnn", "flash3")
    work = [Attention("forward", 4, 32, 8, 4096, 4096, 128, 128, True, "bfloat16", name) for name in names]
    cudnn, flash3 = estimator.price(work)
    assert cudnn is None
    assert flash3 is not None
    assert estimator.price(work[:1]) == [None]


@pytest.mark.parametrize("gpu", ["b200", "gb200"])
def test_attention_that_stands_in_for_cudnns_keeps_the_formulas_doubt(gpu: str) -> None:
    """Blackwell's tables timed kernels for inference: of training's they say less."""
    chip = hardware.gpu(gpu)
    whole = Attention("forward", 1, 64, 8, 8192, 8192, 128, 128, True, "bfloat16", "cudnn")
    (formula,) = AnalyticEstimator(chip).price([whole])
    (training, paged) = LearnedEstimator(chip).price([whole, msgspec.structs.replace(whole, paged=True)])
    assert training is not None
    assert paged is not None
    assert formula is not None
    assert training.estimator.startswith("learned/attention-forward")
    assert paged.uncertainty < training.uncertainty == formula.uncertainty


def test_a_layout_that_was_not_measured_keeps_the_formulas_doubt() -> None:
    gpu = hardware.gpu("h100-sxm")
    gradient = msgspec.structs.replace(GEMM, layout="TN")
    (other,) = LearnedEstimator(gpu).price([gradient])
    (formula,) = AnalyticEstimator(gpu).price([gradient])
    assert other is not None
    assert formula is not None
    assert other.uncertainty >= formula.uncertainty


@pytest.mark.parametrize("m", [512, 2048, 16384])
def test_of_a_layout_that_was_not_measured_half_the_correction_counts(m: int) -> None:
    """The formula is the same for both layouts, so their corrections can be compared."""
    gpu = hardware.gpu("h100-sxm")
    forward = msgspec.structs.replace(GEMM, m=m)
    work = [forward, msgspec.structs.replace(forward, layout="NN")]
    (formula, alike), (measured, other) = (each(gpu).price(work) for each in (AnalyticEstimator, LearnedEstimator))
    assert formula is not None
    assert measured is not None
    assert other is not None
    assert formula == alike
    half = (measured.duration_ns / formula.duration_ns) ** 0.5
    assert other.duration_ns == pytest.approx(half * formula.duration_ns, rel=1e-3)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(("h100-sxm", "a100-80gb-sxm", "b200", "l40s", "gb200")), made.gemms())
def test_twice_every_side_takes_longer(gpu: str, small: Gemm) -> None:
    """Eight times the work is never cheaper, whatever the trees say."""
    large = msgspec.structs.replace(small, m=2 * small.m, n=2 * small.n, k=2 * small.k)
    low, high = LearnedEstimator(hardware.gpu(gpu)).price([small, large])
    assert low is None or high is None or low.duration_ns <= high.duration_ns


@settings(max_examples=30, deadline=None)
@given(st.sampled_from((("h100-sxm", "flash3"), ("a100-80gb-sxm", "flash"), ("b200", "cudnn"))), st.integers(1, 8))
def test_far_beyond_what_was_measured_prices_scale_as_the_formula(card: tuple[str, str], times: int) -> None:
    """Trees are constant out there: twice the batch of an enormous attention takes twice as long, within a percent."""
    gpu, backend = card
    one = Attention("forward", 4096 * times, 64, 8, 32768, 32768, 128, 128, True, "bfloat16", backend)
    two = msgspec.structs.replace(one, batch=2 * one.batch)
    low, high = LearnedEstimator(hardware.gpu(gpu)).price([one, two])
    assert low is not None
    assert high is not None
    assert high.duration_ns == pytest.approx(2 * low.duration_ns, rel=0.01)


def test_a_model_of_other_formulas_is_refused(tmp_path: Path) -> None:
    model = read(PACKAGED / "gemm-half.h100-sxm.json")
    write(msgspec.structs.replace(model, analytic=(1,)), tmp_path / "gemm-half.h100-sxm.json")
    with pytest.raises(InputError, match="was fitted to other formulas than this presim has: make it again"):
        LearnedEstimator(hardware.gpu("h100-sxm"), (PACKAGED, tmp_path)).price([GEMM])


def test_corrections_of_a_gpu_that_throttles_are_not_lent_to_one_that_does_not() -> None:
    product = Gemm(8192, 8192, 8192, 1, "bfloat16")
    lent = {name: LearnedEstimator(hardware.gpu(name)).price([product])[0] for name in ("h20", "h800")}
    assert lent["h20"] is None
    assert lent["h800"] is not None


def test_layers_too_short_for_the_tables_take_what_the_formula_says() -> None:
    """vidur's times below 5 us are rounded: an addition of 128 KiB takes 1.6 us on an H100, not 2.9."""
    gpu = hardware.gpu("h100-sxm")
    short, long = (Elementwise(size, size, size // 4, "float32", operator="aten::add") for size in (1 << 17, 1 << 25))
    learned = LearnedEstimator(gpu, burst=True).price([short, long])
    formula = AnalyticEstimator(gpu, burst=True).price([short, long])
    assert learned[0].duration_ns == formula[0].duration_ns == pytest.approx(1600, rel=0.1)
    assert learned[1].duration_ns != formula[1].duration_ns


@pytest.mark.parametrize("gpu", ["h100-sxm", "h800", "a100-80gb-sxm", "a100-40gb-pcie", "a40", "l4", "t4"])
@pytest.mark.parametrize("kind", [Elementwise, Normalization])
def test_more_elements_do_not_take_less_time(gpu: str, kind: type[Elementwise | Normalization]) -> None:
    """Also where the corrections of long kernels begin."""
    works = [kind(2 * size, 2 * size, size, "bfloat16") for size in (int(1.1**step) for step in range(80, 180))]
    times = [price.duration_ns for price in LearnedEstimator(hardware.gpu(gpu)).price(works) if price]
    assert all(later > 0.9 * earlier for earlier, later in itertools.pairwise(times))
    assert len(times) in (0, len(works))
