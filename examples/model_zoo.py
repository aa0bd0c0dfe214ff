"""Train one of the usual models of images, of text, of both, or of diffusion, on random data.

presim run --gpu h100-sxm examples/model_zoo.py resnet50 --batch 256 --channels-last
"""

import argparse
import itertools
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional

Batch = dict[str, torch.Tensor]
Task = tuple[nn.Module, Iterator[Batch]]  # the model gives a loss for each of its batches


class Classifier(nn.Module):
    """Cross entropy over what a model of images answers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss of a batch."""
        return functional.cross_entropy(self.model(images), labels)


class Noise(nn.Module):
    """Mean squared error of the noise that a diffusion UNet sees in latents."""

    def __init__(self, unet: nn.Module) -> None:
        super().__init__()
        self.unet = unet

    def forward(self, latents: torch.Tensor, steps: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        """The loss of noisy latents after so many steps, with the text that describes them."""
        return functional.mse_loss(self.unet(latents, steps, text).sample, latents)


class Loss(nn.Module):
    """The loss that a model of transformers works out itself."""

    def __init__(self, model: nn.Module, **always: bool) -> None:
        super().__init__()
        self.model = model
        self.always = always

    def forward(self, **batch: torch.Tensor) -> torch.Tensor:
        """The loss of a batch."""
        return self.model(**batch, **self.always).loss


def forever(make: Callable[[], Batch]) -> Iterator[Batch]:
    """A new random batch each time."""
    return (make() for _ in itertools.count())


def image_classifier(name: str) -> Callable[[int], Task]:
    """A model of timm's, by its name there."""

    def task(batch: int) -> Task:
        import timm

        def images() -> Batch:
            return {
                "images": torch.randn(batch, 3, 224, 224, device="cuda"),
                "labels": torch.randint(1000, (batch,), device="cuda"),
            }

        return Classifier(timm.create_model(name)), forever(images)

    return task


def bert(batch: int) -> Task:
    """BERT-large, masked language modelling."""
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)

    def text() -> Batch:
        tokens = torch.randint(config.vocab_size, (batch, 512), device="cuda")
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}

    return Loss(BertForMaskedLM(config)), forever(text)


def t5(batch: int) -> Task:
    """T5-large, 512 tokens in and 128 out."""
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(d_model=1024, d_ff=4096, num_layers=24, num_heads=16, d_kv=64, decoder_start_token_id=0)

    def text() -> Batch:
        tokens = torch.randint(config.vocab_size, (batch, 512), device="cuda")
        return {"input_ids": tokens, "labels": tokens[:, :128].contiguous()}

    return Loss(T5ForConditionalGeneration(config), use_cache=False), forever(text)


def clip(batch: int) -> Task:
    """CLIP with a ViT-L/14, contrastive over the batch."""
    from transformers import CLIPConfig, CLIPModel

    config = CLIPConfig(
        text_config={"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
        vision_config={
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "patch_size": 14,
        },
        projection_dim=768,
    )

    def pairs() -> Batch:
        return {
            "input_ids": torch.randint(config.text_config.vocab_size, (batch, 77), device="cuda"),
            "pixel_values": torch.randn(batch, 3, 224, 224, device="cuda"),
        }

    return Loss(CLIPModel(config), return_loss=True), forever(pairs)


def unet(batch: int) -> Task:
    """The UNet of Stable Diffusion 1.5 (diffusers' defaults, cross attention of 768) on 64 x 64 latents."""
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(sample_size=64, cross_attention_dim=768)

    def latents() -> Batch:
        return {
            "latents": torch.randn(batch, 4, 64, 64, device="cuda"),
            "steps": torch.randint(1000, (batch,), device="cuda"),
            "text": torch.randn(batch, 77, 768, device="cuda"),
        }

    return Noise(model), forever(latents)


TASKS: dict[str, Callable[[int], Task]] = {
    "resnet50": image_classifier("resnet50"),
    "resnet152": image_classifier("resnet152"),
    "convnext": image_classifier("convnext_base"),
    "vit": image_classifier("vit_base_patch16_224"),
    "clip": clip,
    "t5": t5,
    "bert": bert,
    "unet": unet,
}


def main() -> None:
    """Some steps of AdamW under bf16 autocast."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=TASKS)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()

    with torch.device("cuda"):
        model, batches = TASKS[options.model](options.batch)
    model.train()
    if options.channels_last:
        model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _, batch in zip(range(options.steps), batches):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(**batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
