"""Published runs of Megatron's family as plans: what a user gives `presim compose --framework megatron` for them."""

from __future__ import annotations

import dataclasses

from presim.composition.plan import Plan
from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.megatron_family import finetuning, functional_tests, hybrids, mlperf, tuned, tuned_experts
from presim_study.megatron_family.config_files import model_of
from presim_study.megatron_family.fields import is_deepspeed_s, is_sharded, number_format, recomputes_layers
from presim_study.megatron_family.flags import flags_of
from presim_study.megatron_family.planner import plan_megatron
from presim_study.models import plain_name, published_shapes
from presim_study.plan import cluster_of
from presim_study.planners import completed, planner_of

_PRECISIONS = {"tensorwise": "fp8-current", "delayed": "fp8-delayed", "blockwise": "fp8-block", "mxfp8": "mxfp8"}
_NOT_FIELDS = ("disable_parameter_transpose_cache",)  # would need another Transformer Engine
_RECIPES = (26, 6)  # the first of Bridge's releases whose recipes for experts are as those that presim has
_DEGREES = ("tensor", "pipeline", "virtual", "context", "expert")


@dataclasses.dataclass(frozen=True)
class ComposedCase:
    """What the command of a published run says."""

    model: str  # a name of presim's, or a config.json
    plan: Plan
    named_fields: tuple[str, ...]
    precision: str
    overrides: tuple[str, ...]
    gpu: str
    world_size: int


def composed_case(case: Case) -> ComposedCase:
    """The command of a row.

    Raises:
        CannotBuildError: the row is of another family, or says too little, or what no command can say.
    """
    case = completed(case)
    if planner_of(case) is not plan_megatron or is_deepspeed_s(case):
        raise CannotBuildError("another framework")
    if functional_tests.is_one(case):
        raise CannotBuildError("a functional test of Megatron-LM: two short layers, options of its own script")
    case = finetuning.completed(tuned.completed(case))
    if not case.number("step_time_s"):
        raise CannotBuildError("no step time")
    if is_sharded(case):
        raise CannotBuildError("Megatron's FSDP, which is no data-parallel style of --framework megatron")
    cluster = cluster_of(case)
    fields = _plan_fields(case)
    gpu = cluster.gpu.id
    return ComposedCase(
        model_of(case),
        Plan(**fields),  # type: ignore[arg-type]
        tuple(name for name in fields if name not in _DEGREES or fields[name] != 1),
        _precision(case, gpu),
        (*_overrides(case), *_release_fields(case, gpu)),
        gpu,
        cluster.world_size,
    )


def _plan_fields(case: Case) -> dict[str, object]:
    said, words = flags_of(case), f"{case.text('other')} {case.text('note')}".lower()
    fields: dict[str, object] = {
        "sequence": case.count("seq_len"),
        "micro_batch": case.count("micro_batch"),
        "global_batch": case.count("global_batch"),
        "tensor": case.count("tp", 1),
        "pipeline": case.count("pp", 1),
        "virtual": case.count("vp", 1),
        "context": case.count("cp", 1),
        "expert": case.count("ep", 1),
        "data_style": "zero1",
    }
    if fields["pipeline"] == 1:
        fields["virtual"] = 1
    if case.text("seq_parallel") and case.count("tp", 1) > 1:
        fields["sequence_parallel"] = case.is_on("seq_parallel")
    if recomputes_layers(case):
        fields["recompute"] = "full"
    if "no tp/p2p overlap" in words and said.get("overlap-grad-reduce") != "True":
        fields["overlap"] = False
    return fields


def _precision(case: Case, gpu: str) -> str:
    found = number_format(case, gpu)
    if not found:
        if "bf16" not in case.precision():
            raise CannotBuildError(f"--framework megatron has no {case.text('precision')}")
        return "bf16"
    return "nvfp4" if "fp4" in found else _PRECISIONS[str(found["fp8_recipe"])]


def _overrides(case: Case) -> tuple[str, ...]:
    """Fields of Bridge's configuration: the row's own words, and for MLPerf's LoRA what the submission's code sets."""
    known = mlperf.fields(case)
    fields = [f"model.{name}={str(value).lower()}" for name, value in known.items() if name not in _NOT_FIELDS]
    if lora := finetuning.adapters(case):
        targets = ",".join(lora.targets)
        fields += ["peft=lora", f"peft.dim={lora.rank}", f"peft.target_modules=[{targets}]"]
    if pieces := finetuning.packed(case):
        fields.append(f"dataset.packed_samples={pieces}")
    if case.text("etp") and case.count("ep", 1) > 1:
        fields.append(f"model.expert_tensor_parallel_size={case.count('etp')}")
    if "fp32 grad accum" in case.text("optimizer"):
        fields.append("mixed_precision.grad_reduce_in_fp32=true")
    if mlperf.is_one(case) and mlperf.launched_as_graphs(case):
        fields += ["model.cuda_graph_impl=local", "model.cuda_graph_scope=[full_iteration]"]
    if mlperf.attends_in_fp8(case):
        fields.append("mixed_precision.fp8_dot_product_attention=true")
    if mlperf.shares_no_links(case):
        fields.append("model.tp_comm_overlap=false")
    if "capacity factor 1 padded" in case.text("other") or _drops(case):
        fields += ["model.moe_expert_capacity_factor=1.0", "model.moe_pad_expert_input_to_capacity=true"]
    return tuple(fields)


def _drops(case: Case) -> bool:
    """Whether an expert takes no more than its even share, as the model's name or its published benchmark has it."""
    return "tokendrop" in case.text("model").lower() or plain_name(case).startswith("grok1")


def _release_fields(case: Case, gpu: str) -> list[str]:
    """What Bridge's recipes for experts set in the row's release, where that is before those that presim has."""
    shapes = hybrids.shapes_of(case) or published_shapes(case)
    if not (0, 0) < tuned_experts.release_of(case) < _RECIPES or not shapes.fields.get("num_moe_experts"):
        return []
    exchange = {"moe_token_dispatcher_type": "alltoall", **tuned_experts.exchange_fields(case, gpu)}
    overlaps = exchange.pop("overlap_moe_expert_parallel_comm", False)
    exchange.pop("delay_wgrad_compute", None)
    fields = {f"model.{name}": value for name, value in exchange.items()}
    fields |= {f"comm_overlap.{name}": overlaps for name in ("overlap_moe_expert_parallel_comm", "delay_wgrad_compute")}
    fields["model.use_transformer_engine_op_fuser"] = False
    fields["mixed_precision.fp8_dot_product_attention"] = tuned_experts.attends_in_fp8(case, gpu)
    modules = tuned_experts.graphed_modules(case, gpu)
    fields["model.cuda_graph_impl"] = "transformer_engine" if modules else "none"
    if modules:
        scopes = {"mixer": "mamba", "self_attention": "attn", "router": "moe_router"}
        fields["model.cuda_graph_scope"] = f"[{','.join(scope for name, scope in scopes.items() if name in modules)}]"
    again = tuned.recomputed(plain_name(case), gpu, case.text("precision"))
    if again and not tuned_experts.keeps_all(case, gpu):
        fields |= {"model.recompute_granularity": "selective", "model.recompute_modules": f"[{','.join(again)}]"}
    return [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in fields.items()]
