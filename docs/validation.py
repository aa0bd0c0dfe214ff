"""Writes the accuracy tables and plots from outputs of ``presim validate``.

    python docs/validation.py RUN.csv... [--against NAME=RUN.csv]...

Several RUN.csv files are one run; a later row replaces an earlier one with the same id, so a file with a few new rows
goes behind ``validation/results/predictions.csv``. Written are that file, ``validation/results/published-runs.md`` (all
tables), the plots, and the short table in the README and in ``docs/validation.md``. ``--against`` adds a row to the
comparison of pricing methods. Rows of `COMPUTED` stay in predictions.csv and count nowhere else.
Needs matplotlib: ``pip install '.[docs]'``.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from presim.cli.script import sentences
from presim.errors import InputError
from presim.studies.validation.case_tables import read_table
from presim.studies.validation.error_summary import summary
from presim.studies.validation.run_groups import GROUPS, sort_key, source
from presim_study.tables import COMPUTED, NOISY, ablation, in_short

Row = Mapping[str, str]
ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
PAGE = ROOT / "docs" / "validation.md"
PICTURES = {  # by what runs are told apart
    title: ROOT / "docs" / "pictures" / f"validation-{title.lower().replace(' ', '-')}.svg" for title in GROUPS
}
_MOST = 20  # groups with a look of their own; the smallest others share one
RESULTS = ROOT / "validation" / "results"
TABLES = RESULTS / "published-runs.md"
COLUMNS = (
    *("id", "source", "framework", "model", "gpu", "n_gpus", "precision", "tp", "pp", "vp", "cp", "ep", "dp"),
    *("step_time_s", "predicted_step_time_s", "low_step_time_s", "high_step_time_s", "error"),
    *("peak_mem_gib", "peak_allocated_gib", "peak_reserved_gib", "predicted_peak_mem_gib", "memory_error"),
    *("outcome", "provenance", "reason"),
)
MEGATRON_TESTS = "Megatron-LM functional tests"
FAMILIES = {  # rows of the short table, with what sources of each have in their names
    "Megatron-Bridge, NeMo, DGX Cloud": ("Megatron-Bridge", "NVIDIA/NeMo", "dgxc-benchmarking"),
    "MLPerf Training": ("mlcommons/",),
    "llm-foundry": ("llm-foundry",),
    "torchtitan, AutoModel, torchtune": ("pytorch/", "Automodel"),
    "research papers, litgpt": ("TorchSim", "SimuMax", "NeuSight", "vTrain", "calculon", "litgpt"),
    MEGATRON_TESTS: ("Megatron-LM",),
}
_NEEDED = ("id", "framework", "gpu", "error", "reason")
_BEGIN, _END = "<!-- figures: docs/validation.py writes them -->\n", "<!-- end of figures -->\n"
_NOTICE = "<!-- Written by docs/validation.py from predictions.csv; run presim validate instead. -->\n\n"


def read(names: Sequence[str]) -> list[Row]:
    """The rows of all tables by their ids, a later one in the place of an earlier one with the same.

    Raises:
        InputError: a table is not there, or is no output of ``presim validate``.
    """
    rows: dict[str, Row] = {}
    for name in names:
        found = read_table(Path(name), _NEEDED, "a case may have, and presim validate adds the others")
        rows.update({row["id"]: _complete(row) for row in found})
    return sorted(rows.values(), key=lambda row: row["id"])


def _complete(row: Row) -> Row:
    """With every column, empty where its table has none; tables about memory name theirs by its kind."""
    measured = row.get("peak_mem_gib") or row.get("peak_allocated_gib") or row.get("peak_reserved_gib") or ""
    return {**dict.fromkeys(COLUMNS, ""), **row, "peak_mem_gib": measured}


def write_predictions(rows: Sequence[Row], path: Path) -> None:
    """What was predicted beside what was published, with its source, in the columns that a reader needs."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore", restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def draw(rows: Sequence[Row], key: Callable[[Row], str], path: Path) -> None:
    """Predicted over measured, a point a case, by groups: step times on the left, memory on the right."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "presim"  # the same bytes in every run
    import matplotlib.pyplot as plt

    figure, (times, memory) = plt.subplots(1, 2, figsize=(11, 5.2), layout="constrained")
    pairs = {name: (name, f"predicted_{name}") for name in ("step_time_s", "peak_mem_gib")}
    groups = _groups([row for row in rows if any(row[x] and row[y] for x, y in pairs.values())], key)
    _scatter(times, groups, *pairs["step_time_s"], "step time, s")
    _scatter(memory, groups, *pairs["peak_mem_gib"], "peak memory, GiB")
    handles, labels = times.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _groups(rows: Sequence[Row], key: Callable[[Row], str]) -> Mapping[str, Sequence[Row]]:
    """Rows by group, the smallest ones together where there are too many to tell apart."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    large = sorted(found, key=lambda name: (-len(found[name]), name))[:_MOST]
    groups = {name: found[name] for name in sorted(large, key=sort_key)}
    others = [row for name, group in found.items() if name not in groups for row in group]
    return {**groups, "others": others} if others else groups


def _scatter(axes, groups: Mapping[str, Sequence[Row]], measured: str, predicted: str, title: str) -> None:
    ends: list[float] = []
    for index, (name, rows) in enumerate(groups.items()):
        both = [(float(row[measured]), float(row[predicted])) for row in rows if row[measured] and row[predicted]]
        style = {
            "color": f"C{index % 10}",
            "marker": "o^s"[index // 10],
            "linestyle": "none",
        }  # ten colours, then shapes
        axes.plot([x for x, _ in both], [y for _, y in both], **style, markersize=4, alpha=0.7, label=name)
        ends = [*ends, *(x for x, _ in both)]
    ends = [0.8 * min(ends), 1.25 * max(ends)] if ends else [1, 10]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.fill_between(ends, [0.8 * x for x in ends], [1.2 * x for x in ends], color="black", alpha=0.08, label="± 20 %")
    axes.set(xscale="log", yscale="log", xlabel=f"measured {title}", ylabel=f"predicted {title}")


def measured(rows: Sequence[Row]) -> list[Row]:
    """Those that somebody measured."""
    return [row for row in rows if COMPUTED not in row["source"]]


def families(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by family of sources, then all, then all without the tests of 0.1 s steps that wait for their host.

    Raises:
        InputError: a source belongs to no family.
    """
    groups: dict[str, list[Row]] = {name: [] for name in FAMILIES}
    for row in rows:
        if row["error"] or row["memory_error"]:
            groups[_family(source(row))].append(row)
    others = [row for name, group in groups.items() if name != MEGATRON_TESTS for row in group]
    return {**groups, "all": list(rows), f"all but {MEGATRON_TESTS}": others}


def _family(name: str) -> str:
    for family, parts in FAMILIES.items():
        if any(part in name for part in parts):
            return family
    raise InputError(f"the source {name} is in no family; add it to FAMILIES in docs/validation.py")


def with_figures(page: str, rows: Sequence[Row]) -> str:
    """The page with the figures of these rows between its two marks."""
    before, rest = page.split(_BEGIN)
    _, after = rest.split(_END)
    return f"{before}{_BEGIN}\n{in_short(families(measured(rows)))}\n{_END}{after}"


def main() -> None:
    """Read the runs; write predictions, tables, plots and the figures of the two pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN.csv")
    parser.add_argument("--against", action="append", default=[], metavar="NAME=RUN.csv")
    options = parser.parse_args()
    everything = read(options.runs)
    rows = measured(everything)
    if not rows:
        raise InputError(f"{', '.join(options.runs)}: no row is of a run that was measured")
    runs = {name: read([path]) for name, _, path in (text.partition("=") for text in options.against)}
    compared = ablation({"as released": rows, **runs}) if runs else ""
    for name, path in PICTURES.items():
        draw(rows, GROUPS[name], path)
    write_predictions(everything, RESULTS / "predictions.csv")
    pictures = {name: f"../../docs/pictures/{path.name}" for name, path in PICTURES.items()}
    TABLES.write_text(f"{_NOTICE}{summary(rows, pictures, tests=(NOISY,))}{compared}")
    for page in (README, PAGE):
        page.write_text(with_figures(page.read_text(), rows))


if __name__ == "__main__":
    with sentences():
        main()
