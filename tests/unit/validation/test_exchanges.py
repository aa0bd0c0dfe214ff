"""Rows of DeepEP's tables beside what presim says."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from presim.validation.collectives import COLLECTIVES

ROW = {
    "source": "a table", "gpu": "H800 SXM (NVLink ~160 GB/s)", "n_gpus": "16", "nodes": "2",
    "inter_link": "CX7 IB 400 Gb/s per GPU", "collective": "deepep_ll_dispatch", "dtype": "fp8 dispatch / bf16 combine",
    "size_bytes": "", "size_semantics": "128 tokens/batch, hidden 7168, top-8, pure RDMA low latency",
    "time_us": "118", "algbw_gbps": "63",
}  # fmt: skip
NORMAL = {
    **ROW, "n_gpus": "32", "nodes": "4", "collective": "deepep_normal_dispatch", "time_us": "", "algbw_gbps": "58",
    "size_semantics": "4096 tokens/batch, hidden 7168, top-4 groups, top-8, 256 experts (V3)",
}  # fmt: skip
V2 = {
    **ROW, "gpu": "SM90 (H800/H100 class)", "collective": "deepep_v2_combine", "time_us": "", "algbw_gbps": "81",
    "size_semantics": "8192 tokens/batch, hidden 7168, top-8, 12 SMs",
}  # fmt: skip


TABLES = Path(__file__).parents[3] / "validation" / "papers" / "deepep.csv"


@pytest.mark.parametrize(
    ("kernels", "rows", "middle", "most"), [("normal", 8, 0.08, 0.21), ("ll", 12, 0.02, 0.09), ("v2", 10, 0.04, 0.08)]
)
def test_deepep_s_own_tables_are_met(kernels: str, rows: int, middle: float, most: float) -> None:
    table = [row for row in COLLECTIVES.read(TABLES) if "deepseek-ai" in row["source"]]
    made = COLLECTIVES.predict([row for row in table if row["collective"].startswith(f"deepep_{kernels}")])
    errors = [abs(float(row["error"])) for row in made]
    assert (len(errors), median(errors) < middle, max(errors) < most) == (rows, True, True)


@pytest.mark.parametrize("row", [ROW, {**ROW, "collective": "deepep_ll_combine", "time_us": "195"}, NORMAL, V2])
def test_a_row_is_met(row: dict[str, str]) -> None:
    """By its time, or by what its bandwidth comes to."""
    (made,) = COLLECTIVES.predict([row])
    assert made["reason"] == ""
    assert abs(float(made["error"])) < 0.1
    assert "| 100.0% |" in COLLECTIVES.report([made])  # within the stated interval


def test_tokens_that_may_go_to_some_hosts_only_are_fewer_copies() -> None:
    """Four of eight hosts, of which a token's experts are on 3.6, rather than 5.3 of eight."""
    far = {**NORMAL, "n_gpus": "64", "nodes": "8", "algbw_gbps": "51"}
    (limited,) = COLLECTIVES.predict([far])
    (free,) = COLLECTIVES.predict([{**far, "size_semantics": "4096 tokens, hidden 7168, top-8, 256 experts"}])
    assert abs(float(limited["error"])) < 0.1
    assert float(free["predicted_time_us"]) == pytest.approx(1.45 * float(limited["predicted_time_us"]), rel=0.05)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"collective": "deepep_v9_dispatch"}, "presim has no model of 'deepep_v9_dispatch'"),
        (
            {"library_version": "V1 initial 2025-02"},
            "the kernels of DeepEP's first release, which were slower, are not modelled",
        ),
        (
            {"size_semantics": "128 tokens, top-8"},
            "size_semantics = '128 tokens, top-8' does not say its width (hidden 7168)",
        ),
        ({"time_us": "", "algbw_gbps": ""}, "time_us is not given"),
        ({"time_us": "70"}, "left out: faster than the wires allow"),
    ],
)
def test_a_row_that_cannot_be_priced_says_why(change: dict[str, str], reason: str) -> None:
    (made,) = COLLECTIVES.predict([{**ROW, **change}])
    assert (made["predicted_time_us"], made["reason"]) == ("", reason)
