"""Plans of Megatron's family: tensor, pipeline, context, expert and data parallelism, its own layers and optimizer."""

from __future__ import annotations

import re

from presim.hardware.cluster import Cluster
from presim.studies.validation.cases import CannotBuildError, Case
from presim_study.megatron_family import (
    encoders,
    finetuning,
    functional_tests,
    hybrids,
    mlperf,
    selene,
    tuned,
    tuned_experts,
    variants,
)
from presim_study.megatron_family.fields import (
    attention_of,
    engine_of,
    is_deepspeed_s,
    is_half,
    is_sharded,
    masks_attention,
    number_format,
    plain_precision,
    recomputes_layers,
    shares_optimizer,
    split_of_layers,
)
from presim_study.megatron_family.flags import fields_of, flags_of, refuse_unknown
from presim_study.megatron_family.recipe import recipe_of, refuse_other_families
from presim_study.models import plain_name, published_shapes
from presim_study.named_models import Shapes
from presim_study.plan import (
    Plan,
    Repeats,
    accumulation,
    cluster_of,
    needs_installed,
    options,
    repeats_for,
    steps_for,
)


def plan_megatron(case: Case) -> Plan:
    """One rank of each pipeline stage runs the recipe.

    Raises:
        CannotBuildError: the case needs what the recipe has not, or Megatron-core is not installed.
    """
    case = finetuning.completed(tuned.completed(case))
    case = encoders.completed(functional_tests.completed(selene.completed(case)))
    recipe, own = recipe_of(case)
    refuse_other_families(case, recipe)
    needs_installed("megatron")
    case.count("n_gpus")  # partial rows lack it: how many replicas share the optimizer is then not known
    refuse_unknown(flags_of(case))
    stages = case.count("pp", 1)
    cluster = functional_tests.on_its_hosts(case, cluster_of(case))
    micro_batches = accumulation(case, cluster.world_size // _replica(case, cluster.world_size))
    repeats = repeats_for(micro_batches, stages)
    chip = cluster.gpu.id
    return Plan(
        recipe,
        (
            *own,
            *_shapes(case),
            *_parallelism(case),
            *_training(case, repeats, micro_batches, chip),
            *_settings(case, cluster, micro_batches),
        ),
        cluster,
        _ranks(case, cluster.world_size, stages),
        3 if repeats else steps_for(micro_batches),
        repeats,
        tuned.launched_as_graphs(case, plain_name(case), chip),
        functional_tests.graphed_modules(case) or tuned_experts.graphed_modules(case, chip),
        tuned_experts.attends_in_fp8(case, chip) or mlperf.attends_in_fp8(case),
        tuned_experts.fuses_router(case),
        tuned.gathers_ahead(case),
        functional_tests.between_steps_ns(case),
        functional_tests.input_s(case, micro_batches),
    )


def _replica(case: Case, world_size: int) -> int:
    """GPUs that hold one replica of what is no expert.

    Raises:
        CannotBuildError: neither replicas nor groups of experts come out even.
    """
    split, stages = case.count("tp", 1), case.count("pp", 1)
    replica = split * stages * case.count("cp", 1)
    if world_size % replica:
        raise CannotBuildError(f"{world_size} GPUs are no multiple of tp x pp x cp = {replica}")
    experts = case.count("ep", 1) * (_split_of_experts(case) or split) * stages
    if case.count("ep", 1) > 1 and world_size % experts:
        raise CannotBuildError(f"{world_size} GPUs are no multiple of ep x etp x pp = {experts}")
    return replica


def _shapes_of(case: Case) -> Shapes:
    return hybrids.shapes_of(case) or published_shapes(case)


def _ranks(case: Case, world_size: int, stages: int) -> tuple[int, ...]:
    """The first rank of each pipeline stage; of the measured rank's alone where only its memory was measured."""
    each = world_size // stages
    first, measured = tuple(range(0, world_size, each)), case.measured_rank()
    if measured is None or case.number("step_time_s") is not None:
        return first
    stage = measured // each
    if not -1 <= stage < stages:
        raise CannotBuildError(f"rank {measured} was measured, of {world_size}")
    if measured == -1 and variants.muon(case) == "by-layer":  # each rank keeps the state of other layers
        return (world_size - 1,)
    return (first[stage],)


def _shapes(case: Case) -> tuple[str, ...]:
    """Arguments of the recipe for the model and its batch."""
    shapes, split = _shapes_of(case), case.count("tp", 1)
    part = int(flags_of(case).get("make-vocab-size-divisible-by") or 128) * split
    return options(
        layers=shapes.layers,
        hidden=shapes.hidden,
        ffn=shapes.ffn,
        heads=shapes.heads,
        kv_heads=shapes.kv_heads,
        vocab=-(-shapes.vocab // part) * part,  # as Megatron pads it
        sequence=case.count("seq_len"),
        batch=case.count("micro_batch"),
        style=shapes.style,
        tied=shapes.tied,
        positions=shapes.positions,
    )


def _parallelism(case: Case) -> tuple[str, ...]:
    split = case.count("tp", 1)
    return options(
        tensor_parallel=split,
        pipeline_parallel=case.count("pp", 1),
        context_parallel=_above_one(case, "cp"),
        expert_parallel=_above_one(case, "ep"),
        expert_tensor_parallel=_split_of_experts(case),
        virtual_pipeline=_above_one(case, "vp"),
        # tuned runs with tensor parallelism have it; others say so
        overlap_tensor_parallel=tuned.splits_overlap(case, "num_moe_experts" in _shapes_of(case).fields)
        or (split > 1 and flags_of(case).get("tp-comm-overlap") == "True"),
        sequence_parallel=case.is_on("seq_parallel") or (tuned.is_tuned(case) and split > 1),
    )


def _split_of_experts(case: Case) -> int | None:
    """Its own column, or what only a published case's name says: ``te_8experts_etp1_ep4``; tuned runs split none."""
    if "num_moe_experts" not in _shapes_of(case).fields and case.count("n_experts", 0) < 2:
        return None
    if case.text("etp"):
        return case.count("etp")
    if tuned.is_tuned(case) and case.count("ep", 1) > 1 and case.count("tp", 1) > 1:
        return 1
    named = re.search(r"_etp(\d+)", case.text("model"))
    return int(named[1]) if named and case.count("n_experts", 0) > 1 else None


def _training(case: Case, repeats: Repeats | None, micro_batches: int, chip: str) -> tuple[str, ...]:
    """Arguments for what becomes of gradients, what is computed again, and what is trained at all."""
    said, is_tuned, engine = flags_of(case), tuned.is_tuned(case), engine_of(case)
    sharding = case.text("sharding").lower()
    lora = finetuning.adapters(case)
    keeps = not is_tuned or tuned_experts.keeps_all(case, chip)
    again = () if keeps else tuned.recomputed(plain_name(case), chip, case.text("precision"))
    again = (*again, "mlp") if tuned_experts.spreads_over_hosts(case, chip) else again
    return options(
        accumulate=f"{case.count('pp', 1)},{repeats.first},{repeats.second}" if repeats else micro_batches,
        distributed_optimizer=(is_sharded(case) or shares_optimizer(case) or bool(lora)) and not variants.muon(case),
        fsdp=is_sharded(case),
        overlap="overlap-grad-reduce" in said or "overlap-grad-reduce" in sharding or is_tuned,
        precision=plain_precision(case),
        gradients="model" if is_tuned or is_half(case) or said.get("grad-reduce-in-bf16") == "True" else None,
        average_in_collective=(is_tuned and not is_sharded(case)) or "ddp_average_in_collective" in case.text("model"),
        optimizer_instances=said.get("num-distributed-optimizer-instances"),
        engine=engine,
        attention=attention_of(case, engine),
        attention_mask=masks_attention(case),
        deterministic=said.get("deterministic-mode") == "True",
        no_weight_gradient_fusion="no-gradient-accumulation-fusion" in said or is_deepspeed_s(case),
        checkpoint=recomputes_layers(case),
        recompute=",".join(again) or None,
        lora=lora.rank if lora else None,
        lora_targets=",".join(lora.targets) if lora else None,
    )


def _settings(case: Case, cluster: Cluster, micro_batches: int) -> tuple[str, ...]:
    """Fields of TransformerConfig, as ``--set name=value``."""
    shapes = _shapes_of(case)
    fields = {
        **shapes.fields,
        **number_format(case, cluster.gpu.id),
        **mlperf.fields(case),
        **split_of_layers(shapes, case.count("pp", 1) * case.count("vp", 1)),
        **fields_of(case, flags_of(case)),
        **tuned_experts.exchange_fields(case, cluster.gpu.id),
    }
    if hybrids.pattern_of(case):  # whose predictors are the recipe's
        fields.pop("mtp_num_layers", None)
    stages = case.count("pp", 1)
    if case.count("vp", 1) > 1 and micro_batches % stages and micro_batches > stages:
        fields["microbatch_group_size_per_vp_stage"] = micro_batches  # groups of another size would not come out even
    if tuned.is_tuned(case) and shapes.positions == "rope":
        fields["apply_rope_fusion"] = True
    if engine_of(case) == "te" and fields.pop("apply_query_key_layer_scaling", False):
        fields["attention_softmax_in_fp32"] = True  # all that it implies: there the scale is an environment variable's
    if is_sharded(case) and (layers := tuned.offloaded(plain_name(case), cluster.gpu.id, case.text("precision"))):
        fields |= {"cpu_offloading": True, "cpu_offloading_num_layers": layers, "cpu_offloading_weights": False}
    return tuple(part for name in sorted(fields) for part in ("--set", f"{name}={fields[name]!r}"))


def _above_one(case: Case, axis: str) -> int | None:
    count = case.count(axis, 1)
    return count if count > 1 else None
