"""LoRA adapters of axolotl, LLaMA-Factory and TRL, as options of the programs with Hugging Face's layers."""

from __future__ import annotations

from typing import Any

from presim.composition.launch_configs.settings import Settings
from presim.composition.launch_configs.sharding import DEEPSPEED, EAGER, HF, Sharding
from presim.errors import InputError

ADAM = ("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", "adamw")
_BITSANDBYTES = {
    "adamw_bnb_8bit": "adamw_bnb_8bit",
    "adamw_8bit": "adamw_bnb_8bit",
    "paged_adamw_8bit": "paged_adamw_8bit",
    "paged_adamw_32bit": "paged_adamw_32bit",
    "paged_adamw": "paged_adamw_32bit",
}
_KINDS = ("lora", "qlora")
_MEGATRON = "--framework megatron --framework-args peft=lora has Megatron's adapters"
_RUN = "run the program under `presim run`"
_REFUSED = {
    **dict.fromkeys(("lora_modules_to_save", "additional_target"), f"whole modules beside adapters: {_RUN}"),
    **dict.fromkeys(("peft_use_dora", "use_dora"), f"DoRA's magnitudes are not composed: {_RUN}"),
    **dict.fromkeys(("peft_layers_to_transform", "lora_layers_to_transform"), f"adapters of some layers: {_RUN}"),
    **dict.fromkeys(("lora_target_parameters", "peft_trainable_token_indices"), f"trained beside modules: {_RUN}"),
}


def adapter_options(settings: Settings, sharding: Sharding) -> tuple[str, ...]:
    """Options of the program, empty where all weights are trained.

    Raises:
        InputError: the launch has other adapters than LoRA, or shards them as the program does not.
    """
    kind, rank, targets = _adapters(settings)
    bits = _bits(settings, kind)
    if not kind:
        if bits:
            raise InputError(
                f"{settings.origin} has weights of {bits} bits without adapters, which is not composed; {_RUN}"
            )
        return ()
    if kind not in _KINDS:
        raise InputError(f"{settings.origin} has adapters of the kind {kind}; LoRA is composed: {_RUN}")
    if sharding.framework not in (HF, DEEPSPEED):
        raise InputError(
            f"{settings.origin} has adapters under {sharding.framework}, which is not composed: leave it out, {_RUN}, "
            f"or compare {_MEGATRON}"
        )
    if bits and sharding.framework == DEEPSPEED:
        raise InputError(
            f"{settings.origin} has adapters on weights of {bits} bits under deepspeed, which is not composed: leave "
            f"one out, or {_RUN}"
        )
    settings.refuse(_REFUSED)
    dropout = settings.value("lora_dropout", "peft_config.lora_dropout")
    options = ["--lora_r", str(rank), *(["--lora_dropout", str(float(str(dropout)))] if dropout else [])]
    options += ["--lora_target_modules", *targets] if targets else []
    if bits:
        options.append(f"--load_in_{bits}bit")
        options += ["--use_bnb_nested_quant"] if bits == 4 and _is_nested(settings) else []
    return tuple(options)


def optimizer_options(
    word: str | None, framework: str, data_style: str, origin: str
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Options of the program, and fields of a plan, for the optimizer that a launch names; None: AdamW of PyTorch.

    Raises:
        InputError: it is not AdamW, or not of bitsandbytes where ranks hold whole models.
    """
    name = (word or ADAM[0]).lower()
    if name in ADAM:
        return (), {}
    replicated = data_style == "ddp"
    if framework == HF and replicated and name in _BITSANDBYTES:
        return ("--optim", _BITSANDBYTES[name]), {}
    if framework == EAGER and replicated and _BITSANDBYTES.get(name) == "adamw_bnb_8bit":
        return (), {"optimizer": "adamw-8bit"}
    raise InputError(
        f"{origin} has the optimizer {word}; presim's programs have AdamW, and that of bitsandbytes where ranks hold "
        f"whole models: use adamw_torch, or {_RUN}"
    )


def _adapters(settings: Settings) -> tuple[str, int, list[str]]:
    """Kind, rank and modules, with the trainer's defaults; an empty kind: none."""
    if kind := settings.text("adapter"):  # axolotl
        targets = _names(settings.value("lora_target_modules"))
        targets += ["all-linear"] if settings.switch("lora_target_linear") else []
        return kind.lower(), settings.number("lora_r") or 8, ["all-linear"] if "all-linear" in targets else targets
    method = settings.text("finetuning_type") or settings.text("peft_config.name") or ""
    if method and method != "full":  # LLaMA-Factory, whose `all` leaves out the output layer, as PEFT's all-linear
        rank = settings.number("lora_rank", "peft_config.r") or 8
        targets = _names(settings.value("lora_target", "peft_config.target_modules")) or ["all"]
        return method.lower(), rank, ["all-linear"] if "all" in targets else targets
    if settings.switch("use_peft"):  # TRL
        return "lora", settings.number("lora_r") or 16, _names(settings.value("lora_target_modules"))
    return "", 0, []


def _bits(settings: Settings, kind: str) -> int:
    """Bits of quantised weights; 0: they are not quantised."""
    method = settings.text("quantization_method", "quant_config.name") or "bnb"
    bits = settings.number("quantization_bit", "quant_config.quantization_bit") or 0
    bits = 4 if settings.switch("load_in_4bit") or kind == "qlora" else bits
    bits = 8 if settings.switch("load_in_8bit") and kind != "qlora" else bits
    if bits and (bits not in (4, 8) or method.lower() not in ("bnb", "bitsandbytes", "true")):
        raise InputError(
            f"{settings.origin} has weights of {bits} bits by {method}; bitsandbytes' 4 and 8 bits are composed: {_RUN}"
        )
    return bits


def _is_nested(settings: Settings) -> bool:
    """Whether scales are quantised, too: by default in axolotl and LLaMA-Factory, and not in TRL."""
    nested = settings.value("use_bnb_nested_quant", "bnb_4bit_use_double_quant", "double_quantization")
    is_trl = settings.switch("use_peft")
    return not is_trl if nested is None else str(nested).lower() in ("true", "1")


def _names(value: Any) -> list[str]:
    """Names of modules: a list, or words between commas."""
    words = value if isinstance(value, list) else str(value or "").replace(",", " ").split()
    return [str(word) for word in words]
