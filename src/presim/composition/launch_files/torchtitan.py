"""torchtitan 0.3: ``--module`` names a Python file whose function configures the trainer."""

from __future__ import annotations

from collections.abc import Mapping

from presim.composition.launch_files.launch_job import Files, LaunchJob, check_supported, program, torchrun
from presim.composition.launch_files.layer_passes import words_of
from presim.composition.launch_files.shapes import Shapes, shapes
from presim.composition.stage_split import even_sizes
from presim.errors import InputError

NAME, MODULE = "torchtitan", "plan_config"
_WORDS = "torchtitan splits embedding, output layer and loss by vocabulary, but the plan does not."
_FLEX = "torchtitan runs flex attention instead of a fused kernel: compose with --attention flex."
_SELECTIVE = "torchtitan recomputes every second product as well, whereas the plan keeps all of them."
_LLAMAS = ("llama", "mistral")
# Hugging Face's model_type -> torchtitan's package, whose own models are found by their sizes
_FAMILIES = {
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3",
    "deepseek_v2": "deepseek_v3",
    "deepseek_v3": "deepseek_v3",
    "gpt_oss": "gpt_oss",
}
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zero-bubble": "InterleavedZeroBubble",
    "dualpipev": "DualPipeV",
}


def files(job: LaunchJob) -> Files:
    """The configuration file and the command.

    Raises:
        InputError: torchtitan cannot express the plan or the model.
    """
    plan = job.plan
    check_supported(
        NAME,
        plan,
        (
            *("tensor", "sequence_parallel", "vocabulary_parallel", "context", "pipeline", "virtual", "stages"),
            *("expert", "shard", "reshard", "recompute", "recompute_whole", "cuda_graphs"),
            *("keep_last", "separate_ends"),  # as its trainer always does
            "overlap",  # of other styles of data parallelism
        ),
        data_style=("fsdp2", "hsdp"),
        expert_exchange=("all-to-all",),
        schedule=("", *_SCHEDULES),
        attention=("auto", "flex"),
    )
    layers = words_of(NAME, plan)
    model = _model(job)
    words = () if plan.splits_words or plan.tensor == 1 else (_WORDS,)
    text = program("torchtitan").replace("{settings}", _settings(job, model, layers))
    return Files(
        framework=NAME,
        files={f"{MODULE}.py": text},
        command=torchrun(job, "-m", "torchtitan.train", "--module", MODULE, "--config", "plan"),
        environment={"PYTHONPATH": '"$PWD${PYTHONPATH:+:$PYTHONPATH}"'},
        notes=(
            *words,
            *((_SELECTIVE,) if "selective" in layers else ()),
            *(() if plan.attention == "flex" else (_FLEX,)),
        ),
    )


def _model(job: LaunchJob) -> dict[str, object]:
    """The model's sizes: of Llama's architecture all, of other families those by which torchtitan's own are found."""
    family = str(job.config.get("model_type") or "unknown")
    if family in _LLAMAS:
        return _llama(job, shapes(job.config))
    if family not in _FAMILIES:
        raise InputError(
            f"torchtitan files support Llama's architecture and models of type {', '.join(_FAMILIES)}; this model is "
            f"{family}"
        )
    experts = next((job.config[name] for name in _EXPERTS if job.config.get(name)), 0)
    return {
        "family": _FAMILIES[family],
        "dim": job.config.get("hidden_size"),
        "n_layers": job.config.get("num_hidden_layers"),
        "n_heads": job.config.get("num_attention_heads"),
        "vocab_size": job.config.get("vocab_size"),
        "n_experts": experts,
    }


def _llama(job: LaunchJob, model: Shapes) -> dict[str, object]:
    if model.head_size * model.heads != model.hidden:
        raise InputError(
            f"torchtitan's Llama cannot express heads of {model.head_size}: {model.heads} x {model.head_size} = "
            f"{model.heads * model.head_size} is not its width of {model.hidden}"
        )
    return {
        "family": "llama3",
        "dim": model.hidden,
        "n_layers": model.layers,
        "n_heads": model.heads,
        "n_kv_heads": model.kv_heads,
        "hidden_dim": model.feed_forward,
        "vocab_size": model.vocabulary,
        "head_dim": model.head_size,
        "rope_theta": model.rotary_base,
        "max_seq_len": max(model.positions, job.plan.sequence),
        "tied": model.is_tied,
    }


def _settings(job: LaunchJob, model: Mapping[str, object], layers: list[str]) -> str:
    """Named dictionaries of settings, as Python source."""
    plan = job.plan
    shard = job.plan.shard if plan.data_style == "hsdp" else 0
    sharing = plan.sharing(job.world_size)
    pipelined = plan.pipeline > 1
    training: dict[str, object] = {
        "local_batch_size": plan.micro_batch * (job.micro_batches if pipelined else 1),
        "global_batch_size": plan.global_batch or -1,
        "seq_len": plan.sequence,
        "steps": 10,
        "max_norm": 1.0 if plan.clip else float("inf"),
        "disable_cuda_graphs": not plan.cuda_graphs,
    }
    parallelism: dict[str, object] = {
        "data_parallel_replicate_degree": sharing // shard if shard else 1,
        "data_parallel_shard_degree": (shard or sharing) // plan.context,
        "fsdp_reshard_after_forward": "always" if plan.reshard and not pipelined else "never",
        "tensor_parallel_degree": plan.tensor,
        "enable_sequence_parallel": plan.sequence_parallel,
        "context_parallel_degree": plan.context,
        "pipeline_parallel_degree": plan.pipeline,
        "expert_parallel_degree": plan.expert,
    }
    if pipelined:
        parallelism["pipeline_parallel_schedule"] = _SCHEDULES[plan.order]
        parallelism["pipeline_parallel_microbatch_size"] = plan.micro_batch
        parallelism["module_fqns_per_model_part"] = _parts(job, model)
    settings = (("MODEL", model), ("TRAINING", training), ("PARALLELISM", parallelism))
    parts = [f"{name} = {_python(values)}" for name, values in settings]
    recompute = "full" if plan.recompute == "full" else "selective" if "selective" in layers else "none"
    converters = [word for word in layers if "Converter" in word]
    parts += [f"RECOMPUTE = {recompute!r}", f"CONVERTERS = {converters!r}", f"COMPILE = {'compile' in layers}"]
    return "\n".join(parts)


def _parts(job: LaunchJob, model: Mapping[str, object]) -> list[list[str]]:
    """The modules of each stage, by torchtitan's names."""
    plan = job.plan
    sizes = plan.stages or even_sizes(int(str(model["n_layers"])), plan.pipeline * plan.virtual)
    parts, first = [], 0
    for size in sizes:
        parts.append([f"layers.{number}" for number in range(first, first + size)])
        first += size
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "lm_head"]
    return parts


def _python(values: Mapping[str, object]) -> str:
    """A dictionary as Python source, one line per name."""
    return "{\n" + "".join(f"    {name!r}: {_literal(value)},\n" for name, value in values.items()) + "}"


def _literal(value: object) -> str:
    return 'float("inf")' if value == float("inf") else repr(value)
