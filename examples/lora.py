"""Fine-tune a Llama with LoRA adapters (PEFT), on weights in bf16 or quantised to 4 or 8 bits (bitsandbytes).

presim run --gpu l40s examples/lora.py --quantize 4bit
"""

import argparse

import bitsandbytes as bnb
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, LlamaConfig
from transformers.integrations import replace_with_bnb_linear

SIZES = {
    "1b": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16},
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32},
}
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def base_model(size: str, quantize: str) -> torch.nn.Module:
    """The frozen model with random weights; a checkpoint would be read by ``from_pretrained`` here."""
    config = LlamaConfig(vocab_size=128256, num_attention_heads=32, num_key_value_heads=8, **SIZES[size])
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    if quantize:
        settings = BitsAndBytesConfig(
            load_in_4bit=quantize == "4bit",
            load_in_8bit=quantize == "8bit",
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
        model = replace_with_bnb_linear(model, modules_to_not_convert=["lm_head"], quantization_config=settings)
        model.is_loaded_in_4bit, model.is_loaded_in_8bit = quantize == "4bit", quantize == "8bit"
    return model


def main() -> None:
    """Some steps on random tokens."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=SIZES, default="8b")
    parser.add_argument("--quantize", choices=("", "4bit", "8bit"), default="")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()

    model = base_model(options.model, options.quantize)
    if options.quantize:
        load_random_weights(model)
        model = prepare_model_for_kbit_training(model)
    else:
        model.to_empty(device="cuda")
    model = get_peft_model(model, LoraConfig(r=options.rank, lora_alpha=32, target_modules=TARGETS)).train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4)
    for _ in range(options.steps):
        tokens = torch.randint(128256, (options.batch, options.length), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


def load_random_weights(model: torch.nn.Module) -> None:
    """Weights layer by layer: they are quantised as they are put on the GPU."""
    for module in model.modules():
        if isinstance(module, bnb.nn.Linear4bit):
            weight = torch.empty(module.weight.shape, dtype=torch.bfloat16)
            module.weight = bnb.nn.Params4bit(weight, requires_grad=False, quant_type="nf4", module=module).cuda()
        elif isinstance(module, bnb.nn.Linear8bitLt):
            weight = torch.empty(module.weight.shape, dtype=torch.float16)
            module.weight = bnb.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False).cuda()
        else:
            module.to_empty(device="cuda", recurse=False)


if __name__ == "__main__":
    main()
