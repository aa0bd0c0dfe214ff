"""Keeps the history of serving errors, and tables with one family of models left out at a time.

    presim validate --kind serving RUNS.csv --out predicted.csv
    python validation/serving_history.py predicted.csv --append "why it changed"
    python validation/serving_history.py predicted.csv --families validation/results/serving-families.md
    python validation/serving_history.py --draw

`validation/results/history.csv` has a line per group and date: engine, figure, number of rows, median error, bias, 90th
percentile of the error, and the share of rows within their 80 % interval. ``--runs`` names the table in it (default:
published). ``--draw`` makes `docs/pictures/serving-history.svg`; it needs matplotlib. A test compares the committed
sample (`validation/serving_sample.csv`) with its last lines.
"""

from __future__ import annotations

import argparse
import datetime
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from presim.cli.script import sentences
from presim.errors import InputError
from presim.studies.validation.case_tables import read_table
from presim.system.files import check_writable, decode_csv, encode_csv, read_text, write_file

ROOT = Path(__file__).parent.parent
HISTORY = ROOT / "validation" / "results" / "history.csv"
PICTURE = ROOT / "docs" / "pictures" / "serving-history.svg"
COLUMNS = ("date", "runs", "engine", "figure", "rows", "median", "bias", "p90", "inside", "note")
ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
FIGURES = {"tpot": ("tpot_mean_ms", "tpot_median_ms"), "ttft": ("ttft_mean_ms", "ttft_median_ms")}
_NEEDED = ("framework", "model", "predicted_tpot", "predicted_ttft")
_FEWEST = 3  # rows of a group that has a line
_HEAD = """# Serving: one family of models left out at a time

Prices of kernels are fitted to tables of kernels, not to these runs. Fitted to runs are the time of a server's front
end and the widths of intervals, by engine. Here both are taken from the other families of an engine (the median of what
measured TTFT has beyond the prediction is added; intervals are scaled to hold 80 % of the others), and judged on the
family that is left out. Aggregated runs only. Made by `python validation/serving_history.py RUNS.csv --families FILE`.

"""
Row = Mapping[str, str]


def errors(rows: Iterable[Row], figure: str) -> list[tuple[float, bool]]:
    """Relative error of each row that has the figure, and whether it lies within its interval."""
    pairs = []
    for row in rows:
        measured = next((float(row[name]) for name in FIGURES[figure] if row.get(name)), 0.0)
        if measured > 0 and row.get(f"predicted_{figure}"):
            low, high = sorted(float(row[f"predicted_{figure}_{end}"]) for end in ("low", "high"))
            pairs.append((float(row[f"predicted_{figure}"]) / measured - 1, low <= measured <= high))
    return pairs


def lines(rows: Sequence[Row], runs: str, note: str, date: str) -> list[dict[str, str]]:
    """A line of the history for each engine and figure. Disaggregated runs are groups of their own."""
    history_lines = []
    for engine in ENGINES:
        for mode in ("agg", "disagg"):
            group = [row for row in rows if row["framework"] == engine and row.get("mode", "agg") == mode]
            for figure in FIGURES:
                pairs = errors(group, figure)
                if len(pairs) < _FEWEST:
                    continue
                sizes = sorted(abs(error) for error, _ in pairs)
                values = (
                    *(date, runs, engine if mode == "agg" else f"{engine} {mode}", figure, str(len(pairs))),
                    *(f"{statistics.median(sizes):.4f}", f"{statistics.median(error for error, _ in pairs):+.4f}"),
                    *(
                        f"{sizes[int(0.9 * (len(sizes) - 1))]:.4f}",
                        f"{sum(held for _, held in pairs) / len(pairs):.3f}",
                    ),
                    note,
                )
                history_lines.append(dict(zip(COLUMNS, values)))
    return history_lines


def read_history(path: Path = HISTORY) -> list[dict[str, str]]:
    """The lines of the history, oldest first."""
    return list(decode_csv(read_text(path, "it is part of the checkout"), COLUMNS))


def families(rows: Sequence[Row]) -> str:
    """The table with one family of models left out at a time."""
    table = [
        "| engine | family left out | rows | TPOT | bias | inside | TTFT | bias | inside |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for engine, name in ENGINES.items():
        group = [row for row in rows if row["framework"] == engine and row.get("mode", "agg") == "agg"]
        models = sorted({row["model"] for row in group if row.get("predicted_tpot")})
        for model in models if len(models) > 1 else ():
            family = [row for row in group if row["model"] == model]
            others = [row for row in group if row["model"] != model]
            cells = [f"{len(errors(family, 'tpot'))}"]
            for figure in FIGURES:
                cells += _judged(family, others, figure)
            table.append(f"| {name} | {model.split('/')[-1]} | {' | '.join(cells)} |")
    return _HEAD + "\n".join(table) + "\n"


def _judged(family: Sequence[Row], others: Sequence[Row], figure: str) -> list[str]:
    """Median error, bias and share inside of a family, with what the others say of offset and width."""
    offset_ms = statistics.median(_beyond(others, figure)) if figure == "ttft" else 0.0
    shares = sorted(_share_of_width(row, figure, offset_ms) for row in others if _has(row, figure))
    scale = shares[int(0.8 * (len(shares) - 1))]
    judged = [row for row in family if _has(row, figure)]
    off = [(float(row[f"predicted_{figure}"]) + offset_ms) / _measured(row, figure) - 1 for row in judged]
    inside = sum(_share_of_width(row, figure, offset_ms) <= scale for row in judged) / len(judged)
    return [f"{statistics.median(map(abs, off)):.1%}", f"{statistics.median(off):+.1%}", f"{inside:.0%}"]


def _has(row: Row, figure: str) -> bool:
    return bool(row.get(f"predicted_{figure}")) and _measured(row, figure) > 0


def _measured(row: Row, figure: str) -> float:
    return next((float(row[name]) for name in FIGURES[figure] if row.get(name)), 0.0)


def _beyond(rows: Sequence[Row], figure: str) -> list[float]:
    return [_measured(row, figure) - float(row[f"predicted_{figure}"]) for row in rows if _has(row, figure)]


def _share_of_width(row: Row, figure: str, offset_ms: float) -> float:
    """Distance of the measured value over the interval's reach on its side."""
    predicted, measured = float(row[f"predicted_{figure}"]), _measured(row, figure)
    low, high = sorted(float(row[f"predicted_{figure}_{end}"]) for end in ("low", "high"))
    reach = high - predicted if measured > predicted + offset_ms else predicted - low
    return abs(measured - predicted - offset_ms) / max(reach, 1e-3 * predicted)


def draw(history: Sequence[Row], path: Path) -> None:
    """The median errors of published runs over time, one panel a figure."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "presim"  # the same history gives the same bytes
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(FIGURES), figsize=(9, 3.2), sharex=True)
    shown = [line for line in history if line["runs"] == "published"]
    steps = list(dict.fromkeys((line["date"], line["note"]) for line in shown))
    for panel, name in zip(panels, FIGURES):
        for engine, label in ENGINES.items():
            points = [line for line in shown if (line["engine"], line["figure"]) == (engine, name)]
            places = [steps.index((line["date"], line["note"])) for line in points]
            panel.plot(places, [100 * float(line["median"]) for line in points], marker="o", label=label)
        panel.set_title(name.upper())
        panel.set_ylabel("median error, %")
        panel.set_ylim(bottom=0)
        panel.set_xticks(range(len(steps)), [date[5:] for date, _ in steps])
    panels[0].legend(frameon=False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description="History of serving errors.")
    parser.add_argument("predicted", type=Path, nargs="?", help="output of presim validate --kind serving")
    parser.add_argument("--append", metavar="NOTE", help="append lines to validation/results/history.csv")
    parser.add_argument("--runs", default="published", help="name of the table in the history")
    parser.add_argument("--families", type=Path, metavar="FILE", help="write the table with one family left out")
    parser.add_argument("--draw", action="store_true", help="draw the history into the docs")
    arguments = parser.parse_args()
    if arguments.predicted is None and not arguments.draw:
        raise InputError("name a table that presim validate --kind serving --out wrote, or give --draw")
    if arguments.predicted is not None:
        rows = read_table(arguments.predicted, _NEEDED, "presim validate --kind serving reads and writes")
        if arguments.append:
            added = lines(
                rows, arguments.runs, arguments.append, datetime.datetime.now(datetime.UTC).date().isoformat()
            )
            former = read_history() if HISTORY.exists() else []
            write_file(HISTORY, encode_csv(list(COLUMNS), [*former, *added]))
        if arguments.families:
            check_writable(arguments.families)
            write_file(arguments.families, families(rows).encode())
    if arguments.draw:
        draw(read_history(), PICTURE)


if __name__ == "__main__":
    with sentences():
        main()
