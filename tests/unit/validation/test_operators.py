"""Rows of single operators become signatures, and are priced as operators that are timed alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from presim.errors import InputError
from presim.studies.validation.cases import Case
from presim.studies.validation.published_operators import OPERATORS, signature_of
from presim.trace.signatures import Attention, Convolution, Gemm
from support.plans import ELSEWHERE

PRODUCT = {"gpu": "H100 SXM 80GB", "family": "gemm", "m": "8192", "n": "8192", "k": "8192", "dtype": "bfloat16"}
ATTENTION = {"gpu": "h100-sxm", "family": "attention", "heads": "32", "q_len": "4096", "head_dim": "128"}


def test_columns_are_the_fields_of_a_signature() -> None:
    assert signature_of(Case(PRODUCT)) == Gemm(m=8192, n=8192, k=8192, batch=1, dtype="bfloat16")


def test_usual_values_may_be_left_out() -> None:
    work = signature_of(Case({**ATTENTION, "dtype": "bfloat16", "causal": "true", "kv_heads": "8"}))
    assert work == Attention("forward", 1, 32, 8, 4096, 4096, 128, 128, True, "bfloat16", "flash")


def test_sizes_of_a_convolution_are_joined_by_x() -> None:
    row = {"family": "convolution", "direction": "forward", "batch": "8", "in_channels": "3", "out_channels": "64",
           "input_size": "224x224", "filter_size": "7x7", "output_size": "112x112", "stride": "2x2",
           "dilation": "1x1", "groups": "1", "dtype": "float16"}  # fmt: skip
    work = signature_of(Case(row))
    assert isinstance(work, Convolution)
    assert (work.filter_size, work.stride) == ((7, 7), (2, 2))


def test_a_row_is_priced_with_its_interval() -> None:
    (row,) = OPERATORS.predict([{**PRODUCT, "time_us": "1600"}])
    assert row["reason"] == ""
    assert float(row["low_time_us"]) < float(row["predicted_time_us"]) < float(row["high_time_us"])
    assert abs(float(row["error"])) < 0.2  # 1.1e12 flops at 690 TFLOP/s


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"time_us": ""}, "time_us is empty"),
        ({"time_us": "fast"}, "time_us = 'fast' is not a number"),
        ({"time_us": "-1600"}, "time_us = -1600 is not a duration"),
        ({"time_us": "900"}, "left out: faster than the datasheet's peak allows"),
        ({"time_us": "1.6e9"}, "left out: a duration outside 0.2 us to 10 min: another unit?"),
        ({"k": ""}, "k is not given, and the family 'gemm' needs it"),
        ({"k": "many"}, "the row describes no gemm: Expected `int`, got `str` - at `$.k`"),
        ({"m": "-8192"}, "the row describes no gemm: Expected `int` >= 0, not -8192 - at `$.m`"),
        ({"dtype": "bf16"}, "dtype = 'bf16' is not a type of PyTorch, such as bfloat16 or float8_e4m3fn"),
        ({"layout": "NX"}, "layout = 'NX' is none of NN, NT, TN, TT"),
        ({"gpu": "TPU v5"}, f"the hardware catalogue has no GPU 'TPU v5'; {ELSEWHERE}"),
    ],
)
def test_a_row_that_cannot_be_priced_says_why(change: dict[str, str], reason: str) -> None:
    (row,) = OPERATORS.predict([{**PRODUCT, "time_us": "1600", **change}])
    assert (row["predicted_time_us"], row["reason"]) == ("", reason)


def test_a_second_row_with_the_same_cells_counts_once() -> None:
    rows = OPERATORS.predict([{**PRODUCT, "time_us": text} for text in ("1600", "1610", "1600")])
    assert [row["reason"] for row in rows] == ["", "", "a second row with the same cells"]
    assert OPERATORS.predict(rows) == rows  # also where it has been predicted already


def test_an_unknown_family_names_those_that_there_are() -> None:
    (row,) = OPERATORS.predict([{**PRODUCT, "family": "matmul", "time_us": "1"}])
    assert row["reason"].startswith("family = 'matmul' is none of attention, convolution, copy,")


def test_the_table_and_its_report(tmp_path: Path) -> None:
    rows = OPERATORS.predict([{**PRODUCT, "source": "a table", "time_us": "1600"}])
    OPERATORS.write(rows, tmp_path / "out.csv")
    assert OPERATORS.read(tmp_path / "out.csv") == rows
    assert "| a table | H100 SXM 80GB | gemm | bfloat16 | 1 |" in OPERATORS.report(rows)


def test_a_table_without_families_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text("gpu,time_us\n")
    with pytest.raises(InputError) as raised:
        OPERATORS.read(table)
    lists = "docs/reference/validation-tables.md lists what an operator has"
    assert str(raised.value) == f"{table} has no column 'family'; {lists}"
