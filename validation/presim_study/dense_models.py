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
    "ministral8b": (36, 4096, 12288, 32, 8, 131072),
    "deepseekllm7b": (30, 4096, 11008, 32, 32, 102400),
    "deepseekllm67b": (95, 8192, 22016, 64, 8, 102400),
    "deepseekcoder33b": (62, 7168, 19200, 56, 8, 32256),
    "baichuan27b": (32, 4096, 11008, 32, 32, 125696),
    "phi3mini": (32, 3072, 8192, 32, 32, 32064),
    "phi35mini": (32, 3072, 8192, 32, 32, 32064),
    "phi3medium": (40, 5120, 17920, 40, 10, 32064),
    "phi4": (40, 5120, 17920, 40, 10, 100352),
    "falcon37b": (28, 3072, 23040, 12, 4, 131072),
    "falcon310b": (40, 3072, 23040, 12, 4, 131072),
    "olmo7b": (32, 4096, 11008, 32, 32, 50304),  # norms without weights
    "olmo27b": (32, 4096, 11008, 32, 32, 100352),  # the second's norms stand behind attention and MLP
    "olmo213b": (40, 5120, 13824, 40, 40, 100352),
    "olmo232b": (64, 5120, 27648, 40, 8, 100352),
}
QWENS: Mapping[str, tuple[int, int, int, int, int, int]] = {  # as Llama, with biases of queries, keys and values
    "qwen157b": (32, 4096, 11008, 32, 32, 151936),
    "qwen1514b": (40, 5120, 13696, 40, 40, 152064),
    "qwen1572b": (80, 8192, 24576, 64, 64, 152064),
    "qwen205b": (24, 896, 4864, 14, 2, 151936),
    "qwen215b": (28, 1536, 8960, 12, 2, 151936),
    "qwen27b": (28, 3584, 18944, 28, 4, 152064),
    "qwen272b": (80, 8192, 29568, 64, 8, 152064),
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
# LayerNorm, squared ReLU, no biases; the third generation's from NeMo, nemo/collections/llm/gpt/model/nemotron.py.
# Tables leave the generation out: NeMo's Nemotron 8B and 22B are the third's, 15B and 340B the fourth's.
NEMOTRONS: Mapping[str, tuple[int, int, int, int, int, int]] = {
    "nemotron38b": (32, 4096, 16384, 32, 32, 256000),
    "nemotron322b": (40, 6144, 24576, 48, 48, 256000),
    "nemotron8b": (32, 4096, 16384, 32, 32, 256000),
    "nemotron22b": (40, 6144, 24576, 48, 48, 256000),
    "nemotron15b": (32, 6144, 24576, 48, 8, 256000),
    "nemotron340b": (96, 18432, 73728, 96, 8, 256000),
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
# Megatron-LM's own: Narayanan and others (2021), table 1, and Korthikanti and others (2022), table 3.
MEGATRONS: Mapping[str, tuple[int, int, int, int, int, int]] = {
    "gpt17b": (24, 2304, 9216, 24, 24, 51200),
    "gpt36b": (30, 3072, 12288, 32, 32, 51200),
    "gpt75b": (36, 4096, 16384, 32, 32, 51200),
    "gpt184b": (40, 6144, 24576, 48, 48, 51200),
    "gpt391b": (48, 8192, 32768, 64, 64, 51200),
    "gpt761b": (60, 10240, 40960, 80, 80, 51200),
    "gpt1456b": (80, 12288, 49152, 96, 96, 51200),
    "gpt3101b": (96, 16384, 65536, 128, 128, 51200),
    "gpt5296b": (105, 20480, 81920, 128, 128, 51200),
    "gpt1008b": (128, 25600, 102400, 160, 160, 51200),
    "gpt18b": (40, 6144, 24576, 48, 48, 51200),
    "gpt39b": (48, 8192, 32768, 64, 64, 51200),
    "gpt76b": (60, 10240, 40960, 80, 80, 51200),
    "gpt145b": (80, 12288, 49152, 96, 96, 51200),
    "gpt310b": (96, 16384, 65536, 128, 128, 51200),
    "gpt530b": (105, 20480, 81920, 128, 128, 51200),
    "gpt1t": (128, 25600, 102400, 160, 160, 51200),
    "megatron22b": (48, 6144, 24576, 64, 64, 51200),
    "megatron175b": (96, 12288, 49152, 96, 96, 51200),
    "megatron530b": (105, 20480, 81920, 128, 128, 51200),
    "megatron1t": (128, 25600, 102400, 160, 160, 51200),
    "mtnlg": (105, 20480, 81920, 128, 128, 51200),
}
FALCONS: Mapping[str, tuple[int, int, int, int, int, int]] = {  # LayerNorm, GELU, no biases, rotary positions
    "falcon7b": (32, 4544, 18176, 71, 1, 65024),
    "falcon40b": (60, 8192, 32768, 128, 8, 65024),
    "falcon180b": (80, 14848, 59392, 232, 8, 65024),
}
STARCODERS: Mapping[
    str, tuple[int, int, int, int, int, int]
] = {  # LayerNorm, GELU, biases, rotary positions, tied but the largest
    "starcoder23b": (30, 3072, 12288, 24, 2, 49152),
    "starcoder27b": (32, 4608, 18432, 36, 4, 49152),
    "starcoder215b": (40, 6144, 24576, 48, 4, 49152),
}
GEMMAS: Mapping[str, tuple[int, int, int, int, int, int]] = {  # RMSNorm, gated GELU, heads of 256, tied
    "gemma2b": (18, 2048, 16384, 8, 1, 256000),
    "gemma7b": (28, 3072, 24576, 16, 16, 256000),
}
MPTS: Mapping[str, tuple[int, int, int, int, int, int]] = {  # llm-foundry, scripts/train/yamls/pretrain/mpt-*.yaml
    "mpt125m": (12, 768, 3072, 12, 12, 50368),
    "mpt350m": (24, 1024, 4096, 16, 16, 50368),
    "mpt760m": (24, 1536, 6144, 12, 12, 50368),
    "mpt1b": (24, 2048, 8192, 16, 16, 50368),
    "mpt3b": (32, 2560, 10240, 20, 20, 50368),
    "mpt7b": (32, 4096, 16384, 32, 32, 50368),
    "mpt13b": (40, 5120, 20480, 40, 40, 50368),
    "mpt30b": (48, 7168, 28672, 56, 56, 50368),
    "mpt70b": (80, 8192, 32768, 64, 64, 50368),
}
