"""``presim graph``: export a model as a graph of operators, or inspect one."""

from __future__ import annotations

from typing import Any

import click

from presim.cli.numbers import number
from presim.cli.report_options import Report, report_options
from presim.cli.verb import VerbGroup
from presim.units import quantities


@click.group("graph", cls=VerbGroup, default="take")
def graph() -> None:
    """Export a model as a graph of operators, or inspect one.

    `presim graph MODEL --out FILE` is short for `presim graph take`.
    """


command = graph


@graph.command("take")
@click.argument("model")
@click.option("--out", metavar="FILE", required=True, help="Where to write the graph; JSON if it ends in .json.")
@click.option("--dtype", type=click.Choice(("bfloat16", "float16", "float32")), default="bfloat16", show_default=True)
@report_options
def take_(model: str, out: str, dtype: str, **options: Any) -> None:
    """Trace one training step of MODEL, forward and backward, without weights, memory or a GPU.

    MODEL is a folder with Hugging Face's config.json, such a file, a model id in the local cache, or
    package.module:function, which returns a torch.nn.Module. vllm:MODEL, or vllm:ARCHITECTURE, traces the forward pass
    of vLLM's own model over prompts.
    """
    from presim.composition.graph import graph_files
    from presim.composition.graph.take import open_graph
    from presim.report import line_report
    from presim.system.files import check_writable

    report = Report.pop_from(options)
    check_writable(out)
    model_graph = open_graph(model, dtype)
    graph_files.save(model_graph, out)
    repeated = [segment for segment in model_graph.segments if segment.name and not segment.backward]
    blocks = ", ".join(f"{segment.count} x {segment.name}" for segment in repeated)
    parameters = model_graph.parameter_count()
    line = f"{out}: {model_graph.root}, {parameters:,} parameters; {blocks or 'no repeated blocks'}"
    figures = {
        "file": out,
        "class": model_graph.root,
        "parameters": parameters,
        "blocks": [{"name": segment.name, "count": segment.count} for segment in repeated],
    }
    content = line_report.line_report("graph take", [line], figures)
    report.deliver("lines", content, line_report.encode(content))


@graph.command("show")
@click.argument("model", metavar="GRAPH")
@click.option("--batch", type=number(quantities.BATCH), default=1, show_default=True, help="Samples.")
@click.option(
    "--seq", "sequence", type=number(quantities.SEQUENCE), default=4096, show_default=True, help="Tokens per sample."
)
@click.option("--depth", type=number(quantities.LEVELS), default=3, show_default=True, help="Depth of the module tree.")
@click.option("--plot", metavar="FILE", help="Draw the forward pass of one block as SVG.")
@report_options
def show(model: str, batch: int, sequence: int, depth: int, plot: str | None, **options: Any) -> None:
    """Show FLOPs, bytes and parameters of the modules in GRAPH, for one batch and sequence length."""
    from presim.composition.graph import graph_files, graph_summary

    report = Report.pop_from(options)
    graph = graph_files.load(model)
    if plot is not None:
        from presim.composition.graph.graph_plot import svg
        from presim.system.files import write_file

        write_file(plot, svg(graph, batch, sequence).encode())
    content = graph_summary.GraphSummary(graph_summary.by_module(graph, batch, sequence, depth))
    report.deliver("graph-summary", content, graph_summary.encode(content))
