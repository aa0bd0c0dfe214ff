"""What Megatron-Bridge's own performance recipes set for a model, a GPU and a precision, beside the plan.

Made by ``validation/megatron_recipes.py`` from a checkout of Megatron-Bridge.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from presim.composition.plan import Plan
from presim.system.files import decode_json, read_bytes
from presim.system.files.field_bounds import PositiveCount

RECIPES = Path(__file__).parent / "data" / "megatron_recipes.json"
PLAN_FIELDS = {  # of presim's plan: what Bridge calls it
    "tensor": "model.tensor_model_parallel_size",
    "pipeline": "model.pipeline_model_parallel_size",
    "virtual": "model.virtual_pipeline_model_parallel_size",
    "context": "model.context_parallel_size",
    "expert": "model.expert_model_parallel_size",
    "micro_batch": "train.micro_batch_size",
    "global_batch": "train.global_batch_size",
}
_EXCHANGE = (
    "model.moe_token_dispatcher_type",
    "model.moe_flex_dispatcher_backend",
    "model.moe_hybridep_num_sms",
    "model.moe_shared_expert_overlap",
)
_RECOMPUTATION = tuple(f"model.recompute_{name}" for name in ("granularity", "method", "num_layers", "modules"))
GRAPHS = ("model.cuda_graph_impl", "model.cuda_graph_scope")
_OVERLAPS = tuple(
    f"comm_overlap.{name}"
    for name in ("overlap_moe_expert_parallel_comm", "delay_wgrad_compute", "overlap_param_gather_with_optimizer_step")
)
_OF_EXPERTS = (
    *_EXCHANGE,
    *_OVERLAPS[:2],
    "model.moe_router_fusion",
    "model.moe_permute_fusion",
    "model.use_fused_weighted_squared_relu",
)
_ADAPTERS = tuple(f"peft.{name}" for name in ("target_modules", "dim", "alpha", "dropout"))
_OF_PRECISION = (
    *(f"mixed_precision.{name}" for name in ("grad_reduce_in_fp32", "first_last_layers_bf16")),
    *(f"mixed_precision.num_layers_at_{end}_in_bf16" for end in ("start", "end")),
)
_TAKEN = (
    *_ADAPTERS,
    *_OF_EXPERTS,
    *_RECOMPUTATION,
    *GRAPHS,
    _OVERLAPS[2],
    *_OF_PRECISION,
)
_GROUPED_MLP = "model.use_transformer_engine_op_fuser"
_NOT_TAKEN = (  # the installed Megatron lacks them, or presim does not model them
    *(f"model.{name}" for name in ("fp8_output_proj", "moe_paged_stash")),
    *(f"model.{name}" for name in ("cpu_offloading", "fine_grained_activation_offloading")),
    "optimizer.use_precision_aware_optimizer",
    "ddp.nccl_ub",
)
FP8_ATTENTION = "mixed_precision.fp8_dot_product_attention"  # the installed Megatron lacks it with some recipes
SETTINGS = (*_TAKEN, _GROUPED_MLP, FP8_ATTENTION, *_NOT_TAKEN)
_EARLY_GATHER = "comm_overlap.overlap_param_gather_with_optimizer_step"  # of the first of several virtual stages
_WHOLE_GRAPH = "full_iteration"
MODELS = {  # as Bridge's recipes are called: type, layers, hidden size, experts and vocabulary of config.json
    "llama3_8b": ("llama", 32, 4096, 0, 128256),
    "llama3_70b": ("llama", 80, 8192, 0, 128256),
    "llama31_405b": ("llama", 126, 16384, 0, 128256),
    "qwen3_30b_a3b": ("qwen3_moe", 48, 2048, 128, 151936),
    "qwen3_235b_a22b": ("qwen3_moe", 94, 4096, 128, 151936),
    "qwen3_next_80b_a3b": ("qwen3_next", 48, 2048, 512, 151936),
    "deepseek_v3": ("deepseek_v3", 61, 7168, 256, 129280),
    "kimi_k2": ("kimi_k2", 61, 7168, 384, 163840),
    "gpt_oss_20b": ("gpt_oss", 24, 2880, 32, 201088),
    "gpt_oss_120b": ("gpt_oss", 36, 2880, 128, 201088),
    "nemotronh_56b": ("nemotron_h", 118, 8192, 0, 131072),
    "nemotron_3_nano": ("nemotron_h", 52, 2688, 128, 131072),
    "nemotron_3_super": ("nemotron_h", 88, 4096, 512, 131072),
}


class MegatronRecipe(msgspec.Struct, frozen=True):
    """A recipe's plan, and what it sets beside it."""

    recipe: str
    model: str
    gpu: str
    gpus: PositiveCount
    precision: str
    adapters: str  # that are trained: lora; empty: all parameters are
    plan: dict[str, PositiveCount]
    settings: dict[str, Any]

    def settings_beside(self, plan: Plan, named_fields: Collection[str], overrides: Sequence[str]) -> tuple[str, ...]:
        """Fields of Bridge's configuration, without those that the user set or that the plan has no use for.

        Fields that only make sense together, as those of recomputation, are the user's as soon as he sets one.
        """
        excluded = _fields_of(overrides)
        for family in (_EXCHANGE, _RECOMPUTATION, GRAPHS):
            excluded |= {*family} if excluded & {*family} else set()
        if "expert_exchange" in named_fields:
            excluded |= {*_EXCHANGE}
        if "recompute" in named_fields:
            excluded |= {*_RECOMPUTATION}
        if not plan.overlap:
            excluded |= {*_OVERLAPS}
        if plan.pipeline > 1 and plan.virtual == 1:
            excluded |= {*_OVERLAPS}  # Megatron overlaps them under virtual stages only
        if plan.virtual == 1:
            excluded.add(_EARLY_GATHER)
        if plan.expert == 1:
            excluded |= {*_EXCHANGE}
        if is_one_graph(self, overrides):
            excluded |= {*GRAPHS}
        settings = {field: value for field, value in self.settings.items() if field in _TAKEN and field not in excluded}
        if settings.get("model.moe_token_dispatcher_type") != "flex":
            settings = {field: value for field, value in settings.items() if field not in _EXCHANGE[1:3]}
        return tuple(f"{field}={_text(value)}" for field, value in settings.items() if value is not None)

    def groups_mlp(self, overrides: Sequence[str]) -> bool:
        """Whether one kernel multiplies for all experts of a rank and activates, in MXFP8."""
        is_set = _GROUPED_MLP in _fields_of(overrides)
        return not is_set and bool(self.settings.get(_GROUPED_MLP)) and self.precision == "mxfp8"

    @property
    def not_taken(self) -> tuple[str, ...]:
        """Names of settings that a capture does not have."""
        return tuple(field.partition(".")[2] for field in _NOT_TAKEN if self.settings.get(field))


def is_one_graph(recipe: MegatronRecipe | None, overrides: Sequence[str]) -> bool:
    """Whether the iteration is one CUDA graph, so that no kernel waits for the host; a user's graphs precede."""
    settings: Mapping[str, Any] = recipe.settings if recipe is not None else {}
    if _fields_of(overrides) & {*GRAPHS}:
        settings = dict(override.partition("=")[::2] for override in overrides)
    return any(_WHOLE_GRAPH in (settings.get(field) or ()) for field in GRAPHS)


def is_on(field: str, recipe: MegatronRecipe | None, overrides: Sequence[str]) -> bool:
    """Whether the user switches a field on, or the recipe where the user says nothing of it."""
    values = [value for name, _, value in (override.partition("=") for override in overrides) if name == field]
    return values[-1].lower() == "true" if values else recipe is not None and bool(recipe.settings.get(field))


def _fields_of(overrides: Sequence[str]) -> set[str]:
    return {override.partition("=")[0] for override in overrides}


class _Table(msgspec.Struct, frozen=True):
    source: str
    recipes: tuple[MegatronRecipe, ...]


@functools.cache
def table() -> _Table:
    """All recipes with their source."""
    return decode_json(read_bytes(RECIPES, "install presim again"), _Table)


def recipe_for(
    config: Mapping[str, Any], gpu: str, precision: str, plan: Plan, world_size: int, adapters: str = ""
) -> MegatronRecipe | None:
    """The recipe of a model for a GPU and a precision whose plan differs least; None where Bridge has none.

    ``config``: the model's ``config.json``. ``gpu``: its id in the catalogue. ``adapters``: that are trained, as
    ``lora``; empty: all parameters are.
    """
    model = _named(config)
    fitting = [
        recipe
        for recipe in table().recipes
        if (recipe.model, recipe.gpu) == (model, gpu.partition("-")[0])
        and (recipe.precision, recipe.adapters) == (precision, adapters)
    ]
    return min(fitting, key=lambda recipe: _difference(recipe, plan, world_size), default=None)


def settings_without_recipe(config: Mapping[str, Any], precision: str, overrides: Sequence[str]) -> tuple[str, ...]:
    """What every recipe of a precision sets of it alike, for a model that Bridge has recipes of, but not this one.

    As Bridge's own `_perf_precision`, which its recipes call for any model and GPU. Without the user's fields.
    """
    if _named(config) is None:
        return ()
    recipes = [recipe.settings for recipe in table().recipes if recipe.precision == precision]
    fields = [name for name in _OF_PRECISION if name not in _fields_of(overrides)]
    values = {name: {str(settings.get(name)) for settings in recipes} for name in fields}
    alike = [name for name in fields if len(values[name]) == 1]
    return tuple(f"{name}={_text(recipes[0][name])}" for name in alike if recipes[0].get(name) is not None)


def _difference(recipe: MegatronRecipe, plan: Plan, world_size: int) -> tuple[int, int, str]:
    degrees = ("tensor", "pipeline", "virtual", "context", "expert", "micro_batch")
    differing = sum(recipe.plan[name] != getattr(plan, name) for name in degrees)
    return differing, abs(recipe.gpus - world_size), recipe.recipe


def _named(config: Mapping[str, Any]) -> str | None:
    text = config.get("text_config") or config
    experts = next((text[name] for name in ("n_routed_experts", "num_local_experts", "num_experts") if name in text), 0)
    sizes = (
        *(text.get(name) for name in ("model_type", "num_hidden_layers", "hidden_size")),
        experts,
        text.get("vocab_size"),
    )
    return next((name for name, known_sizes in MODELS.items() if known_sizes == sizes), None)


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":")).replace('"', "") if isinstance(value, list | bool) else str(value)
