"""Train a model of one of many families on one GPU, with the code of timm, diffusers, PyG, PEFT or HF.

Shapes are those of published models, weights and inputs random. Precisions: ``full`` (fp32, TF32 products), ``mixed``
(fp32 weights under autocast to bf16), ``scaled`` (fp32 weights under autocast to fp16, with a gradient scaler) and
``half`` (everything in bf16).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Forward = Callable[[], Tensor]  # the loss of a batch
Case = Callable[[int, torch.dtype], tuple[nn.Module, Forward]]


def classifier(name: str, side: int = 224) -> Case:
    """A classifier of timm, of images with so many pixels a side among a thousand classes."""

    def case(batch: int, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
        import timm

        model = timm.create_model(name, pretrained=False).to("cuda", dtype)
        pixels = torch.randn(batch, 3, side, side, device="cuda", dtype=dtype)
        labels = torch.randint(1000, (batch,), device="cuda")
        return model, lambda: F.cross_entropy(model(pixels), labels)

    return case


def diffusion_unet(batch: int, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
    """The U-Net of Stable Diffusion 1.5 on latents of 64 x 64."""
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8).to("cuda", dtype)
    latents, noise = torch.randn(2, batch, 4, 64, 64, device="cuda", dtype=dtype).unbind()
    words = torch.randn(batch, 77, 768, device="cuda", dtype=dtype)
    times = torch.randint(1000, (batch,), device="cuda")
    return model, lambda: F.mse_loss(model(latents, times, words).sample.float(), noise.float())


def image_encoder(batch: int, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
    """The autoencoder of Stable Diffusion on images of 256 x 256."""
    from diffusers import AutoencoderKL

    blocks = 4
    model = AutoencoderKL(
        block_out_channels=(128, 256, 512, 512),
        layers_per_block=2,
        down_block_types=("DownEncoderBlock2D",) * blocks,
        up_block_types=("UpDecoderBlock2D",) * blocks,
        latent_channels=4,
    ).to("cuda", dtype)
    pixels = torch.randn(batch, 3, 256, 256, device="cuda", dtype=dtype)
    return model, lambda: F.mse_loss(model(pixels).sample.float(), pixels.float())


def diffusion_transformer(batch: int, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
    """DiT-XL/2 on latents of 32 x 32."""
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=16, attention_head_dim=72, in_channels=4, out_channels=4, num_layers=28, sample_size=32
    ).to("cuda", dtype)
    latents, noise = torch.randn(2, batch, 4, 32, 32, device="cuda", dtype=dtype).unbind()
    times = torch.randint(1000, (batch,), device="cuda")
    labels = torch.randint(1000, (batch,), device="cuda")

    def loss() -> Tensor:
        return F.mse_loss(model(latents, timestep=times, class_labels=labels).sample.float(), noise.float())

    return model, loss


def whisper(batch: int, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
    """Whisper small on thirty seconds of sound and 128 tokens."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    configuration = WhisperConfig(
        d_model=768,
        encoder_layers=12,
        encoder_attention_heads=12,
        decoder_layers=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
        use_cache=False,
    )
    model = WhisperForConditionalGeneration(configuration).to("cuda", dtype)
    sound = torch.randn(batch, 80, 3000, device="cuda", dtype=dtype)
    tokens = torch.randint(50000, (batch, 128), device="cuda")
    return model, lambda: model(input_features=sound, labels=tokens).loss


def wav2vec2(batch: int, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
    """Wav2vec 2.0 base on ten seconds of sound, with a classifier of utterances."""
    from transformers import Wav2Vec2Config, Wav2Vec2ForSequenceClassification

    configuration = Wav2Vec2Config(num_labels=12, apply_spec_augment=False, layerdrop=0.0)
    model = Wav2Vec2ForSequenceClassification(configuration).to("cuda", dtype)
    sound = torch.randn(batch, 160000, device="cuda", dtype=dtype)
    labels = torch.randint(12, (batch,), device="cuda")
    return model, lambda: model(sound, labels=labels).loss


def decoder(model: nn.Module, batch: int, length: int, dtype: torch.dtype) -> Forward:
    """The loss of a causal model of transformers."""
    model.to("cuda", dtype)
    tokens = torch.randint(1000, (batch, length), device="cuda")
    return lambda: model(input_ids=tokens, labels=tokens).loss


def experts(batch: int, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
    """Four layers of Qwen3-30B-A3B at 4,096 tokens."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    configuration = Qwen3MoeConfig(
        vocab_size=151936,
        hidden_size=2048,
        num_hidden_layers=4,
        num_attention_heads=32,
        num_key_value_heads=4,
        head_dim=128,
        moe_intermediate_size=768,
        num_experts=128,
        num_experts_per_tok=8,
        norm_topk_prob=True,
        use_cache=False,
    )
    with torch.device("cuda"):
        model = Qwen3MoeForCausalLM(configuration)
    return model, decoder(model, batch, 4096, dtype)


def gemma3(batch: int, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
    """Gemma 3 1B, five of six layers with a window, at 2,048 tokens."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    configuration = Gemma3TextConfig(
        hidden_size=1152,
        intermediate_size=6912,
        num_hidden_layers=26,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=256,
        sliding_window=512,
        vocab_size=262144,
        use_cache=False,
    )
    with torch.device("cuda"):
        model = Gemma3ForCausalLM(configuration)
    return model, decoder(model, batch, 2048, dtype)


def adapters(batch: int, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
    """LoRA of rank 16 on all products of Llama 3.1 8B at 2,048 tokens, with activation checkpoints."""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    configuration = LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        use_cache=False,
        dtype=dtype,
    )
    torch.set_default_dtype(dtype)
    with torch.device("cuda"):
        base = LlamaForCausalLM(configuration)
    torch.set_default_dtype(torch.float32)
    base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    base.enable_input_require_grads()
    model = get_peft_model(base, LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    return model, decoder(model, batch, 2048, dtype)


class Recurrent(nn.Module):
    """A language model of two LSTM layers of 1,024."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(32000, 1024)
        self.lstm = nn.LSTM(1024, 1024, num_layers=2, batch_first=True)
        self.head = nn.Linear(1024, 32000)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of each token."""
        return self.head(self.lstm(self.words(tokens))[0])


def lstm(batch: int, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
    """The recurrent model on 256 tokens."""
    model = Recurrent().to("cuda", dtype)
    tokens = torch.randint(32000, (batch, 256), device="cuda")
    return model, lambda: F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


def graph_network(batch: int, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
    """Three layers of GraphSAGE on a graph of so many thousand nodes with twenty edges each."""
    from torch_geometric.nn import GraphSAGE

    nodes = 1000 * batch
    model = GraphSAGE(in_channels=128, hidden_channels=256, num_layers=3, out_channels=47).to("cuda", dtype)
    features = torch.randn(nodes, 128, device="cuda", dtype=dtype)
    edges = torch.randint(nodes, (2, 20 * nodes), device="cuda")
    labels = torch.randint(47, (nodes,), device="cuda")
    return model, lambda: F.cross_entropy(model(features, edges), labels)


class Recommender(nn.Module):
    """DLRM with 26 tables of 200,000 rows of 128, dot interactions, and the MLPs of MLPerf."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(200_000, 128, mode="sum") for _ in range(26))
        self.bottom = nn.Sequential(*self.layers(13, 512, 256, 128))
        self.top = nn.Sequential(*self.layers(128 + 27 * 26 // 2, 1024, 1024, 512, 256), nn.Linear(256, 1))
        self.register_buffer("pairs", torch.tril_indices(27, 27, -1))

    def layers(self, *widths: int) -> list[nn.Module]:
        """Linear layers with ReLU."""
        return [layer for n, m in itertools.pairwise(widths) for layer in (nn.Linear(n, m), nn.ReLU())]

    def forward(self, dense: Tensor, indices: Tensor) -> Tensor:
        """Logits of clicks."""
        bottom = self.bottom(dense)
        vectors = torch.stack([bottom, *(table(row) for table, row in zip(self.tables, indices))], dim=1)
        dots = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([bottom, dots], dim=1)).squeeze(1)


def recommender(batch: int, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
    """The recommender with one index a table."""
    model = Recommender().to("cuda", dtype)
    dense = torch.randn(batch, 13, device="cuda", dtype=dtype)
    indices = torch.randint(200_000, (26, batch, 1), device="cuda")
    clicks = torch.randint(2, (batch,), device="cuda").to(dtype)
    return model, lambda: F.binary_cross_entropy_with_logits(model(dense, indices), clicks)


class Segmenter(nn.Module):
    """nnU-Net in two or three dimensions: six levels of two convolutions with instance norms, strides down and up."""

    def __init__(self, dimensions: int) -> None:
        super().__init__()
        convolution, self.up_convolution, self.norm = (
            (nn.Conv2d, nn.ConvTranspose2d, nn.InstanceNorm2d)
            if dimensions == 2
            else (nn.Conv3d, nn.ConvTranspose3d, nn.InstanceNorm3d)
        )
        self.convolution = convolution
        widths = [min(32 << level, 512 if dimensions == 2 else 320) for level in range(6)]
        self.down = nn.ModuleList(self.block(n, m, 1 if n == 4 else 2) for n, m in itertools.pairwise((4, *widths)))
        above = list(itertools.pairwise(widths[::-1]))
        self.up = nn.ModuleList(self.up_convolution(n, m, 2, stride=2) for n, m in above)
        self.join = nn.ModuleList(self.block(2 * m, m, 1) for _, m in above)
        self.head = convolution(widths[0], 4, 1)

    def block(self, n: int, m: int, stride: int) -> nn.Sequential:
        """Two convolutions, the first with a stride."""
        layers: list[nn.Module] = []
        for inputs, step in ((n, stride), (m, 1)):
            layers += [self.convolution(inputs, m, 3, stride=step, padding=1, bias=False), self.norm(m, affine=True)]
            layers.append(nn.LeakyReLU(0.01))
        return nn.Sequential(*layers)

    def forward(self, volume: Tensor) -> Tensor:
        """Logits of each point."""
        kept = []
        for block in self.down:
            volume = block(volume)
            kept.append(volume)
        for up, join, skip in zip(self.up, self.join, kept[-2::-1]):
            volume = join(torch.cat([up(volume), skip], dim=1))
        return self.head(volume)


def segmenter(*sides: int) -> Case:
    """nnU-Net on patches of these sides with four channels and four classes, under cross-entropy and Dice."""

    def case(batch: int, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
        model = Segmenter(len(sides)).to("cuda", dtype)
        volume = torch.randn(batch, 4, *sides, device="cuda", dtype=dtype)
        labels = torch.randint(4, (batch, *sides), device="cuda")

        def loss() -> Tensor:
            logits = model(volume)
            shares = logits.softmax(dim=1)
            truth = F.one_hot(labels, 4).movedim(-1, 1).to(shares.dtype)
            points = [0, *range(2, shares.dim())]
            dice = 2 * (shares * truth).sum(points) / (shares.sum(points) + truth.sum(points))
            return F.cross_entropy(logits, labels) + (1 - dice).mean()

        return model, loss

    return case


def mamba2(batch: int, dtype: torch.dtype) -> tuple[nn.Module, Forward]:
    """Twelve layers of Mamba 2 130M at 1,024 tokens, with the operators of PyTorch."""
    from transformers import Mamba2Config, Mamba2ForCausalLM

    configuration = Mamba2Config(
        hidden_size=768, num_hidden_layers=12, num_heads=24, n_groups=1, vocab_size=50288, use_cache=False
    )
    with torch.device("cuda"):
        model = Mamba2ForCausalLM(configuration)
    return model, decoder(model, batch, 1024, dtype)


CASES: dict[str, Case] = {
    "resnet50": classifier("resnet50"),
    "resnext101-32x4d": classifier("resnext101_32x4d"),
    "se-resnext101-32x4d": classifier("seresnext101_32x4d"),
    "efficientnet-b0": classifier("efficientnet_b0"),
    "efficientnet-b4": classifier("efficientnet_b4", 380),
    "efficientnetv2-m": classifier("tf_efficientnetv2_m"),
    "swin-base": classifier("swin_base_patch4_window7_224"),
    "sd15-unet": diffusion_unet,
    "sd-autoencoder": image_encoder,
    "dit-xl": diffusion_transformer,
    "whisper-small": whisper,
    "wav2vec2-base": wav2vec2,
    "qwen3-moe": experts,
    "gemma3-1b": gemma3,
    "llama3.1-8b-lora": adapters,
    "lstm": lstm,
    "graphsage": graph_network,
    "dlrm": recommender,
    "nnunet-2d": segmenter(192, 160),
    "nnunet-3d": segmenter(128, 128, 128),
    "mamba2": mamba2,
}
DTYPES = {"full": torch.float32, "mixed": torch.float32, "scaled": torch.float32, "half": torch.bfloat16}
CASTS = {"mixed": torch.bfloat16, "scaled": torch.float16}
OPTIMIZERS: dict[str, Callable[[list[Tensor]], torch.optim.Optimizer]] = {
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=1e-4),
    "fused": lambda parameters: torch.optim.AdamW(parameters, lr=1e-4, fused=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=1e-2, momentum=0.9),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=1e-2),
}


def parse() -> argparse.Namespace:
    """What to train, and how."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=CASES, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--precision", choices=tuple(DTYPES), default="mixed")
    parser.add_argument("--optimizer", choices=tuple(OPTIMIZERS), default="adamw")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true", help="with torch.compile")
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    """A few steps on one random batch."""
    o = parse()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model, loss_of_batch = CASES[o.model](o.batch, DTYPES[o.precision])
    model.train()
    if o.channels_last:
        model.to(memory_format=torch.channels_last)
    if o.compile:
        model.compile()
    optimizer = OPTIMIZERS[o.optimizer]([p for p in model.parameters() if p.requires_grad])
    scaler = torch.amp.GradScaler("cuda", init_scale=256.0, enabled=o.precision == "scaled")
    cast = CASTS.get(o.precision)
    for _ in range(o.steps):
        with torch.autocast("cuda", cast) if cast else contextlib.nullcontext():
            loss = loss_of_batch()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
