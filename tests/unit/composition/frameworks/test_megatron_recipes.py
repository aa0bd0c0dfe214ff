"""What a plan does not say is as in Megatron-Bridge's own recipe; what the user says takes precedence."""

from __future__ import annotations

import json
from typing import Any

import pytest

from presim.composition.frameworks import megatron
from presim.composition.frameworks.megatron_recipes import (
    MODELS,
    MegatronRecipe,
    is_one_graph,
    recipe_for,
    settings_without_recipe,
    table,
)
from presim.composition.graph.take import config_file
from presim.composition.plan import Plan


def config_of(model: str) -> dict[str, Any]:
    path = config_file(model)
    assert path is not None
    decoded: dict[str, Any] = json.loads(path.read_text())
    return decoded


def chosen(model: str, gpu: str, precision: str, world_size: int, **fields: int) -> MegatronRecipe | None:
    return recipe_for(config_of(model), gpu, precision, Plan(sequence=4096, **fields), world_size)


def test_every_row_has_a_known_model_and_says_where_it_is_from() -> None:
    assert {recipe.model for recipe in table().recipes} == set(MODELS)
    assert "NVIDIA-NeMo/Megatron-Bridge" in table().source


@pytest.mark.parametrize(
    ("model", "gpu", "precision", "world_size", "fields", "recipe"),
    [
        ("llama3-70b", "h100-sxm", "fp8-current", 64, {}, "llama3_70b_pretrain_64gpu_h100_fp8cs"),
        ("qwen3-30b-a3b", "b200", "mxfp8", 8, {"expert": 8}, "qwen3_30b_a3b_pretrain_8gpu_b200_fp8mx"),
        (
            "deepseek-v3",
            "gb300",
            "mxfp8",
            512,
            {"pipeline": 2, "virtual": 8},
            "deepseek_v3_pretrain_256gpu_gb300_fp8mx",
        ),
    ],
)
def test_the_recipe_of_the_gpu_and_precision_with_the_nearest_plan_is_taken(
    model: str, gpu: str, precision: str, world_size: int, fields: dict[str, int], recipe: str
) -> None:
    found = chosen(model, gpu, precision, world_size, **fields)
    assert found is not None
    assert found.recipe.startswith(recipe)


def test_other_models_and_gpus_have_none() -> None:
    assert chosen("llama2-7b", "h100-sxm", "bf16", 8) is None
    assert chosen("llama3-8b", "a100-80gb-sxm", "bf16", 8) is None


def test_what_the_user_says_is_not_overridden() -> None:
    recipe = chosen("llama3-8b", "h100-sxm", "fp8-current", 8)
    assert recipe is not None
    plan = Plan(sequence=8192)
    assert "model.recompute_granularity=full" in recipe.settings_beside(plan, (), ())
    assert not [field for field in recipe.settings_beside(plan, {"recompute"}, ()) if "recompute" in field]
    overrides = ("model.recompute_granularity=selective",)
    assert not [field for field in recipe.settings_beside(plan, (), overrides) if "recompute" in field]


def test_a_graph_of_the_whole_iteration_is_no_setting_but_a_property() -> None:
    recipe = chosen("qwen3-30b-a3b", "gb200", "mxfp8", 8, expert=8)
    assert recipe is not None
    assert is_one_graph(recipe, ())
    assert recipe.groups_mlp(())
    assert not is_one_graph(recipe, ("model.cuda_graph_impl=none",))
    assert not recipe.groups_mlp(("model.use_transformer_engine_op_fuser=false",))
    fields = recipe.settings_beside(Plan(sequence=4096, expert=8), (), ())
    assert not [field for field in fields if "cuda_graph" in field]
    assert "model.moe_flex_dispatcher_backend=hybridep" in fields
    assert not [field for field in recipe.settings_beside(Plan(sequence=4096), (), ()) if "dispatcher" in field]


def test_parts_that_a_helper_of_bridge_s_makes_graphs_of_are_known() -> None:
    config = {"model_type": "nemotron_h", "num_hidden_layers": 52, "hidden_size": 2688, "vocab_size": 131072}
    config["n_routed_experts"] = 128
    recipe = recipe_for(config, "gb200", "mxfp8", Plan(sequence=8192, expert=8), 8)
    assert recipe is not None
    assert "model.cuda_graph_scope=[attn,mamba,moe_router,moe_preprocess]" in recipe.settings_beside(
        Plan(sequence=8192, expert=8), (), ()
    )


def test_adapters_have_recipes_of_their_own() -> None:
    plan = Plan(sequence=4096, tensor=2, pipeline=4, virtual=20)
    config = config_of("llama3-70b")
    recipe = recipe_for(config, "h100-sxm", "fp8-current", plan, 8, "lora")
    assert recipe is not None
    assert recipe.recipe == "llama3_70b_peft_8gpu_h100_fp8cs"
    assert "peft.target_modules=[linear_qkv]" in recipe.settings_beside(plan, (), ("peft=lora",))
    assert not [field for field in recipe.settings_beside(plan, (), ("peft.dim=4",)) if field.startswith("peft.dim")]
    other_recipe = recipe_for(config, "h100-sxm", "fp8-current", plan, 8)
    assert other_recipe is not None
    assert not other_recipe.adapters


def test_parameters_are_gathered_beside_the_update_under_virtual_stages_only() -> None:
    """Megatron updates the first chunk of a rank alone for it, and has none with one stage on a rank."""
    field = "comm_overlap.overlap_param_gather_with_optimizer_step=true"
    recipes = [recipe for recipe in table().recipes if recipe.settings.get(field.partition("=")[0])]
    assert recipes
    for recipe in recipes:
        virtual = Plan(sequence=4096, pipeline=4, virtual=4)
        assert field in recipe.settings_beside(virtual, (), ())
        assert field not in recipe.settings_beside(Plan(sequence=4096), (), ())


def test_a_precision_without_a_recipe_is_set_as_all_recipes_set_it() -> None:
    config = config_of("llama3-405b")
    assert chosen("llama3-405b", "h100-sxm", "fp8-delayed", 512) is None
    gradients, layers = "mixed_precision.grad_reduce_in_fp32=false", "mixed_precision.first_last_layers_bf16=false"
    assert settings_without_recipe(config, "fp8-delayed", ()) == (gradients, layers)
    assert settings_without_recipe(config, "bf16", ()) == (gradients,)
    assert settings_without_recipe(config, "bf16", ("mixed_precision.grad_reduce_in_fp32=true",)) == ()
    assert settings_without_recipe(config_of("llama3-3b"), "bf16", ()) == ()


def test_a_run_without_a_recipe_says_what_it_has_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(megatron.metadata, "version", lambda name: "1")
    run = megatron.plan_run("llama3-8b", Plan(sequence=4096), ("sequence",), 64, gpu="a100-80gb-sxm")
    assert "mixed_precision.grad_reduce_in_fp32=false" in run.arguments
    assert "As in all of its recipes of this precision: grad_reduce_in_fp32=false." in run.notes[-1]
