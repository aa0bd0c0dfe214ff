"""Counts parameters of text generators: ``python tests/support/architectures.py NAME...`` prints them as JSON.

Each is transformers' class with the sizes of its family, once counted by the class and once by the description.
"""

from __future__ import annotations

import json
import sys
from typing import Any

# vLLM 0.33's text generators (model_executor/models/registry.py) that transformers 5.23 has, those without sizes of
# their own, and images or sound, left out. Of families whose defaults contradict each other, some keys are given.
_NAMES = (
    "Afmoe", "Apertus", "AXK1", "Beam", "Bloom", "Cohere", "Cohere2", "Cohere2Moe", "DeepseekV3", "DeepseekV32",
    "DeepseekV4", "Ernie4_5", "Ernie4_5_Moe", "Exaone4", "ExaoneMoe", "Falcon", "FalconMamba", "FalconH1", "Flint",
    "Gemma", "Gemma2", "Gemma3", "Gemma3n", "Gemma4", "Qwen3Next", "Glm", "Glm4", "Glm4Moe", "Glm4MoeLite",
    "GlmMoeDsa", "GptOss", "GPTBigCode", "GPTJ", "GPTNeoX", "Granite", "GraniteMoe", "GraniteMoeHybrid",
    "GraniteMoeShared", "GraniteMoeSWA", "GraniteSWA", "HYV3", "HYV4", "HyperCLOVAX", "HunYuanDenseV1",
    "HunYuanMoEV1", "Jamba", "KimiLinear", "Lfm2", "Laguna", "Llama", "Llama4", "Mamba", "Mamba2", "MiniCPM3",
    "MiniMax", "MiniMaxM2", "Ministral3", "Mistral", "Mixtral", "MiMoV2Flash", "NemotronH", "Olmo", "Olmo2",
    "Olmo3", "OlmoHybrid", "Olmoe", "OPT", "Phi", "Phi3", "Phimoe", "Qwen2", "Qwen2Moe", "Qwen3", "Qwen3Moe",
    "Qwen3_5", "Qwen3_5Moe", "SeedOss", "SmolLM3", "StableLm", "Starcoder2", "SolarOpen", "Zamba2",
)  # fmt: skip
ARCHITECTURES: dict[str, dict[str, Any]] = {
    **{name: {} for name in _NAMES},
    "DeepseekV2": {"num_experts_per_tok": 6},
    "Nemotron": {"num_key_value_heads": 8, "head_dim": 128},
    "Lfm2Moe": {"layer_types": ["conv", "full_attention"] * 16},
    "LongcatFlash": {"num_layers": 4, "zero_expert_num": 0},  # the class has rows of weights for these
    "HunYuanDenseV1": {"head_dim": 128},
    "HunYuanMoEV1": {"head_dim": 128, "num_experts": 16},
}  # fmt: skip


def counts(name: str) -> dict[str, Any]:
    """The class's own count, the description's, and why there is none."""
    import transformers

    from presim.composition.models.export import classes, decoder
    from presim.composition.models.export.refusal import Refusal

    architecture = next(
        f"{name}{end}" for end in ("ForCausalLM", "LMHeadModel") if hasattr(transformers, f"{name}{end}")
    )
    config = getattr(transformers, architecture).config_class().to_dict()
    try:
        built = classes.build({**config, **ARCHITECTURES.get(name, {}), "architectures": [architecture]})
        model = decoder.describe(built)
    except Refusal as refusal:
        return {"refusal": str(refusal)}
    parameters = sum(parameter.numel() for parameter in built.model.parameters())
    return {"class": parameters, "description": model.parameters, "layers": model.layers, "kinds": len(model.kinds)}


if __name__ == "__main__":
    sys.stdout.write(json.dumps({name: counts(name) for name in sys.argv[1:]}) + "\n")
