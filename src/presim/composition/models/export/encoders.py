"""Names of modules that work on images and sound, not on the tokens of text."""

from __future__ import annotations

_WORDS = (
    "vision", "visual", "audio", "image", "multi_modal", "multimodal", "mm_", "vit", "sound", "speech", "qformer",
    "resampler", "perceiver", "connector", "aligner",
)  # fmt: skip


def is_encoder(name: str) -> bool:
    """Whether a module or a parameter belongs to an encoder, or to experts for images (ERNIE-4.5-VL)."""
    return any(word in part for part in name.lower().split(".") for word in _WORDS)
