"""Words of ``presim serve`` for a command that starts an engine's server, and what of it is not modelled."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from presim.errors import InputError
from presim.serving.launching.server_commands import ServerCommand
from presim.serving.serving_plan import Kernels
from presim.system.files import FormatError, decode_foreign_json, shortened

# Of vLLM's argparse: lower-case letters are powers of 1,000, capitals of 1,024
_SUFFIXES = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_CACHES = {"auto": "", "bfloat16": "bf16", "bf16": "bf16", "fp8": "fp8", "fp8-e4m3": "fp8", "fp8-e5m2": "fp8"}
_METHODS = {"mtp": "mtp", "eagle": "eagle", "eagle3": "eagle", "ngram": "ngram", "draft-model": "draft"}
_SGLANG_METHODS = {"nextn": "mtp", "mtp": "mtp", "eagle": "mtp", "eagle3": "eagle", "standalone": "draft"}
_SGLANG_METHODS |= {"ngram": "ngram"}
_NUMBERS = {
    "--tensor-parallel-size": "--tp",
    "--tp-size": "--tp",
    "--tp": "--tp",
    "--pipeline-parallel-size": "--pp",
    "--pp-size": "--pp",
    "--pp": "--pp",
    "--decode-context-parallel-size": "--dcp",
    "--max-num-seqs": "--max-num-seqs",
    "--max-running-requests": "--max-num-seqs",
    "--max-batch-size": "--max-num-seqs",
    "--max-num-batched-tokens": "--max-num-batched-tokens",
    "--chunked-prefill-size": "--max-num-batched-tokens",
    "--max-num-tokens": "--max-num-batched-tokens",
    "--max-model-len": "--max-model-len",
    "--context-length": "--max-model-len",
    "--max-seq-len": "--max-model-len",
    "--block-size": "--block-size",
    "--page-size": "--block-size",
    "--num-gpu-blocks-override": "--num-gpu-blocks",
    "--max-loras": "--max-loras",
    "--max-lora-rank": "--lora-rank",
    "--max-cudagraph-capture-size": "--max-cudagraph-capture-size",
    "--cuda-graph-max-bs": "--max-cudagraph-capture-size",
    "--prefill-schedule-interval": "--prefill-schedule-interval",
    "--scheduler-recv-interval": "--scheduler-recv-interval",
}
FLAGS = {
    "--enable-expert-parallel": "--ep",
    "--enable-ep-moe": "--ep",
    "--enforce-eager": "--eager",
    "--language-model-only": "--language-model-only",
    "--disable-cuda-graph": "--eager",
    "--no-async-scheduling": "--no-async",
    "--disable-overlap-schedule": "--no-async",
    "--no-enable-prefix-caching": "--no-prefix-caching",
    "--disable-radix-cache": "--no-prefix-caching",
}
_FRACTIONS = {
    "--gpu-memory-utilization": "--gpu-memory-utilization",
    "--mem-fraction-static": "--gpu-memory-utilization",
}
_WITHOUT_EFFECT = re.compile(
    r"--(?:host|port|uds|api-key|root-path|served-model-name|.*-parser|enable-auto-tool-choice|.*chat-template.*|"
    r"trust-remote-code|(?:random-)?seed|download-dir|load-format|safetensors-.*|tokenizer.*|(?:code-)?revision|"
    r".*log.*|.*metrics.*|(?:override-)?generation-config|allowed-.*|ssl-.*|middleware|"
    r"distributed-executor-backend|model-impl|hf-config-path|config-format|swap-space|backend|nnodes|node-rank|nnode|"
    r"dist-init-addr|master-.*|data-parallel-(?:size-local|address|rpc-port|backend|start-rank|hybrid-lb|external-lb)|"
    r"headless|watchdog-timeout|enable-prefix-caching|enable-chunked-prefill|async-scheduling|enable-lora|lora-modules|"
    r"skip-server-warmup|mm-processor-.*|enable-cache-report|gpu-id-step|base-gpu-id|preferred-sampling-params)$"
)


@dataclasses.dataclass(frozen=True)
class LaunchWords:
    """A command in words of ``presim serve``."""

    model: str
    options: tuple[str, ...]
    unread: tuple[str, ...]  # options of the command that may change times, and are not modelled


def words_of(
    command: ServerCommand,
    model: str | None,
    has_experts: Callable[[str], bool],
    is_quantised: Callable[[str], bool],
) -> LaunchWords:
    """``model``: in place of the command's. ``has_experts``: whether a model has, which decides what its ranks share.

    ``is_quantised``: whether its checkpoint is; to others, an engine's ``--quantization fp8`` applies.

    Raises:
        InputError: the command names no model, or asks for a type or a way of drafting that has no price.
    """
    named = model or command.model
    if named is None:
        raise InputError("--from names no model; name it, or its config.json, as the first word")
    options, unread = dict(command.options), []
    words = ["--kernels", command.engine] if command.engine != "vllm" else []
    words += ["--engine-version", command.version] if command.version else []
    words += _ranks(command.engine, options, lambda: has_experts(named))
    words += _types(options)
    if options.pop("--quantization", "") == "fp8" and not is_quantised(named):
        words += ["--weights", "fp8"]
    words += _drafting(command.engine, options)
    words += _modalities(options)
    for name, value in options.items():
        if name in _NUMBERS:
            words += [_NUMBERS[name], _number(name, value)]
        elif name in _FRACTIONS:
            words += [_FRACTIONS[name], value]
        elif name in FLAGS:
            words += [FLAGS[name]] if value.lower() != "false" else []
        elif name == "--scheduling-policy" and command.engine == "vllm":
            words += ["--policy", value]
        elif not _WITHOUT_EFFECT.match(name):
            unread.append(f"{name} {shortened(value)}".rstrip())
    return LaunchWords(named, tuple(words), tuple(unread))


def _number(name: str, value: str) -> str:
    """A whole number, with the suffixes that vLLM accepts."""
    if name == "--max-model-len" and value in ("auto", "-1"):
        return "auto"
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgKMG]?)", value)
    if match is None:
        raise InputError(f"{name} of --from takes a number, as 8192 or 8k, not {shortened(value)!r}; correct it")
    return f"{float(match[1]) * _SUFFIXES[match[2]]:.0f}"


def _ranks(engine: Kernels, options: dict[str, str], has_experts: Callable[[], bool]) -> list[str]:
    """Data-parallel and expert-parallel ranks, which the engines count differently."""
    words: list[str] = []
    if any(int(_number(name, options.pop(name, "1"))) > 1 for name in ("--ep-size", "--expert-parallel-size", "--ep")):
        words.append("--ep")
    names = ("--data-parallel-size", "--dp-size", "--dp")
    count = max(int(_number(name, options.pop(name, "1"))) for name in names)
    shares_ranks = options.pop("--enable-dp-attention", None) is not None
    if count == 1:
        return words
    if engine == "sglang" and shares_ranks:
        name = next((name for name in ("--tensor-parallel-size", "--tp-size", "--tp") if name in options), None)
        ranks_of_group = int(_number("--tp", options.pop(name))) if name else 1
        if ranks_of_group % count:
            raise InputError(f"--dp-size {count} does not divide --tp-size {ranks_of_group} of --from; correct them")
        return [*words, "--tp", str(ranks_of_group // count), "--dp", str(count)]
    return [*words, "--dp" if engine == "vllm" and has_experts() else "--replicas", str(count)]


def _types(options: dict[str, str]) -> list[str]:
    """Types of numbers and of the cache."""
    cache = options.pop("--kv-cache-dtype", "auto")
    if cache.lower().replace("_", "-") not in _CACHES:
        raise InputError(
            f"--kv-cache-dtype {shortened(cache)} of --from has no price; caches of bf16, fp8 and int8 have: leave it "
            "out, and give --kv"
        )
    number = options.pop("--dtype", "auto")
    if number not in ("auto", "bfloat16", "half", "float16", "bf16", "fp16"):
        raise InputError(f"--dtype {shortened(number)} of --from has no price: engines are priced in 16 bits")
    word = _CACHES[cache.lower().replace("_", "-")]
    return ["--kv", word] if word else []


def _modalities(options: dict[str, str]) -> list[str]:
    """Images and sound of a request: with none at all, vLLM loads no encoder, and other limits change no time."""
    name = "--limit-mm-per-prompt"
    text = " ".join(f"{key} {options.pop(key)}" for key in [*options] if key == name or key.startswith(f"{name}."))
    limits = {modality: int(count) for modality, count in re.findall(r"(image|video|audio)\W+(\d{1,9})", text)}
    is_without_encoder = {"image", "video"} <= limits.keys() and not any(limits.values())
    return ["--language-model-only"] if is_without_encoder else []


def _drafting(engine: Kernels, options: dict[str, str]) -> list[str]:
    """Speculative decoding."""
    if engine == "sglang":
        return _sglang_drafting(options)
    settings = _settings("--speculative-config", options)
    if not settings:
        return []
    written = str(settings.get("method") or ("draft_model" if settings.get("model") else "")).lower().replace("_", "-")
    method = "mtp" if written.endswith("-mtp") else _METHODS.get(written)
    if method is None:
        raise InputError(
            f"drafting by {shortened(written)!r} of --from has no price; those by mtp, eagle, eagle3, ngram and a "
            "draft model have: leave --speculative-config out, and give --speculative"
        )
    words = ["--speculative", method]
    words += ["--draft-model", str(settings["model"])] if method == "draft" else []
    tokens = settings.get("num_speculative_tokens") or settings.get("num-speculative-tokens")
    return [*words, "--draft-tokens", str(tokens)] if tokens else words


def _settings(name: str, options: dict[str, str]) -> Mapping[str, Any]:
    """An option that is JSON, or in dotted parts."""
    dotted = {key.removeprefix(f"{name}."): options.pop(key) for key in [*options] if key.startswith(f"{name}.")}
    text = options.pop(name, "")
    if not text:
        return dotted
    try:
        document = decode_foreign_json(text)
    except FormatError as error:
        raise InputError(f"{name} of --from is no JSON ({error}); correct its quotes") from error
    if not isinstance(document, dict):
        raise InputError(f"{name} of --from is JSON, but no object; correct it")
    return {**document, **dotted}


def _sglang_drafting(options: dict[str, str]) -> list[str]:
    written = options.pop("--speculative-algorithm", "").lower()
    drafter = options.pop("--speculative-draft-model-path", None) or options.pop("--speculative-draft-model", None)
    steps = options.pop("--speculative-num-steps", None)
    verified = options.pop("--speculative-num-draft-tokens", None)
    if options.get("--speculative-eagle-topk") == "1":
        options.pop("--speculative-eagle-topk")
    if not written:
        return []
    method = "eagle" if written == "eagle" and drafter else _SGLANG_METHODS.get(written)
    if method is None:
        raise InputError(
            f"--speculative-algorithm {shortened(written)} of --from has no price; leave it out, and give --speculative"
        )
    words = ["--speculative", method]
    words += ["--draft-model", drafter] if method == "draft" and drafter else []
    tokens = steps or (str(int(_number("--speculative-num-draft-tokens", verified)) - 1) if verified else None)
    return [*words, "--draft-tokens", tokens] if tokens else words
