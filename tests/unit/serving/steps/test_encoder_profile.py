"""The encoder's share of vLLM's profiling run: the largest image sets the peak where few sequences sample."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from presim.composition.models.decoder_layers import Weight
from presim.composition.models.description import Model
from presim.hardware import catalogue
from presim.serving.defaults import with_defaults
from presim.serving.deployments.prediction import encoder_limits
from presim.serving.model_lookup import find
from presim.serving.serving_plan import ServingPlan
from presim.serving.steps.encoder_profile import has_profile, peak_bytes
from presim.serving.steps.engine_memory import lay_out
from presim.serving.steps.profile_run import activation_bytes
from presim.units import GIB

# Qwen3.5-27B's encoder, by its config.json: 1,152 wide, feed-forward 4,304, patches of 2 x 3 x 16 x 16, 4 a token
_QWEN3_5 = (
    ("model.visual.patch_embed.proj.weight", (1152, 3, 2, 16, 16)),
    ("model.visual.blocks.0.mlp.linear_fc1.weight", (4304, 1152)),
    ("model.visual.blocks.0.mlp.linear_fc2.weight", (1152, 4304)),
    ("model.visual.blocks.1.mlp.linear_fc1.weight", (4304, 1152)),
    ("model.visual.merger.linear_fc2.weight", (5120, 4608)),
)
_DEEPSTACK = (("model.visual.deepstack_merger_list.0.linear_fc2.weight", (5120, 4608)),)
_OF_GEMMA = (("model.vision_tower.encoder.layers.0.mlp.fc1.weight", (4304, 1152)),)


def with_encoder(weights: tuple[tuple[str, tuple[int, ...]], ...]) -> Model:
    model = find("qwen3-32b")  # 5,120 wide, like Qwen3.5-27B
    encoder = tuple(Weight(name, shape, "encoder") for name, shape in weights)
    return msgspec.structs.replace(model, outside=(*model.outside, *encoder))


def test_the_peak_is_that_of_one_image_of_16384_tokens() -> None:
    """2 x 65,536 patches x (2 + 8) x 1,152 of attention, 1,536 inputs a patch, and 16,384 x 5,120 outputs."""
    peak, outputs = peak_bytes(with_encoder(_QWEN3_5), ServingPlan(max_num_batched_tokens=8192))
    assert outputs == 2 * 16_384 * 5120
    assert peak == 2 * 65_536 * 10 * 1152 + 2 * 65_536 * 1536 + outputs
    assert 1.6 < peak / GIB < 1.9  # logs of Qwen3.8 on one GPU with 16 sequences: 1.85 GiB


@pytest.mark.parametrize(
    ("fields", "images"), [({"max_num_batched_tokens": 16_384}, 1), ({"max_num_batched_tokens": 40_000}, 2)]
)
def test_a_budget_of_several_images_encodes_them_together(fields: dict[str, int], images: int) -> None:
    single, outputs = peak_bytes(with_encoder(_QWEN3_5), ServingPlan())
    assert peak_bytes(with_encoder(_QWEN3_5), ServingPlan(**fields)) == (images * single, images * outputs)  # type: ignore[arg-type]


def test_ranks_divide_a_block_but_not_its_input() -> None:
    single, outputs = peak_bytes(with_encoder(_QWEN3_5), ServingPlan())
    halved, same_outputs = peak_bytes(with_encoder(_QWEN3_5), ServingPlan(tp=2))
    assert outputs == same_outputs
    assert single - halved == 65_536 * 8 * 1152


def test_levels_of_deepstack_have_outputs_of_their_own() -> None:
    outputs, of_levels = (
        peak_bytes(with_encoder(names), ServingPlan())[1] for names in (_QWEN3_5, _QWEN3_5 + _DEEPSTACK)
    )
    assert of_levels == 2 * outputs


def test_the_encoder_sets_the_peak_only_where_logits_are_few() -> None:
    """With 2,048 sequences the sampler takes more, beside the outputs that the encoder left."""
    text, model = find("qwen3-32b"), with_encoder(_QWEN3_5)
    few, many = ServingPlan(max_num_seqs=16), ServingPlan(max_num_seqs=2048)
    assert activation_bytes(model, few) == peak_bytes(model, few)[0] > activation_bytes(text, few)
    assert activation_bytes(model, many) == activation_bytes(text, many) + peak_bytes(model, many)[1]
    assert activation_bytes(model, dataclasses.replace(few, kernels="sglang")) == activation_bytes(text, few)


def test_other_encoders_have_no_known_profile() -> None:
    assert not has_profile(with_encoder(_OF_GEMMA))
    assert peak_bytes(with_encoder(_OF_GEMMA), ServingPlan()) == (0, 0)


def test_few_sizes_of_graphs_take_less_memory() -> None:
    gpu, model = catalogue.gpu("h100-sxm"), find("llama3-8b")
    plans = [with_defaults({"max_num_seqs": sequences}, model, gpu) for sequences in (1, 16, 256, 1024)]
    reserved = [lay_out(model, plan, gpu).reserved for plan in plans]
    assert reserved[0] < reserved[1] < reserved[2] == reserved[3]


def test_an_encoders_time_and_memory_are_named() -> None:
    text, *memory = encoder_limits(with_encoder(_QWEN3_5), "vllm")
    assert text == (
        "Prompts are of text, or of images and sound that are encoded already: the time of the encoder is not in these "
        "figures."
    )
    assert memory[0].startswith("The activations are those of vLLM's profiling run")
    assert encoder_limits(with_encoder(_OF_GEMMA), "sglang") == [text]
    assert encoder_limits(find("qwen3-32b"), "vllm") == []
