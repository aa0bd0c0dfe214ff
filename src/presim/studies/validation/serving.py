"""Compares predicted TTFT, TPOT and throughput with published serving runs (``presim validate --kind serving``).

Columns: ``model``, ``gpu``, ``isl``, ``osl``, ``concurrency`` or ``num_prompts``, and the plan: ``tp``, ``pp``,
``attn_dp``, ``moe_ep``, ``gemm_quant``, ``moe_quant``; ``lengths``. Rows of mode ``disagg`` have a plan for prefill and
one for decode workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from presim.errors import InputError, reason_of
from presim.serving.answer import metrics, refused
from presim.serving.answer.intervals import intervals
from presim.serving.deployments.prediction import figures_of_fast_prefill
from presim.serving.engines.simulate_fleet import simulate
from presim.serving.workloads.generate import generate
from presim.studies.validation.serving_errors import FIGURES, write
from presim.studies.validation.serving_rows import Row, deployment_of_row, load_of_row
from presim.system.files import FormatError, decode_csv, read_text

_PREDICTED = (*(f"predicted_{name}{end}" for name in FIGURES for end in ("", "_low", "_high")), "reason")


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    try:
        return list(decode_csv(read_text(path, "name a table of published runs"), ("isl", "osl")))
    except FormatError as error:
        raise InputError(f"{path} has {error}; docs/reference/validation-tables.md lists the columns") from error


class ServingTable:
    """The output: rows in the order of the input. The file is replaced after each row, so an interrupted run continues.

    A row is done if the file has its cells with a prediction; one without a prediction is tried again.
    """

    def __init__(self, path: Path, rows: Sequence[Row]) -> None:
        self.path = path
        self._order = list(dict.fromkeys(map(_cells, rows)))
        self._rows = _read_output(path) if path.exists() else {}

    def is_done(self, row: Row) -> bool:
        """Whether the file has a prediction of this row."""
        return any(self._rows.get(_cells(row), {}).get(f"predicted_{name}") for name in FIGURES)

    def add(self, predicted_row: dict[str, str]) -> None:
        """Add a row with its prediction, and write the file."""
        self._rows[_cells(predicted_row)] = predicted_row
        write(self.rows(), self.path)

    def rows(self) -> list[dict[str, str]]:
        """The rows that the input has, in its order."""
        return [self._rows[cells] for cells in self._order if cells in self._rows]


def _cells(row: Row) -> frozenset[tuple[str, str]]:
    """The filled cells of the input."""
    return frozenset((key, value) for key, value in row.items() if value and key not in _PREDICTED)


def _read_output(path: Path) -> dict[frozenset[tuple[str, str]], dict[str, str]]:
    try:
        rows = [dict(row) for row in decode_csv(read_text(path, "name another file with --out"))]
    except FormatError as error:
        raise InputError(f"{path} cannot be read: {error}; name another file with --out") from error
    if rows and not set(_PREDICTED) <= set(rows[0]):
        raise InputError(f"{path} is not an output of `presim validate` and would be overwritten; choose another --out")
    return {_cells(row): row for row in rows}


def predict(rows: Iterable[Row]) -> list[dict[str, str]]:
    """Each row with its prediction, or the reason for its absence, which may be a fault of presim's own."""
    return list(predictions(rows))


def predictions(rows: Iterable[Row]) -> Iterator[dict[str, str]]:
    """The same, one after the other."""
    for row in rows:
        try:
            added = {key: f"{value:.6g}" for key, value in predict_row(row).items()}
        except Exception as error:  # noqa: BLE001  a bug in one row must not lose the others
            added = {"reason": reason_of(error)}
        yield {**row, **dict.fromkeys(_PREDICTED, ""), **added}


def predict_row(row: Row) -> dict[str, float]:
    """TTFT and TPOT in ms and throughput in output tokens/s, with the ends of their 80 % intervals."""
    deployment, workload = deployment_of_row(row), generate(load_of_row(row))
    kind = "mean" if row.get("ttft_mean_ms") or row.get("tpot_mean_ms") else "median"
    width = min(1.2816 * deployment.engine.uncertainty, 0.9)
    served = [simulate(workload, deployment.fleet(1 + sign * width, 1 + 0.5 * sign)) for sign in (0, -1, 1)]
    middle, low, high = map(metrics.bench, served)
    if not middle["completed"]:
        raise InputError(" ".join(refused.sentences(served[0], deployment.engine.limits)) or "no request was served")
    fast = figures_of_fast_prefill(deployment, workload)
    bounds = intervals(middle, low, high, deployment.engine.plan.kernels, calibrated=False, fast_prefill=fast)
    figures: dict[str, float] = {}
    for name, key in (("ttft", f"{kind}_ttft_ms"), ("tpot", f"{kind}_tpot_ms"), ("throughput", "output_throughput")):
        if middle[key] is None:  # no request has a second token
            continue
        figures[f"predicted_{name}"] = middle[key]
        figures[f"predicted_{name}_low"], figures[f"predicted_{name}_high"] = bounds[key]
    return figures
