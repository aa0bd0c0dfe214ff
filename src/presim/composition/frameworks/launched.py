"""A plan as a job of torchtitan, Hugging Face accelerate or DeepSpeed, whose launch files presim writes itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import metadata
from typing import Any

import msgspec

from presim.composition.frameworks.framework_arguments import accelerate_files, deepspeed_files, torchtitan_files
from presim.composition.frameworks.layer_count import layers_of, with_layers
from presim.composition.graph.take import config_file
from presim.composition.launch_files import hugging_face, torchtitan
from presim.composition.launch_files.launch_job import Files, LaunchJob
from presim.composition.launch_files.shapes import read_config
from presim.composition.plan import Plan
from presim.errors import InputError
from presim.hardware.cluster import Cluster

# Two sizes: the second confirms what the first says (`presim.composition.replan.replan_layers`). Few parts of a layer
# come so often.
_CAPTURED_LAYERS = (5, 7)
_TENSORWISE = ("fp8-tensor",)  # torchao's scaling, which takes the maximum at each use
_FEWEST_TO_EXTEND = 24  # layers: fewer are captured as they are, which takes no longer than the two captures


@dataclasses.dataclass(frozen=True)
class _Framework:
    name: str
    packages: tuple[str, ...]
    files_of: Callable[[LaunchJob], Files]
    passes: Mapping[str, tuple[str, ...]]  # precision -> passes of a plan that the launch files express
    settings: Callable[[Files, Sequence[str]], Files]  # with the user's own
    subject: str  # is captured
    # micro-batches of a captured step: the first and the last differ from those between, of which two have to be equal
    fewest: int = 4


@dataclasses.dataclass(frozen=True)
class LaunchedRun:
    """A framework's files and command, to be captured with fewer micro-batches than the step has."""

    name: str  # of the framework
    subject: str  # is captured, for titles and notes
    files: Mapping[str, str]  # name -> text
    command: tuple[str, ...]
    model_layers: int
    captured_layers: int
    captured_micro_batches: int
    step_micro_batches: int
    values: tuple[str, ...]  # policies for values, as `presim run --values`
    notes: tuple[str, ...]
    steps: int = 2  # to capture: the first sets everything up

    @property
    def progress_text(self) -> str:
        """What is captured, for the user who waits."""
        layers = f"{self.captured_layers} of {self.model_layers} layers and " if self.captured_layers else ""
        return f"capturing {layers}{self.captured_micro_batches} of {self.step_micro_batches} micro-batches"

    @property
    def determinants(self) -> tuple[str, ...]:
        """What the capture depends on, besides the cluster and presim."""
        files = (part for name, text in sorted(self.files.items()) for part in (name, text))
        return (*files, *self.command, *self.values, *self.notes)


def launched_run(
    framework: str,
    model: str,
    plan: Plan,
    named_fields: Collection[str],
    cluster: Cluster,
    precision: str = "bf16",
    arguments: Sequence[str] = (),
    *,
    layers: int | None = None,
    all_micro_batches: bool = False,
) -> LaunchedRun:
    """The job of ``torchtitan``, ``hf`` or ``deepspeed`` that trains a model by a plan.

    ``named_fields``: those of the plan that the user set. ``arguments``: options of torchtitan's trainer or of
    `accelerate launch`, or fields of DeepSpeed's configuration as ``zero_optimization.stage=2`` or a file of them.
    ``layers``: to capture; None: all of the model. ``all_micro_batches``: of a step, not as few as repeat.

    Raises:
        InputError: the framework is not installed, or cannot express the plan, the model or the arguments.
    """
    described = FRAMEWORKS[framework]
    versions = installed_versions(framework)
    plan = msgspec.structs.replace(plan, passes=(*_passes(framework, described, precision), *plan.passes))
    _check_sizes(plan, cluster.world_size)
    model_config = _model_config(model, described)
    step_micro_batches = plan.micro_batches(cluster.world_size)
    captured = step_micro_batches if all_micro_batches else min(step_micro_batches, _fewest_repeating(plan, described))
    model_layers = layers_of(model_config)
    job = LaunchJob(
        config=with_layers(model_config, layers) if layers else model_config,
        plan=_with_micro_batches(plan, captured, cluster.world_size),
        nodes=cluster.nodes,
        gpus_per_node=cluster.gpus_per_node,
    )
    files = described.settings(described.files_of(job), arguments)
    values = (f"routing={plan.routing}",) if "routing" in named_fields else ()
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    origin = f"Captured from {described.subject} ({packages}) in {precision}; batches are random tokens."
    return LaunchedRun(
        described.name,
        described.subject,
        files.files,
        tuple(word.replace("$MASTER_ADDR", "127.0.0.1") for word in files.command),
        model_layers,
        layers or model_layers,
        captured,
        step_micro_batches,
        values,
        (origin, *files.notes),
        3 if plan.cuda_graphs else 2,  # graphs are captured in the second step, and replayed from then on
    )


def _model_config(model: str, described: _Framework) -> dict[str, Any]:
    config = config_file(model)
    if config is None:
        raise InputError(
            f"{model} is no Hugging Face config, from which {described.name} builds its model; name one, or leave out "
            "--framework"
        )
    return read_config(config)


def installed_versions(framework: str) -> Mapping[str, str]:
    """Versions of a framework's packages.

    Raises:
        InputError: one of them is not installed.
    """
    described, versions = FRAMEWORKS[framework], {}
    for name in described.packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            raise InputError(
                f"--framework {framework} captures {described.subject}, and {name} is not installed: `make frameworks` "
                "in a checkout installs it, without its nvidia-* packages"
            ) from None
    return versions


def _passes(framework: str, described: _Framework, precision: str) -> tuple[str, ...]:
    if precision not in described.passes:
        raise InputError(
            f"--framework {framework} has the precisions {', '.join(described.passes)}, not {precision}; torchao's "
            "recipes of FP8 are passes, as --pass fp8-row"
        )
    return described.passes[precision]


def _check_sizes(plan: Plan, world_size: int) -> None:
    """Check that degrees divide the ranks, and samples the batch."""
    model_ranks = plan.tensor * plan.context * plan.pipeline
    if world_size % model_ranks:
        raise InputError(
            f"--tp {plan.tensor} x --cp {plan.context} x --pp {plan.pipeline} = {model_ranks} ranks hold the model "
            f"once, and {world_size} GPUs are no multiple of it; change one of them"
        )
    samples = plan.micro_batch * plan.data(world_size)
    if plan.global_batch % samples:
        raise InputError(
            f"--global-batch {plan.global_batch} is no multiple of --mbs {plan.micro_batch} x {plan.data(world_size)} "
            f"data-parallel ranks = {samples}; change one of them"
        )


def sizes_to_capture(run: LaunchedRun, plan: Plan) -> tuple[int, ...]:
    """Numbers of layers of the two captures that answer for all layers of a run; none if it is captured as it is.

    Each stage of a pipeline has layers of its own. ZeRO-3 fetches parameters and DDP reduces gradients in buckets that
    do not follow layers.
    """
    is_short = run.model_layers < _FEWEST_TO_EXTEND
    has_buckets = (run.name, plan.data_style) in (("deepspeed", "fsdp2"), ("accelerate", "ddp"))
    return () if is_short or has_buckets or plan.pipeline > 1 else _CAPTURED_LAYERS


def _fewest_repeating(plan: Plan, described: _Framework) -> int:
    """Micro-batches after which the schedule of each stage has repeated; a schedule of loops is captured in full."""
    if plan.pipeline == 1:
        return described.fewest
    return 5 * plan.pipeline if plan.virtual > 1 else 2 * plan.pipeline + 1


def _with_micro_batches(plan: Plan, micro_batches: int, world_size: int) -> Plan:
    samples = micro_batches * plan.micro_batch * plan.data(world_size)
    return msgspec.structs.replace(plan, global_batch=samples)


FRAMEWORKS: Mapping[str, _Framework] = {
    "torchtitan": _Framework(
        "torchtitan",
        ("torchtitan", "torchao"),
        torchtitan.files,
        {"bf16": (), "fp8-current": _TENSORWISE, "mxfp8": ("mxfp8",), "nvfp4": ("nvfp4",)},
        torchtitan_files,
        "torchtitan's own trainer",
    ),
    "hf": _Framework(
        "accelerate",
        ("transformers", "accelerate"),
        hugging_face.accelerate,
        {"bf16": (), "fp8-current": _TENSORWISE},
        accelerate_files,
        "Hugging Face's model under accelerate",
    ),
    "deepspeed": _Framework(
        "deepspeed",
        ("transformers", "deepspeed"),
        hugging_face.deepspeed,
        {"bf16": ()},
        deepspeed_files,
        "Hugging Face's model under DeepSpeed",
        6,  # ZeRO-3 fetches parameters in the order of earlier micro-batches
    ),
}
