"""Predicts a sample of published runs again and holds it against the last full study, to see what changed prices do.

    python validation/sampled_again.py draw RUNS.csv --out sample.csv
    presim validate sample.csv --captures DIR --out predicted.csv
    python validation/sampled_again.py compare predicted.csv

``draw`` takes runs that `results/predictions.csv` predicts, of up to 256 GPUs, as many of each source as `SOURCES` has.
``compare`` writes `results/sampled-again.md`; a part of the sample will do.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from presim.cli.script import sentences
from presim.errors import InputError
from presim.system.files import FormatError, check_writable, decode_csv, read_text, write_file

RESULTS = Path(__file__).parent / "results"
SEED, MOST_GPUS = 20261126, 256
SOURCES = {  # prefixes of ids
    "mlm": 10, "mbridge": 14, "llmf": 12, "mlperf": 4, "dgxc2505": 4, "nemo": 3, "automodel": 3, "tt": 4,
    "torchtune": 1, "simumax": 4, "torchsim": 8,
}  # fmt: skip


def read(path: Path, *needed: str) -> list[dict[str, str]]:
    """Rows of a table that has these columns."""
    try:
        rows = list(decode_csv(read_text(path, "name a table of runs"), needed))
    except FormatError as error:
        raise InputError(f"{path} has {error}; name a table of runs") from error
    return rows


def known() -> dict[str, dict[str, str]]:
    """The last full study, by run."""
    rows = read(RESULTS / "predictions.csv", "id")
    return {row["id"]: row for row in rows if row["predicted_step_time_s"] and row["step_time_s"]}


def draw(path: Path, out: Path) -> None:
    """Write the sample."""
    by_source, last = defaultdict(list), known()
    for row in read(path, "id", "n_gpus"):
        if row["id"] in last and float(row["n_gpus"] or 0) <= MOST_GPUS:
            by_source[row["id"].split("-")[0]].append(row)
    rng, chosen = random.Random(SEED), list[dict[str, str]]()
    for source, count in SOURCES.items():
        rng.shuffle(by_source[source])
        chosen += by_source[source][:count]
    if not chosen:
        raise InputError(f"{path} has none of the runs of results/predictions.csv; name the tables that it was made of")
    text = io.StringIO()
    writer = csv.DictWriter(text, list(chosen[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(chosen)
    write_file(out, text.getvalue().encode())


def compare(paths: Iterable[Path], out: Path) -> None:
    """Write the table of both predictions."""
    last, lines = known(), list[str]()
    errors: dict[str, list[float]] = {"then": [], "now": []}
    memory = 0
    for row in (row for path in paths for row in read(path, "id", "predicted_step_time_s", "predicted_peak_mem_gib")):
        before = last.get(row["id"])
        if before is None or not row["predicted_step_time_s"]:
            continue
        measured, now = float(before["step_time_s"]), float(row["predicted_step_time_s"])
        then = float(before["predicted_step_time_s"])
        errors["then"].append(then / measured - 1)
        errors["now"].append(now / measured - 1)
        memory += before["predicted_peak_mem_gib"] == row["predicted_peak_mem_gib"]
        cells = [row["id"], before["gpu"], before["n_gpus"], f"{measured:.3f} s"]
        shares = [f"{value:+.1%}" for value in (then / measured - 1, now / measured - 1, now / then - 1)]
        lines.append(f"| {' | '.join([*cells, *shares])} |")
    if not lines:
        raise InputError(
            "no run of these tables is in results/predictions.csv with a prediction; predict the sample first"
        )
    write_file(out, page(errors, sorted(lines), memory).encode())


def page(errors: dict[str, list[float]], lines: list[str], memory: int) -> str:
    """Errors in sentences, and a line for each run."""
    said = {
        name: f"median {statistics.median(map(abs, values)):.1%}, mean {statistics.fmean(map(abs, values)):.1%}, bias "
        f"{statistics.median(values):+.1%}"
        for name, values in errors.items()
    }
    return "\n".join(
        [
            "# A sample of published runs, predicted again",
            "",
            f"`validation/sampled_again.py`, {datetime.date.today()}: {len(lines)} runs captured and priced anew, "
            "beside the predictions of [the last full study](predictions.csv). Errors of step times: "
            f"{said['then']} then; {said['now']} now. Predicted peaks of memory are equal in {memory} of "
            f"{len(lines)} runs. Host time was captured again as well, on a machine with other work, and moves steps "
            "that wait for their host.",
            "",
            "| run | GPU | GPUs | measured | error then | error now | changed by |",
            "|---|---|---|---|---|---|---|",
            *lines,
            "",
        ]
    )


def main() -> None:
    """Draw or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    drawing, comparing = parts.add_parser("draw"), parts.add_parser("compare")
    drawing.add_argument("runs", type=Path)
    drawing.add_argument("--out", type=Path, required=True)
    comparing.add_argument("predicted", type=Path, nargs="+")
    comparing.add_argument("--out", type=Path, default=RESULTS / "sampled-again.md")
    options = parser.parse_args()
    check_writable(options.out)
    if options.part == "draw":
        draw(options.runs, options.out)
    else:
        compare(options.predicted, options.out)


if __name__ == "__main__":
    with sentences():
        main()
