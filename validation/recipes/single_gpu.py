"""Train one published model on one GPU with Hugging Face's code.

Precisions are TorchSim's three: ``full`` (fp32 without TF32), ``mixed`` (fp32 weights under autocast to bf16) and
``half`` (everything in bf16); and ``fp16`` and ``tf32``. Shapes are those of the published checkpoints; weights are
random.
"""

import argparse
import contextlib

import torch
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from transformers import (
    AttentionInterface,
    BertConfig,
    BertForMaskedLM,
    CLIPConfig,
    CLIPModel,
    ConvNextV2Config,
    ConvNextV2ForImageClassification,
    Gemma2Config,
    Gemma2ForCausalLM,
    GemmaConfig,
    GemmaForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTForImageClassification,
)
from transformers.models.convnextv2.modeling_convnextv2 import ConvNextV2Layer

_DTYPES = {
    "full": torch.float32,
    "tf32": torch.float32,
    "mixed": torch.float32,
    "half": torch.bfloat16,
    "fp16": torch.float16,
}


def gpt2(layers: int, hidden: int, heads: int, positions: int):
    """A GPT-2 of another size."""
    return lambda: GPT2Config(n_layer=layers, n_embd=hidden, n_head=heads, n_positions=positions, use_cache=False)


def bert(layers: int, hidden: int, heads: int):
    """A BERT."""
    return lambda: BertConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * hidden
    )


def opt(layers: int, hidden: int, heads: int):
    """An OPT."""
    return lambda: OPTConfig(
        hidden_size=hidden, ffn_dim=4 * hidden, num_hidden_layers=layers, num_attention_heads=heads, use_cache=False
    )


def vit(layers: int, hidden: int, heads: int, patch: int):
    """A ViT."""
    return lambda: ViTConfig(
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        patch_size=patch,
        num_labels=1000,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def t5(layers: int, hidden: int, head: int, ffn: int, heads: int):
    """A T5, with as many layers that write as that read."""
    return lambda: T5Config(
        d_model=hidden,
        d_kv=head,
        d_ff=ffn,
        num_layers=layers,
        num_decoder_layers=layers,
        num_heads=heads,
        use_cache=False,
        decoder_start_token_id=0,
    )


def shaped(configure, shapes: str):
    """The configuration of a decoder of these layers, width, width of the MLP, heads, those of keys, vocabulary."""
    layers, hidden, ffn, heads, kv_heads, words = map(int, shapes.split(","))
    return configure(
        vocab_size=words,
        hidden_size=hidden,
        intermediate_size=ffn,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=131072,
        use_cache=False,
    )


def clip_336() -> CLIPConfig:
    """openai/clip-vit-large-patch14-336."""
    text = dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12)
    vision = dict(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        image_size=336,
        patch_size=14,
    )
    return CLIPConfig(text_config=text, vision_config=vision, projection_dim=768)


# Name -> (configuration, model, attention where the framework's own default is not SDPA).
MODELS = {
    "gemma-2b": (
        lambda: GemmaConfig(
            hidden_size=2048,
            intermediate_size=16384,
            num_hidden_layers=18,
            num_attention_heads=8,
            num_key_value_heads=1,
            use_cache=False,
        ),
        GemmaForCausalLM,
        "sdpa",
    ),
    "gemma2-2b": (lambda: Gemma2Config(use_cache=False), Gemma2ForCausalLM, "fused"),
    "llama3.2-1b": (
        lambda: LlamaConfig(
            vocab_size=128256,
            hidden_size=2048,
            intermediate_size=8192,
            num_hidden_layers=16,
            num_attention_heads=32,
            num_key_value_heads=8,
            head_dim=64,
            max_position_embeddings=131072,
            rope_theta=500000.0,
            tie_word_embeddings=True,
            use_cache=False,
        ),
        LlamaForCausalLM,
        "sdpa",
    ),
    "clip-vit-l14-336": (clip_336, CLIPModel, "sdpa"),
    "vit-b16": (vit(12, 768, 12, 16), ViTForImageClassification, "sdpa"),
    "vit-l16": (vit(24, 1024, 16, 16), ViTForImageClassification, "sdpa"),
    "vit-h14": (vit(32, 1280, 16, 14), ViTForImageClassification, "sdpa"),
    "convnextv2-huge": (
        lambda: ConvNextV2Config(hidden_sizes=[352, 704, 1408, 2816], depths=[3, 3, 27, 3], num_labels=1000),
        ConvNextV2ForImageClassification,
        "eager",
    ),
    "gpt2": (gpt2(12, 768, 12, 1024), GPT2LMHeadModel, "sdpa"),
    "gpt2-medium": (gpt2(24, 1024, 16, 1024), GPT2LMHeadModel, "sdpa"),
    "gpt2-large": (gpt2(36, 1280, 20, 1024), GPT2LMHeadModel, "sdpa"),
    "gpt2-xl": (gpt2(48, 1600, 25, 1024), GPT2LMHeadModel, "sdpa"),
    "gpt3-xl": (gpt2(24, 3072, 24, 2048), GPT2LMHeadModel, "sdpa"),
    "gpt3-2.7b": (gpt2(32, 2560, 32, 2048), GPT2LMHeadModel, "sdpa"),
    "bert-base": (bert(12, 768, 12), BertForMaskedLM, "sdpa"),
    "bert-large": (bert(24, 1024, 16), BertForMaskedLM, "sdpa"),
    "opt-1.3b": (opt(24, 2048, 32), OPTForCausalLM, "sdpa"),
    "opt-2.7b": (opt(32, 2560, 32), OPTForCausalLM, "sdpa"),
    "opt-6.7b": (opt(32, 4096, 32), OPTForCausalLM, "sdpa"),
    "llama": (LlamaConfig, LlamaForCausalLM, "sdpa"),  # this and the next two: sizes from --shapes
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, "sdpa"),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, "sdpa"),
    "t5-base": (t5(12, 768, 64, 3072, 12), T5ForConditionalGeneration, "eager"),
    "t5-large": (t5(24, 1024, 64, 4096, 16), T5ForConditionalGeneration, "eager"),
    "t5-3b": (t5(24, 1024, 128, 16384, 32), T5ForConditionalGeneration, "eager"),
}


def fused_attention(module, query, key, value, mask, scaling=None, dropout=0.0, softcap=None, **kwargs):
    """PyTorch's fused attention for models that transformers gives none because they cap their scores."""
    groups = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(groups, dim=1) for t in (key, value))
    out = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling)
    return out.transpose(1, 2).contiguous(), None


def build(o: argparse.Namespace) -> torch.nn.Module:
    """The model on the GPU, in its precision."""
    configure, kind, attention = MODELS[o.model]
    configuration = shaped(configure, o.shapes) if o.shapes else configure()
    configuration._attn_implementation = o.attention or attention
    if configuration._attn_implementation == "fused":
        AttentionInterface.register("fused", fused_attention)
    with torch.device("meta"):
        model = kind(configuration)
    model = model.to(_DTYPES[o.precision]).to_empty(device="cuda")
    model.tie_weights()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.02)
    if o.checkpoint and model.supports_gradient_checkpointing:
        older = not hasattr(model, "activation_checkpointing_enable")  # transformers before 5.20
        (model.gradient_checkpointing_enable if older else model.activation_checkpointing_enable)()
    elif o.checkpoint:
        blocks = (ConvNextV2Layer,)
        apply_activation_checkpointing(
            model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda module: isinstance(module, blocks)
        )
    return model.train()


def batch(o: argparse.Namespace, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Random tokens, images or both."""
    dtype = _DTYPES[o.precision]
    if o.image:
        pixels = torch.randn(o.batch, 3, o.image, o.image, device="cuda", dtype=dtype)
        if not isinstance(model, CLIPModel):
            return {"pixel_values": pixels, "labels": torch.randint(1000, (o.batch,), device="cuda")}
        tokens = torch.randint(1000, (o.batch, o.sequence), device="cuda")
        return {"pixel_values": pixels, "input_ids": tokens, "return_loss": True}
    tokens = torch.randint(1000, (o.batch, o.sequence), device="cuda")
    return {"input_ids": tokens, "labels": tokens}


def loss_of(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The model's own loss; of a decoder the one of transformers 4.46 to 4.48, whose memory TorchSim's table shows.

    Logits shifted by a copy and, but for GPT-2's, in fp32; those that the model gave are there until the loss is.
    """
    if "labels" not in inputs or not hasattr(model, "lm_head") or model.config.is_encoder_decoder:
        return model(**inputs).loss
    given = model(input_ids=inputs["input_ids"]).logits
    logits = given if isinstance(model, GPT2LMHeadModel) else given.float()
    shifted = logits[..., :-1, :].contiguous()
    return F.cross_entropy(shifted.view(-1, shifted.shape[-1]), inputs["labels"][..., 1:].reshape(-1))


def parse() -> argparse.Namespace:
    """What to train, and how."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--shapes", help="of llama, qwen2 and qwen3: layers,width,MLP,heads,those of keys,vocabulary")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--sequence", type=int, default=0)
    parser.add_argument("--image", type=int, default=0)
    parser.add_argument("--precision", choices=tuple(_DTYPES), default="full")
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    parser.add_argument("--attention", choices=("eager", "sdpa", "fused"))
    parser.add_argument("--optimizer", choices=("adam", "none"), default="adam")
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    """A few steps on one random batch; ``--optimizer none`` is forward and backward only."""
    o = parse()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = o.precision == "tf32"
    model = build(o)
    if o.compile:
        model.compile()
    inputs = batch(o, model)
    # A step without an optimizer still ends where one would step: SGD over one scalar costs nothing.
    held = list(model.parameters()) if o.optimizer == "adam" else [torch.nn.Parameter(torch.zeros(1))]
    optimizer = torch.optim.Adam(held, lr=1e-4, foreach=True) if o.optimizer == "adam" else torch.optim.SGD(held)
    amp = torch.autocast("cuda", torch.bfloat16) if o.precision == "mixed" else contextlib.nullcontext()
    for _ in range(o.steps):
        with amp:
            loss = loss_of(model, inputs)
        loss.backward()
        optimizer.step()
        model.zero_grad()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
