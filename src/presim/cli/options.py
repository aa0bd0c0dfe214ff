"""Options shared by several verbs, and output of results."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from presim.cli import completion
from presim.cli.numbers import number
from presim.cli.output_files import file_name, html_option, json_option, quiet_option
from presim.errors import ExitCode
from presim.units import quantities

if TYPE_CHECKING:
    from presim.evaluation.evaluate_traces import Evaluation
    from presim.result import Result

_FAILED = ("raised", "exited", "killed")  # values of `Result.exit` for a script that did not finish
_Function = TypeVar("_Function", bound=Callable[..., Any])

PRICES = click.option(
    "--prices",
    multiple=True,
    metavar="DIR",
    help="Folder with measured tables or fitted models to use before presim's own. Repeatable.",
)


def cluster_options(function: _Function) -> _Function:
    """``--gpu --node --fabric --nodes --gpus-per-node --world-size --cluster``: which cluster to predict."""
    for option in reversed(
        (
            click.option(
                "--gpu",
                metavar="ID",
                help="GPU: a catalogue id such as h100-sxm, or a TOML file.",
                shell_complete=completion.gpus,
            ),
            click.option(
                "--node",
                metavar="ID",
                help="Node type: id or TOML file. Default: the GPU's usual one.",
                shell_complete=completion.nodes,
            ),
            click.option(
                "--fabric",
                metavar="ID",
                help="Network: id or TOML file. Default: the node type's usual one.",
                shell_complete=completion.fabrics,
            ),
            click.option("--nodes", type=number(quantities.NODES), metavar="N", help="Number of nodes."),
            click.option("--gpus-per-node", type=number(quantities.GPUS_PER_NODE), metavar="N", help="GPUs per node."),
            click.option(
                "--world-size",
                type=number(quantities.GPUS),
                metavar="N",
                help="Total number of GPUs, instead of --nodes.",
            ),
            click.option("--cluster", metavar="FILE", help="TOML file that describes the cluster."),
        )
    ):
        function = option(function)
    return function


_ENGINE_OPTIONS = (
    click.option(
        "--no-contention",
        "contention",
        is_flag=True,
        default=True,
        flag_value=False,
        help="Do not slow down kernels and collectives that overlap.",
    ),
    click.option(
        "--overlap-model",
        default="analytic",
        metavar="MODEL",
        show_default=True,
        help="Slowdown of kernels beside communication: analytic, bandwidth, learned or ratio=X.",
    ),
    click.option(
        "--host-factor",
        type=number(quantities.HOST_FACTOR),
        metavar="X",
        help="CPU time of the cluster's hosts relative to presim's reference host. Default: the node type's factor.",
    ),
    click.option(
        "--host-time",
        type=number(quantities.SWITCH),
        default=1,
        metavar="0|1",
        show_default=True,
        callback=lambda context, option, value: bool(value),
        help="0: ignore CPU overhead, including kernel launches.",
    ),
    PRICES,
    click.option(
        "--bandwidth",
        multiple=True,
        metavar="inter|intra=X",
        help="What-if: multiply the bandwidth between nodes, or of NVLink, by X; repeatable.",
    ),
    click.option(
        "--straggler",
        "stragglers",
        multiple=True,
        metavar="nodeN|rankN=X",
        help="What-if: scale the speed of a node's or a rank's GPUs by X, e.g. node3=0.8; repeatable.",
    ),
    click.option(
        "--scale-op",
        multiple=True,
        metavar="NAME=X",
        help="What-if: multiply the time of a family (gemm, attention, all_reduce, …) by X; repeatable.",
    ),
    click.option(
        "--estimator",
        multiple=True,
        metavar="[FAMILY=]NAME,…",
        help="Price all work, or a family, by roofline, analytic, learned, benchmark (`presim profile`), "
        "measured or a plug-in, tried in this order; repeatable.",
    ),
)


def engine_options(function: _Function) -> _Function:
    """``--no-contention`` to ``--scale-op``: assumptions of the simulation, and what-if changes."""
    for option in reversed(_ENGINE_OPTIONS):
        function = option(function)
    return function


def output_options(function: _Function) -> _Function:
    """``--json --html --perfetto --memory-snapshot --tokens --quiet``: output of the result."""
    named = functools.partial(click.option, metavar="FILE", callback=file_name)
    for option in reversed(
        (
            json_option,
            html_option,
            named("--perfetto", help="Write the timeline for ui.perfetto.dev, in Perfetto's protobuf format."),
            named("--memory-snapshot", help="Write the allocation history for pytorch.org/memory_viz."),
            click.option("--chakra", metavar="DIR", help="Write Chakra execution traces for ASTRA-sim."),
            click.option(
                "--kineto",
                metavar="DIR",
                help="Write a Chrome trace of each simulated rank, as PyTorch's profiler does.",
            ),
            click.option(
                "--tokens",
                type=number(quantities.TRAINING_TOKENS),
                metavar="N",
                help="Also report a whole training on N tokens, e.g. 15e12; `presim training` has more options.",
            ),
            click.option(
                "--price-per-gpu-hour",
                type=number(quantities.PRICE),
                metavar="X",
                help="With --tokens: price of a GPU hour, in any currency.",
            ),
            quiet_option,
        )
    ):
        function = option(function)
    return function


@dataclasses.dataclass(frozen=True)
class Outputs:
    """Output files and flags, from `output_options`."""

    json_file: str | None = None
    html: str | None = None
    perfetto: str | None = None
    memory_snapshot: str | None = None
    chakra: str | None = None
    kineto: str | None = None
    tokens: float | None = None
    price_per_gpu_hour: float | None = None
    quiet: bool = False

    @classmethod
    def pop_from(cls, options: dict[str, Any]) -> Outputs:
        """Remove the output options from a verb's options and return them."""
        return cls(**{field.name: options.pop(field.name) for field in dataclasses.fields(cls)})

    @property
    def shows_time_lines(self) -> bool:
        """Whether an output has the times of single calls, or memory over time."""
        return any((self.html, self.perfetto, self.memory_snapshot, self.chakra, self.kineto))

    def check(self, job: str | None = None) -> None:
        """Raise before any work if a file cannot be written, or if two outputs have the same path.

        ``job``: the folder of a saved trace, which must not be overwritten.
        """
        from presim.errors import InputError
        from presim.system.files import check_folder, check_writable
        from presim.trace.job_store import owns

        if self.price_per_gpu_hour is not None and self.tokens is None:
            raise InputError(
                f"--price-per-gpu-hour {self.price_per_gpu_hour:g} prices a whole training: add --tokens N"
            )
        paths = [self.json_file, self.html, self.perfetto, self.memory_snapshot]
        named = [path for path in paths if path is not None and path != "-"]
        meant = [os.path.realpath(path) for path in named]
        for folder in (self.chakra, self.kineto):
            if folder is not None:
                check_folder(Path(folder))
        for path in named:
            check_writable(path)
            if meant.count(os.path.realpath(path)) > 1:
                raise InputError(f"two outputs have the same path {os.path.abspath(path)}: give each its own file")
            if job is not None and owns(job, path):
                raise InputError(f"{path} is part of the saved trace; give another file")

    def deliver(self, evaluation: Evaluation, *, report: bool = True) -> None:
        """Write the requested files, then print the report unless JSON goes to standard output.

        Raises:
            InputError: the step has no time or no tokens to project to --tokens; all else is written.
        """
        evaluation, refusal = self._with_training(evaluation)
        if self.perfetto:
            from presim.report import perfetto

            reported = evaluation.priced.trace.manifest.rank
            perfetto.write(evaluation.ranks, evaluation.timelines, reported, self.perfetto)
        if self.memory_snapshot:
            from presim.report import memory_snapshot

            memory_snapshot.write(evaluation.priced.trace, evaluation.timeline, self.memory_snapshot)
        if self.chakra:
            self._deliver_chakra(evaluation, self.chakra)
        if self.kineto:
            self._deliver_kineto(evaluation, self.kineto)
        if self.html:
            from presim.evaluation.figures import step_figures
            from presim.report import html

            html.write(evaluation.result, self.html, step_figures(evaluation))
        if self.json_file:
            self._deliver_json(evaluation, self.json_file)
        if report and not self.quiet and self.json_file != "-":
            from presim.report import terminal

            terminal.write(evaluation.result)
        if refusal is not None:
            raise refusal

    def _with_training(self, evaluation: Evaluation) -> tuple[Evaluation, Exception | None]:
        """The evaluation with a whole training in its result, or why there is none."""
        if self.tokens is None:
            return evaluation, None
        import msgspec

        from presim.errors import InputError
        from presim.studies.projection.projection import project
        from presim.studies.projection.token_budget import ProjectionRequest

        request = ProjectionRequest(tokens=self.tokens, price_per_gpu_hour=self.price_per_gpu_hour)
        try:
            training = project(evaluation.result, request, evaluation.cluster.gpu)
        except InputError as error:
            return evaluation, error
        result = msgspec.structs.replace(evaluation.result, training=training)
        return dataclasses.replace(evaluation, result=result), None

    def _deliver_chakra(self, evaluation: Evaluation, folder: str) -> None:
        from presim.report import chakra
        from presim.verbs.every_rank import ranks_of_files

        files = ranks_of_files(evaluation)
        chakra.write(files.ranks, files.host_ns, files.representatives, folder, evaluation.cluster)

    def _deliver_kineto(self, evaluation: Evaluation, folder: str) -> None:
        from presim.report import kineto
        from presim.verbs.every_rank import ranks_of_files

        files = ranks_of_files(evaluation)
        kineto.write(files.ranks, files.timelines, files.host_ns, files.representatives, evaluation.cluster, folder)

    def _deliver_json(self, evaluation: Evaluation, path: str) -> None:
        from presim.report import json

        if path == "-":
            sys.stdout.buffer.write(json.encode(evaluation.result))
        else:
            json.write(evaluation.result, path)


def exit_code(result: Result) -> ExitCode:
    """The exit code; 0 only for a complete prediction that fits."""
    if result.misuse:
        return ExitCode.MISUSE
    if result.exit == "out_of_memory" or result.memory.fits is False:
        return ExitCode.DOES_NOT_FIT
    return ExitCode.SCRIPT_FAILED if result.exit in _FAILED else ExitCode.STANDS
