"""Shapes of published dense decoders, each from the configuration that was published with its weights."""

from __future__ import annotations

from collections.abc import Mapping

# name in small letters and digits -> layers, hidden, ffn, heads, key and value heads, vocabulary
LLAMAS: Mapping[str, tuple[int, int, int, int, int, int]] = {  # RMSNorm, SwiGLU, no biases, rotary positions
    "llama7b": (32, 4096, 11008, 32, 32, 32000),
    "llama13b": (40, 5120, 13824, 40, 40, 32000),
    "llama30b": (60, 6656, 17920, 52, 52, 32000),
    "llama65b": (80, 8192, 22016, 64, 64, 32000),
    "llama27b": (32, 4096, 11008, 32, 32, 32000),
    "llama213b": (40, 5120, 13824, 40, 40, 32000),
    "llama270b": (80, 8192, 28672, 64, 8, 32000),
    "llama38b": (32, 4096, 14336, 32, 8, 128256),
    "llama370b": (80, 8192, 28672, 64, 8, 128256),
    "llama318b": (32, 4096, 14336, 32, 8, 128256),
    "llama3170b": (80, 8192, 28672, 64, 8, 128256),
    "llama31405b": (126, 16384, 53248, 128, 8, 128256),
    "llama321b": (16, 2048, 8192, 32, 8, 128256),
    "llama323b": (28, 3072, 8192, 24, 8, 128256),
    "llama3370b": (80, 8192, 28672, 64, 8, 128256),
    "codellama7b": (32, 4096, 11008, 32, 32, 32016),
    "codellama13b": (40, 5120, 13824, 40, 40, 32016),
    "codellama34b": (48, 8192, 22016, 64, 8, 32000),
    "tinyllama": (22, 2048, 5632, 32, 4, 32000),
    "yi6b": (32, 4096, 11008, 32, 4, 64000),
    "yi34b": (60, 7168, 20480, 56, 8, 64000),
    "mistral7b": (32, 4096, 14336, 32, 8, 32768),
}
QWENS: Mapping[str, tuple[int, int, int, int, int, int]] = {  # as Llama, with biases of queries, keys and values
    "qwen2505b": (24, 896, 4864, 14, 2, 151936),
    "qwen2515b": (28, 1536, 8960, 12, 2, 151936),
    "qwen253b": (36, 2048, 11008, 16, 2, 151936),
    "qwen257b": (28, 3584, 18944, 28, 4, 152064),
    "qwen2514b": (48, 5120, 13824, 40, 8, 152064),
    "qwen2532b": (64, 5120, 27648, 40, 8, 152064),
    "qwen2572b": (80, 8192, 29568, 64, 8, 152064),
}
QWEN3S: Mapping[str, tuple[int, int, int, int, int, int]] = {  # no biases; heads of 128, queries and keys normalised
    "qwen306b": (28, 1024, 3072, 16, 8, 151936),
    "qwen317b": (28, 2048, 6144, 16, 8, 151936),
    "qwen34b": (36, 2560, 9728, 32, 8, 151936),
    "qwen38b": (36, 4096, 12288, 32, 8, 151936),
    "qwen314b": (40, 5120, 17408, 40, 8, 151936),
    "qwen332b": (64, 5120, 25600, 64, 8, 151936),
}
MIXTRALS: Mapping[str, tuple[int, int, int, int, int, int]] = {  # eight experts, two for each token
    "mixtral8x7b": (32, 4096, 14336, 32, 8, 32000),
    "mixtral8x22b": (56, 6144, 16384, 48, 8, 32768),
}
NEMOTRONS: Mapping[str, tuple[int, int, int, int, int, int]] = {  # LayerNorm, squared ReLU, no biases
    "nemotron415b": (32, 6144, 24576, 48, 8, 256000),
    "nemotron4340b": (96, 18432, 73728, 96, 8, 256000),
}
GPT3S: Mapping[str, tuple[int, int, int, int, int, int]] = {  # GPT-3's paper; 5B, 20B and 40B are NeMo's own sizes
    "gpt3126m": (12, 768, 3072, 12, 12, 51200),
    "gpt313b": (24, 2048, 8192, 16, 16, 51200),
    "gpt35b": (24, 4096, 16384, 32, 32, 51200),
    "gpt367b": (32, 4096, 16384, 32, 32, 51200),
    "gpt320b": (44, 6144, 24576, 48, 48, 51200),
    "gpt313bwhole": (40, 5120, 20480, 40, 40, 51200),  # 13B, as what is 1.3B without its point is called so
    "gpt327b": (32, 2560, 10240, 32, 32, 51200),
    "gpt330b": (48, 7168, 28672, 56, 56, 51200),
    "gpt340b": (48, 8192, 32768, 64, 64, 51200),
    "gpt3175b": (96, 12288, 49152, 96, 96, 51200),
}
