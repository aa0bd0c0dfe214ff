"""Options with which InferenceMAX's scripts start an engine, by the model, the GPU and the date of a published run.

The scripts are of SemiAnalysisAI/InferenceX, https://github.com/SemiAnalysisAI/InferenceX, folder benchmarks, at the
commit that each entry names: the last one before its runs. A run without a date has the options of the latest script.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

_PAIRS = ((1024, 1024), (1024, 8192), (8192, 1024))  # prompt and output tokens
Row = Mapping[str, str]
Options = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class ScriptLoad:
    """What a script computes its options from."""

    prompt: int
    output: int
    concurrency: int
    tp: int

    @property
    def polling(self) -> int:
        """SGLang's --scheduler-recv-interval, as most of the scripts set it."""
        return 30 if self.concurrency >= 16 else 10


@dataclasses.dataclass(frozen=True)
class Script:
    """One script from a day on, and the fields of a plan that it sets."""

    since: str  # date of the commit
    source: str  # file @ commit
    engine: str
    model: str  # part of a model's name
    gpus: tuple[str, ...]
    weights: tuple[str, ...]  # `gemm_quant` of its rows
    options: Callable[[ScriptLoad], Options]


def _dsr1_fp8(load: ScriptLoad) -> Options:
    tokens = 8192 if load.tp == 4 else 32768
    interval = 10 if load.tp == 4 else load.polling
    return {
        "cache": "fp8",
        "prefix_caching": False,
        "fp8_products": "flashinfer",
        "scheduler_recv_interval": interval,
        "max_num_batched_tokens": tokens,
        "max_prefill_tokens": tokens,
        "max_num_seqs": 32 if load.tp == 4 else 128,
        "gpu_memory_utilization": 0.95 if load.tp == 4 else 0.82,
    }


def _dsr1_fp4(load: ScriptLoad) -> Options:
    return {
        "cache": "fp8",
        "prefix_caching": False,
        "scheduler_recv_interval": load.polling,
        "max_num_batched_tokens": 16384,
        "max_num_seqs": 256,
        "gpu_memory_utilization": 0.85,
    }


def _glm5_fp8_b200(load: ScriptLoad) -> Options:
    return {
        "cache": "fp8",
        "prefix_caching": False,
        "max_num_seqs": load.concurrency,
        "max_num_batched_tokens": 32768,
        "max_prefill_tokens": 32768,
        "gpu_memory_utilization": 0.85,
    }


def _glm5_fp4_b200(load: ScriptLoad) -> Options:
    return {"max_num_seqs": load.concurrency, "max_num_batched_tokens": 131072, "gpu_memory_utilization": 0.8}


def _glm5_h200(load: ScriptLoad) -> Options:
    return {"gpu_memory_utilization": 0.85}


def _qwen35(load: ScriptLoad) -> Options:
    return {
        "prefix_caching": False,
        "fp8_products": "flashinfer",
        "scheduler_recv_interval": load.polling,
        "max_num_seqs": 128,
        "max_num_batched_tokens": 32768,
        "max_prefill_tokens": 32768,
        "gpu_memory_utilization": 0.82,
    }


def _qwen35_fp8(load: ScriptLoad) -> Options:
    return {
        "cache": "fp8",
        "prefix_caching": False,
        "scheduler_recv_interval": 10,
        "max_num_seqs": load.concurrency,
        "max_num_batched_tokens": 16384,
        "max_prefill_tokens": 16384,
        "gpu_memory_utilization": 0.8,
    }


def _minimax(load: ScriptLoad) -> Options:
    return {
        "cache": "fp8",
        "prefix_caching": False,
        "max_num_batched_tokens": 2 * load.prompt,
        "graph_tokens": 2048,
        "gpu_memory_utilization": 0.9,
    }


def _gpt_oss_b200(load: ScriptLoad) -> Options:
    return {
        "cache": "fp8",
        "prefix_caching": False,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 512,
        "graph_tokens": 2048,
        "gpu_memory_utilization": 0.9,
    }


def _gpt_oss_h200(load: ScriptLoad) -> Options:
    return {
        "prefix_caching": False,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": load.concurrency,
        "graph_tokens": 2048,
        "gpu_memory_utilization": 0.9,
    }


def _llama_70b(load: ScriptLoad) -> Options:
    return {"cache": "fp8", "prefix_caching": False, "max_num_batched_tokens": 8192, "max_num_seqs": 512}


def _gpt_oss_trtllm(load: ScriptLoad) -> Options:
    return {"cache": "fp8", "prefix_caching": False, "max_num_batched_tokens": 20000, "max_num_seqs": 512}


def _dsr1_trtllm(load: ScriptLoad) -> Options:
    tokens = -(-(load.concurrency + load.prompt + 64) // 64) * 64
    return {"cache": "fp8", "prefix_caching": False, "max_num_batched_tokens": tokens}


def _dsr1_trtllm_2026(load: ScriptLoad) -> Options:
    options = _dsr1_trtllm(load)
    return {**options, "max_num_batched_tokens": max(options["max_num_batched_tokens"], 8192)}


_R1 = "DeepSeek"
SCRIPTS = (
    Script("2025-09-12", "dsr1_fp8_b200_docker.sh @ d8fe8f73e", "sglang", _R1, ("B200", "B300"), ("fp8",), _dsr1_fp8),
    Script("2025-09-12", "dsr1_fp4_b200_docker.sh @ d8fe8f73e", "sglang", _R1, ("B200", "B300"), ("nvfp4",), _dsr1_fp4),
    Script("2026-03-20", "single_node/glm5_fp8_b200.sh @ 13930ca61", "sglang", "GLM-5", ("B200",), ("fp8",),
           _glm5_fp8_b200),
    Script("2026-04-02", "single_node/glm5_fp4_b200.sh @ 800f57aaf", "sglang", "GLM-5", ("B200",), ("nvfp4",),
           _glm5_fp4_b200),
    Script("2026-03-18", "single_node/glm5_fp8_h200.sh @ ebb48d4bc", "sglang", "GLM-5", ("H200",), ("fp8",),
           _glm5_h200),
    Script("2026-03-27", "single_node/qwen3.5_fp8_b200.sh @ 626932a11", "sglang", "Qwen3.5", ("B200", "B300"),
           ("fp8", "nvfp4"), lambda load: {**_qwen35(load), "cache": "fp8"}),
    Script("2026-04-17", "single_node/qwen3.5_bf16_b300.sh @ 32274d6c1", "sglang", "Qwen3.5", ("B200", "B300"),
           ("", "bf16"), _qwen35),
    Script("2026-04-17", "single_node/qwen3.5_fp8_b300.sh @ c0f62a2ef", "sglang", "Qwen3.5", ("B300",), ("fp8",),
           _qwen35_fp8),
    Script("2026-04-17", "single_node/qwen3.5_fp4_b300.sh @ 8acbd08b7", "sglang", "Qwen3.5", ("B300",), ("nvfp4",),
           lambda load: {**_qwen35(load), "cache": "fp8", "gpu_memory_utilization": 0.8}),
    Script("2026-03-11", "single_node/minimaxm2.5_fp8_b200.sh @ 64c20b6b5", "vllm", "MiniMax-M2", ("B200",), ("fp8",),
           lambda load: {"gpu_memory_utilization": 0.95}),
    Script("2026-04-03", "single_node/minimaxm2.5_fp8_b200.sh @ bddbf4031", "vllm", "MiniMax-M2", ("B200", "B300"),
           ("fp8", "nvfp4"), _minimax),
    Script("2026-03-27", "single_node/minimaxm2.5_fp8_h100.sh @ 626932a11", "vllm", "MiniMax-M2", ("H100", "H200"),
           ("fp8",), lambda load: {"prefix_caching": False, "max_num_seqs": 256, "gpu_memory_utilization": 0.9}),
    Script("2025-10-01", "gptoss_fp4_b200_docker.sh @ 4b860b78e", "vllm", "gpt-oss", ("B200", "B300"),
           ("nvfp4", "mxfp4"), _gpt_oss_b200),
    Script("2025-10-29", "gptoss_fp4_h200_slurm.sh @ 9596d23d7", "vllm", "gpt-oss", ("H100", "H200"),
           ("nvfp4", "mxfp4"), _gpt_oss_h200),
    Script("2025-10-01", "70b_fp8_b200_docker.sh @ 4b860b78e", "vllm", "70B", ("B200",), ("fp8", "nvfp4"), _llama_70b),
    Script("2025-12-17", "gptoss_fp4_b200_trt_docker.sh @ 156fef3fc", "trtllm", "gpt-oss", ("B200", "H200"),
           ("nvfp4", "mxfp4"), _gpt_oss_trtllm),
    Script("2025-10-29", "dsr1_fp8_b200_trt_slurm.sh @ 9596d23d7", "trtllm", _R1, ("B200", "H200"), ("fp8", "nvfp4"),
           _dsr1_trtllm),
    Script("2026-01-29", "dsr1_fp8_b200_trt.sh @ ec7bafaae", "trtllm", _R1, ("B200", "H200"), ("fp8", "nvfp4"),
           _dsr1_trtllm_2026),
)  # fmt: skip


def is_of_inferencemax(row: Row) -> bool:
    """Whether a row is of InferenceMAX: it has the date of a database dump and one of its three pairs of lengths."""
    dump = re.search(r"(db-dump/|source_file=)20\d\d-\d\d-\d\d", row.get("note", ""))
    return dump is not None and _lengths(row) in _PAIRS


def options_of(row: Row, engine: str, tp: int) -> Options:
    """The fields of a plan that the script of a row's run sets; none for a run of somebody else, or of no script here.

    ``engine``: vllm, sglang or trtllm; ``tp``: tensor-parallel ranks of one engine.
    """
    if row.get("mode") == "disagg" or not is_of_inferencemax(row):
        return {}
    scripts = [script for script in SCRIPTS if _fits(script, row, engine)]
    date = re.search(r"measured=(20\d\d-\d\d-\d\d)", row.get("note", ""))
    earlier = [script for script in scripts if date is None or script.since <= date[1]] or scripts[:1]
    if not earlier:
        return {}
    prompt, output = _lengths(row)
    script = max(earlier, key=lambda script: script.since)
    return script.options(ScriptLoad(prompt, output, int(float(row.get("concurrency") or 0)), tp))


def _fits(script: Script, row: Row, engine: str) -> bool:
    names_gpu = any(gpu in row.get("gpu", "") and f"G{gpu}" not in row.get("gpu", "") for gpu in script.gpus)
    has_type = row.get("gemm_quant", "") in script.weights
    return script.engine == engine and names_gpu and has_type and script.model.lower() in row.get("model", "").lower()


def _lengths(row: Row) -> tuple[int, int]:
    return int(float(row.get("isl") or 0)), int(float(row.get("osl") or 0))
