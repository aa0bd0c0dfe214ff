"""A plan as arguments of Megatron-Bridge, whose trainer is captured."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Collection, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from presim.composition.frameworks.framework_arguments import megatron_fields
from presim.composition.frameworks.megatron_recipes import (
    FP8_ATTENTION,
    GRAPHS,
    PLAN_FIELDS,
    MegatronRecipe,
    is_on,
    is_one_graph,
    recipe_for,
    settings_without_recipe,
)
from presim.composition.graph.take import config_file
from presim.composition.plan import Plan
from presim.composition.replan.stage_sources import ONE_AT_EACH_END, Ends
from presim.errors import InputError
from presim.system.files import decode_json, digest_of, read_bytes

PROGRAM = Path(__file__).parent / "programs" / "megatron_bridge_pretrain.py"
PRECISIONS = {  # as Bridge's mixed-precision settings are called
    "bf16": "bf16_mixed",
    "fp8-delayed": "bf16_with_fp8_delayed_scaling_mixed",
    "fp8-current": "bf16_with_fp8_current_scaling_mixed",
    "fp8-block": "bf16_with_fp8_subchannel_scaling_mixed",
    "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}
_TENSOR_OVERLAP = "model.tp_comm_overlap="
NO_GRAPHS = ("model.cuda_graph_impl=none", "model.cuda_graph_scope=[]")
_PACKAGES = ("megatron-bridge", "megatron-core", "transformer_engine")
_TAKEN = {  # fields of a plan that become arguments
    *("sequence", "micro_batch", "global_batch", "tensor", "sequence_parallel", "context", "context_style", "expert"),
    *("expert_exchange", "routing", "pipeline", "virtual", "schedule", "data_style", "overlap", "recompute"),
}
_EXCHANGES = {
    "all-to-all": ("model.moe_token_dispatcher_type=alltoall",),
    "all-gather": ("model.moe_token_dispatcher_type=allgather",),
    "deepep": ("model.moe_token_dispatcher_type=flex", "model.moe_flex_dispatcher_backend=deepep"),
}
# What is composed from a capture would not know of another value.
_OF_PLAN = {*PLAN_FIELDS.values(), "model.seq_length", "train.rampup_batch_size", "train.train_iters"}
_CONTEXT_STYLES = {"all-gather": "all_gather", "ulysses": "a2a", "ring": "p2p"}


@dataclasses.dataclass(frozen=True)
class FrameworkRun:
    """A framework's program with its arguments, to be captured with fewer micro-batches than the step has."""

    script: Path
    arguments: tuple[str, ...]
    captured_micro_batches: int
    step_micro_batches: int
    values: tuple[str, ...]  # policies for values, as `presim run --values`
    notes: tuple[str, ...]
    steps: int = 2  # to capture: the first fills the pipeline and sets everything up
    is_whole_graph: bool = False  # the iteration is one CUDA graph: no kernel waits for the host
    has_recipe_graphs: bool = False  # CUDA graphs that the recipe asks for, and not the user
    attends_in_fp8: bool = False  # where the capture's attention multiplies in 16 bits
    name: str = "Megatron-Bridge"
    subject: str = "Megatron-Bridge's layers"  # is captured, for titles
    captured_stages: int = 0  # of a pipeline with more; 0: all
    captured_ends: Ends = ONE_AT_EACH_END  # of the captured stages
    captured_layers: int = 0  # of a model with more; 0: all
    model_layers: int = 0  # where fewer are captured

    @property
    def progress_text(self) -> str:
        """What is captured, for the user who waits."""
        if self.captured_layers:
            layers = f"{self.captured_layers} of {self.model_layers} layers"
            return f"capturing {layers} and {self.captured_micro_batches} of {self.step_micro_batches} micro-batches"
        stages = f"{self.captured_stages} stages" if self.captured_stages else "each stage"
        return f"capturing {self.captured_micro_batches} of {self.step_micro_batches} micro-batches of {stages}"

    @property
    def determinants(self) -> tuple[str, ...]:
        """What the capture depends on, besides the cluster, presim and the environment."""
        programs = (digest_of(path) for path in sorted(self.script.parent.glob("*.py")))
        return (*programs, shlex.join(self.arguments), digest_of(self.arguments[0]), *self.values, *self.notes)


def plan_run(
    model: str,
    plan: Plan,
    named_fields: Collection[str],
    world_size: int,
    precision: str = "bf16",
    overrides: Sequence[str] = (),
    *,
    gpu: str = "",
    all_micro_batches: bool = False,
) -> FrameworkRun:
    """The run of Megatron-Bridge that trains a model by a plan.

    What the plan does not say is as in Bridge's own recipe for the model, the GPU and the precision, if it has one.

    ``named_fields``: those of the plan that the user set. ``overrides``: of Bridge's configuration, as
    ``model.recompute_granularity=selective``, or YAML files of it; they take precedence. ``gpu``: its id in the
    catalogue. ``all_micro_batches``: of a step, not as few as repeat.

    Raises:
        InputError: Bridge is not installed, the plan does not divide the ranks, or it sets what only composing a graph
            knows.
    """
    versions = installed_versions()
    _check_precision(precision, versions)
    overrides = megatron_fields(overrides, _OF_PLAN, precision)
    _check(plan, named_fields, world_size)
    config = _config_of(model)
    step_micro_batches = plan.micro_batches(world_size)
    captured = step_micro_batches if all_micro_batches else min(step_micro_batches, fewest_repeating(plan))
    model_config = _decoded(config)
    recipe = recipe_for(model_config, gpu, precision, plan, world_size, _adapters(overrides))
    if recipe is not None:
        recipe_settings = recipe.settings_beside(plan, named_fields, overrides)
    else:
        recipe_settings = settings_without_recipe(model_config, precision, overrides)
    is_whole_graph = is_one_graph(recipe, overrides)
    if is_whole_graph:  # whose kernels are launched one by one here, and wait for no host
        overrides = tuple(field for field in overrides if field.partition("=")[0] not in GRAPHS)
    attends_in_fp8 = is_on(FP8_ATTENTION, recipe, overrides)
    overrides = tuple(field for field in overrides if field.partition("=")[0] != FP8_ATTENTION)
    settings = (*recipe_settings, *overrides)
    arguments = (
        str(config),
        *_model_overrides(plan, named_fields),
        *training_overrides(plan, captured, plan.micro_batch * plan.data(world_size)),
        *_graph_overrides(settings),
        *settings,
        *("--mixed-precision", PRECISIONS[precision]),
        *(("--tp-overlap",) if _overlaps_tensor(plan, named_fields, overrides) else ()),
        *(("--grouped-mlp",) if recipe is not None and recipe.groups_mlp(overrides) else ()),
    )
    values = (f"routing={plan.routing}",) if "routing" in named_fields else ()
    notes = (
        *_notes(plan, named_fields, versions, precision, overrides),
        *_recipe_notes(recipe, recipe_settings, overrides),
        *(("The iteration is one CUDA graph: no kernel waits for the host.",) if is_whole_graph else ()),
        *(("Attention multiplies in FP8, which was added to the capture.",) if attends_in_fp8 else ()),
    )
    steps = 3 if _graph_overrides(settings) else 2  # graphs are captured in the second step, and replayed from then on
    has_recipe_graphs = bool(_graph_overrides(settings)) and not _graph_overrides(overrides)
    return FrameworkRun(
        *(PROGRAM, arguments, captured, step_micro_batches, values, notes, steps, is_whole_graph, has_recipe_graphs),
        attends_in_fp8=attends_in_fp8,
    )


def _check_precision(precision: str, versions: Mapping[str, str]) -> None:
    if precision not in PRECISIONS:
        raise InputError(
            f"--precision {precision}: Megatron-Bridge {versions['megatron-bridge']} has no such recipe for "
            f"training, and Transformer Engine no such products; it has {', '.join(PRECISIONS)}"
        )


def _config_of(model: str) -> Path:
    config = config_file(model)
    if config is None:
        raise InputError(
            f"{model} is no Hugging Face config, which Megatron-Bridge needs; name one, or leave out --framework"
        )
    return config


def _adapters(overrides: Sequence[str]) -> str:
    """The adapters that are trained, as ``lora``; empty: all parameters are."""
    schemes = [value for name, _, value in (override.partition("=") for override in overrides) if name == "peft"]
    return schemes[-1] if schemes else ""


def _decoded(config: Path) -> Mapping[str, Any]:
    return decode_json(read_bytes(config, "name a config.json"), dict[str, Any])


def _recipe_notes(recipe: MegatronRecipe | None, settings: Sequence[str], overrides: Sequence[str]) -> tuple[str, ...]:
    """What the run has of Bridge's own recipe, and what of it is missing."""
    fields = ", ".join(setting.partition(".")[2] for setting in settings)
    if recipe is None:
        shared = f" As in all of its recipes of this precision: {fields}." if fields else ""
        return (f"Megatron-Bridge has no recipe of its own for this model, GPU and precision.{shared}",)
    notes = [f"Taken from Megatron-Bridge's recipe {recipe.recipe}: {fields}."]
    if recipe.groups_mlp(overrides):
        notes.append("The experts of a rank are one kernel, by a stand-in for cuDNN's grouped MLP.")
    if recipe.not_taken:
        notes.append(f"Not modelled of the recipe: {', '.join(recipe.not_taken)}.")
    return tuple(notes)


def installed_versions() -> Mapping[str, str]:
    """Versions of Megatron's packages.

    Raises:
        InputError: one of them is not installed.
    """
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            raise InputError(
                f"--framework megatron captures Megatron-Bridge, and {name} is not installed: `make frameworks` in a "
                "checkout installs it, without its nvidia-* packages"
            ) from None
    return versions


def _check(plan: Plan, named_fields: Collection[str], world_size: int) -> None:
    unused = sorted(set(named_fields) - _TAKEN)
    if unused:
        raise InputError(
            f"the plan sets {', '.join(unused)}, which --framework megatron does not take; set Megatron's own field "
            "with --framework-args, or leave out --framework"
        )
    if plan.schedule not in ("", "interleaved" if plan.virtual > 1 else "1f1b"):
        raise InputError(
            f"Megatron does not run {plan.schedule} with {plan.virtual} virtual stages: its schedule is 1f1b, or "
            "interleaved with --vpp above 1"
        )
    for field, option, degree in (("expert_exchange", "--ep", plan.expert), ("context_style", "--cp", plan.context)):
        if field in named_fields and degree == 1:
            raise InputError(f"the plan sets {field}, which takes {option} above 1")
    if "data_style" in named_fields and plan.data_style not in ("zero1", "ddp"):
        raise InputError(
            f"--dp-style {plan.data_style} is not taken with --framework megatron; choose zero1 (its distributed "
            "optimizer) or ddp"
        )
    ranks = plan.tensor * plan.context * plan.pipeline
    if world_size % ranks:
        raise InputError(
            f"{world_size} GPUs are no multiple of tp x cp x pp = {ranks}; choose degrees that divide them"
        )
    samples = plan.micro_batch * plan.data(world_size)
    if plan.global_batch % samples:
        raise InputError(
            f"a global batch of {plan.global_batch} is no multiple of {plan.data(world_size)} data-parallel ranks with "
            f"micro-batches of {plan.micro_batch}; choose a multiple of {samples}"
        )
    if plan.virtual > 1 and plan.micro_batches(world_size) % plan.pipeline:
        raise InputError(
            f"the interleaved schedule takes multiples of {plan.pipeline} micro-batches, and the step has "
            f"{plan.micro_batches(world_size)}; change --global-batch"
        )


def fewest_repeating(plan: Plan) -> int:
    """Micro-batches after which the schedule of each stage has repeated, with all that its warm-up left in flight.

    In the interleaved schedule, the first chunk's activations live for two cycles, of one micro-batch per stage each.
    """
    return max(4, 5 * plan.pipeline if plan.virtual > 1 else 2 * plan.pipeline + 1)


def _overlaps_tensor(plan: Plan, named_fields: Collection[str], overrides: Sequence[str]) -> bool:
    """Whether tensor parallelism's exchanges run beside products.

    Bridge's performance recipes do so wherever sequences are parallel. A user's field can say that they do not, or that
    they do without the overlap of gradients.
    """
    settings = [override.partition("=")[2] == "true" for override in overrides if override.startswith(_TENSOR_OVERLAP)]
    return _is_sequence_parallel(plan, named_fields) and (settings[-1] if settings else plan.overlap)


def _is_sequence_parallel(plan: Plan, named_fields: Collection[str]) -> bool:
    return plan.tensor > 1 and (plan.sequence_parallel or "sequence_parallel" not in named_fields)


def _model_overrides(plan: Plan, named_fields: Collection[str]) -> list[str]:
    fields: dict[str, object] = {
        "seq_length": plan.sequence,
        "tensor_model_parallel_size": plan.tensor,
        "sequence_parallel": _is_sequence_parallel(plan, named_fields),
        "context_parallel_size": plan.context,
        "pipeline_model_parallel_size": plan.pipeline,
        "expert_model_parallel_size": plan.expert,
    }
    if plan.pipeline > 1:
        fields["pipeline_dtype"] = "torch.bfloat16"
    if plan.virtual > 1:
        fields["virtual_pipeline_model_parallel_size"] = plan.virtual
    if plan.expert > 1:
        fields["expert_tensor_parallel_size"] = 1
    if plan.context > 1 and "context_style" in named_fields:
        fields["cp_comm_type"] = _CONTEXT_STYLES[plan.context_style]
    if plan.recompute == "full":
        fields |= {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
    exchange = _EXCHANGES[plan.expert_exchange] if plan.expert > 1 else ()
    return [*(f"model.{name}={_text(value)}" for name, value in fields.items()), *exchange]


def training_overrides(plan: Plan, micro_batches: int, samples: int, *, first: int = 0) -> list[str]:
    """``samples``: of one micro-batch on all data-parallel ranks. ``first``: micro-batches of the first step.

    Without ``first``, the first step, which allocates memory and sets up communicators, has no more than fill the
    pipeline.
    """
    fields: dict[str, object] = {
        "train.micro_batch_size": plan.micro_batch,
        "train.global_batch_size": micro_batches * samples,
        **{f"{group}.overlap_grad_reduce": plan.overlap for group in ("ddp", "comm_overlap")},
        **{
            f"{group}.overlap_param_gather": plan.overlap and plan.data_style != "ddp"
            for group in ("ddp", "comm_overlap")
        },
        "ddp.use_distributed_optimizer": plan.data_style != "ddp",
        "optimizer.use_distributed_optimizer": plan.data_style != "ddp",
    }
    filling = first or (plan.pipeline if plan.virtual > 1 else 2 * plan.pipeline)
    if filling < micro_batches:
        added = (micro_batches - filling) * samples
        fields["train.rampup_batch_size"] = f"[{filling * samples},{added},{filling * samples}]"
    return [f"{name}={_text(value)}" for name, value in fields.items()]


def _graph_overrides(overrides: Sequence[str]) -> tuple[str, ...]:
    """What Megatron needs for the CUDA graphs that the overrides ask for; they are made after one step, not three."""
    values = dict(override.split("=", 1) for override in overrides)
    needed = ("model.cuda_graph_warmup_steps=1", "model.use_te_rng_tracker=true", "rng.te_rng_tracker=true")
    return needed if values.get("model.cuda_graph_impl", "none") != "none" else ()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _notes(
    plan: Plan,
    named_fields: Collection[str],
    versions: Mapping[str, str],
    precision: str,
    overrides: Sequence[str],
) -> tuple[str, ...]:
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    fusions = {
        "model.apply_rope_fusion": "fused RoPE",
        "model.cross_entropy_loss_fusion": "fused cross-entropy",
        "model.gradient_accumulation_fusion": "weight gradients accumulated in the product",
    }
    settings = [words for field, words in fusions.items() if f"{field}=false" not in overrides]
    if plan.overlap:
        settings.append("gradients and parameters exchanged beside compute")
    if _is_sequence_parallel(plan, named_fields):
        settings.append("sequence parallelism")
    if _overlaps_tensor(plan, named_fields, overrides):
        settings.append("tensor parallelism's exchanges beside products, by a stand-in for userbuffers")
    trainer = f"Captured from Megatron's own trainer ({packages}) in {precision}, with {'; '.join(settings)}."
    return (f"{trainer} Loading data takes no time.",)
