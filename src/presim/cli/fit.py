"""``presim fit``: fit prices to measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from presim.cli.numbers import number
from presim.cli.report_options import Report, report_options
from presim.cli.verb import Verb
from presim.system.interrupts import noted
from presim.units import quantities

_WHOLE = "nothing is written, because a cluster file holds the fit of all measurements"


@click.command("fit", cls=Verb)
@click.argument("data", nargs=-1, required=True, metavar="DATA...", type=click.Path(path_type=Path))
@click.option("--nccl-tests", is_flag=True, help="DATA are logs of nccl-tests; --out is a cluster file.")
@click.option(
    "--operators", is_flag=True, help="DATA are CSV tables of operators on --gpu, an accelerator; see the guide."
)
@click.option(
    "--update",
    metavar="FILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="DATA are profiler traces of a job's ranks, from which this cluster file's statistical model learns.",
)
@click.option("--out", required=True, metavar="PATH", type=click.Path(path_type=Path), help="File or folder to write.")
@click.option(
    "--gpu",
    default="",
    metavar="ID",
    help="With --nccl-tests: the GPU, if presim does not know the logs' name for it. With --operators: the device.",
)
@click.option("--node", default="", metavar="ID", help="With --nccl-tests: the node type, if not the GPU's usual one.")
@click.option("--fabric", default="", metavar="ID", help="With --nccl-tests: the fabric, if not the node's usual one.")
@click.option(
    "--rows",
    type=number(quantities.ROWS),
    default=0,
    metavar="N",
    show_default=True,
    help="Use at most N rows of each kind in each table, always the same ones; 0: all.",
)
@report_options
def command(
    data: tuple[Path, ...],
    nccl_tests: bool,
    operators: bool,
    update: Path | None,
    out: Path,
    gpu: str,
    node: str,
    fabric: str,
    rows: int,
    **options: Any,
) -> None:
    """Fit prices to the measurements in DATA.

    DATA are checkouts of public datasets of operators (aiconfigurator, NeuSight, vidur, Frontier, SimuMax), recognised
    by their folders. --out is a folder for model files, one for each class of work and GPU. Impossible rows are counted
    and dropped; a class with too few rows gets no model. Each file records its data and its error on held-out shapes.
    The same data give the same files.

    With --nccl-tests, presim writes a cluster file for --cluster of other verbs. It contains fitted constants of the
    collective model, and the measurements. Each log covers one collective on one number of ranks; give logs of one node
    and of several. Half of the sizes are held out to report the error. Folders of logs (*.log) and the collective
    tables of aiconfigurator, vTrain, vidur and Frontier work too.

    With --operators, DATA are your own measurements of matrix products and copies on an accelerator that is no GPU.
    presim fits what both reach of the datasheet, and the start of a kernel; --out is the accelerator's file with them.

    With --update, the statistical model of such a file learns from collectives that PyTorch's profiler recorded on two
    or more ranks. The shortest time over all ranks is the collective's own; the rest is late ranks.
    """
    if update and nccl_tests:
        raise click.UsageError("--nccl-tests creates a cluster file and --update changes one: call fit once for each")
    if operators and (update or nccl_tests):
        raise click.UsageError("--operators describes a device, the other options a cluster: call fit once for each")
    if operators and not gpu:
        raise click.UsageError("--operators needs the accelerator: --gpu, an id of the catalogue or your own TOML file")
    from presim.report import line_report

    report = Report.pop_from(options)
    if operators:
        lines, figures = _fit_device(data, gpu, out)
    elif update:
        lines, figures = _update_cluster(data, update, out)
    elif nccl_tests:
        lines, figures = _fit_cluster(data, out, gpu, fabric, node)
    else:
        lines, figures = _fit_operators(data, out, rows, report.quiet)
    content = line_report.line_report("fit", lines, {"path": out, **figures})
    report.deliver("lines", content, line_report.encode(content))


_Fit = tuple[list[str], dict[str, Any]]  # lines, and the figures behind them


def _fit_cluster(data: tuple[Path, ...], out: Path, gpu: str, fabric: str, node: str) -> _Fit:
    from presim.cost.collective_logs.cluster_file import describe_fit, fit_figures, write_cluster

    with noted(_WHOLE):
        written = write_cluster(data, out, gpu, fabric, node)
    return describe_fit(written), fit_figures(written)


def _fit_device(data: tuple[Path, ...], gpu: str, out: Path) -> _Fit:
    import dataclasses

    from presim.cost.fitting.accelerator_fit import describe_fit, write_device

    fitted = write_device(data, gpu, out)
    return describe_fit(fitted, out), dataclasses.asdict(fitted)


def _update_cluster(data: tuple[Path, ...], file: Path, out: Path) -> _Fit:
    import dataclasses

    from presim.cost.collective_logs.cluster_file import describe_update, update_cluster

    with noted(_WHOLE):
        update = update_cluster(data, file, out)
    return describe_update(update), dataclasses.asdict(update)


def _fit_operators(data: tuple[Path, ...], out: Path, rows: int, quiet: bool) -> _Fit:
    from presim.cli.progress import progress
    from presim.cost.fitting.fit_prices import describe_fit, fit, fit_figures

    with progress(quiet) as say, noted("nothing is written, because no class of work was fitted"):
        outcome = fit(data, out, rows, say, keeps_finished=True)
    return describe_fit(outcome), fit_figures(outcome)
