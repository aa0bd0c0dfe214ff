"""``accelerate launch``: its options and config file, and variables that it sets for Accelerator (accelerate 1.15)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from presim.capture.launchers.accelerate_config import read_config
from presim.capture.launchers.accelerate_variables import accelerator_variables
from presim.capture.launchers.deepspeed_launcher import deepspeed_variables
from presim.capture.launchers.launch import Launch, Scheme, Shape, Worker, torchrun_variables
from presim.capture.launchers.launcher_options import Grammar, Options, names, parse
from presim.capture.launchers.python import read_program
from presim.errors import InputError

FLAGS = (
    "quiet cpu multi-gpu tpu dynamo-use-fullgraph dynamo-use-dynamic dynamo-use-regional-compilation use-deepspeed "
    "use-fsdp use-parallelism-config use-megatron-lm same-network module no-python tpu-cluster no-tpu-cluster "
    "tpu-use-sudo downcast-bf16 debug enable-cpu-affinity fp8-use-autocast-during-eval"
)
VALUES = (
    "config-file mixed-precision num-processes num-machines num-cpu-threads-per-process dynamo-backend dynamo-mode "
    "gpu-ids machine-rank main-process-ip main-process-port tee log-dir role rdzv-backend rdzv-conf max-restarts "
    "monitor-interval vm env main-training-function mpirun-hostfile deepspeed-config-file zero-stage "
    "offload-optimizer-device offload-param-device offload-optimizer-nvme-path offload-param-nvme-path "
    "gradient-accumulation-steps gradient-clipping zero3-init-flag zero3-save-16bit-model deepspeed-hostfile "
    "deepspeed-exclusion-filter deepspeed-inclusion-filter deepspeed-multinode-launcher deepspeed-moe-layer-cls-names "
    "fsdp-version fsdp-offload-params fsdp-min-num-params fsdp-sharding-strategy fsdp-reshard-after-forward "
    "fsdp-auto-wrap-policy fsdp-transformer-layer-cls-to-wrap fsdp-backward-prefetch fsdp-state-dict-type "
    "fsdp-forward-prefetch fsdp-use-orig-params fsdp-cpu-ram-efficient-loading fsdp-sync-module-states "
    "fsdp-activation-checkpointing fsdp-activation-checkpointing-offload fsdp-ignored-modules "
    "fp8-backend fp8-margin fp8-interval fp8-format fp8-amax-history-len fp8-amax-compute-algo "
    "fp8-override-linear-precision fp8-opt-level fp8-enable-fsdp-float8-all-gather fp8-pad-inner-dim "
    "megatron-lm-tp-degree megatron-lm-use-custom-fsdp megatron-lm-no-load-optim megatron-lm-eod-mask-loss "
    "megatron-lm-overlap-cpu-optimizer-d2h-h2d megatron-lm-no-save-optim megatron-lm-optimizer-cpu-offload "
    "megatron-lm-use-precision-aware-optimizer megatron-lm-decoder-last-pipeline-num-layers megatron-lm-pp-degree "
    "megatron-lm-num-micro-batches megatron-lm-sequence-parallelism megatron-lm-recompute-activations "
    "megatron-lm-use-distributed-optimizer megatron-lm-gradient-clipping megatron-lm-recompute-granularity "
    "megatron-lm-recompute-method megatron-lm-recompute-num-layers megatron-lm-attention-backend "
    "megatron-lm-expert-model-parallel-size megatron-lm-context-parallel-size megatron-lm-attention-dropout "
    "megatron-lm-hidden-dropout megatron-lm-attention-softmax-in-fp32 megatron-lm-expert-tensor-parallel-size "
    "megatron-lm-calculate-per-token-loss megatron-lm-use-rotary-position-embeddings "
    "parallelism-config-dp-replicate-size parallelism-config-dp-shard-size parallelism-config-tp-size "
    "parallelism-config-cp-size parallelism-config-cp-backend parallelism-config-cp-comm-strategy "
    "parallelism-config-sp-size parallelism-config-sp-backend parallelism-config-sp-seq-length "
    "parallelism-config-sp-seq-length-is-variable parallelism-config-sp-attn-implementation"
)
GRAMMAR = Grammar("accelerate launch", names(FLAGS, q="quiet", m="module"), names(VALUES, t="tee"), is_complete=True)
_MODES = ("multi_gpu", "cpu", "tpu", "use_deepspeed", "use_fsdp", "use_megatron_lm")


def read_accelerate(words: Sequence[str]) -> Launch:
    """Parse the options and program after ``accelerate launch``.

    Raises:
        InputError: an option or the config file is invalid.
    """
    options = parse(GRAMMAR, words)
    given_options = {name.replace("-", "_"): values[-1] or "true" for name, values in options.values.items()}
    file_settings, notes = read_config(given_options.get("config_file"))
    settings = _merge_settings(given_options, file_settings)
    if settings.get("cpu") == "true" or settings.get("tpu") == "true":
        raise InputError("accelerate launch on CPUs or TPUs: presim emulates GPUs; leave --cpu and --tpu out")
    launch = Launch(
        options.program[0],
        tuple(options.program[1:]),
        settings.get("module") == "true",
        launcher="accelerate launch",
        shape=_shape(settings),
        default_shape=Shape(nodes=1),
        schemes=(_scheme(settings),),
        local_rank="--local_rank" if _multinode_launcher(settings) == "nossh" else "",
        notes=(*options.notes(), *notes),
    )
    return read_program(options.program, launch) if settings.get("no_python") == "true" else launch


def _merge_settings(given_options: Mapping[str, str], config: Mapping[str, str]) -> dict[str, str]:
    """Merge settings: the command overrides the file, and a mode on the command line replaces the file's mode."""
    mode = any(name in given_options for name in _MODES)
    return {**{name: value for name, value in config.items() if not (mode and name in _MODES)}, **given_options}


def _shape(settings: Mapping[str, str]) -> Shape:
    counts = Options("accelerate launch", {name: [value] for name, value in settings.items()})
    nodes, world = counts.count("num_machines"), counts.count("num_processes")
    if nodes and world and world % nodes:
        raise InputError(
            f"accelerate launch: {world} processes cannot be split evenly over {nodes} machines; correct one of them"
        )
    return Shape(nodes, world // nodes if nodes and world else None, world)


def _multinode_launcher(settings: Mapping[str, str]) -> str:
    """DeepSpeed's multi-node launcher, or an empty string for torchrun."""
    machines = settings.get("num_machines", "1")
    way = settings.get("deepspeed_multinode_launcher", "pdsh")
    return way if settings.get("use_deepspeed") == "true" and machines not in ("", "1") and way != "standard" else ""


def _scheme(settings: Mapping[str, str]) -> Scheme:
    modes = any(settings.get(name) == "true" for name in _MODES)

    def variables(worker: Worker) -> dict[str, str]:
        variable_values = accelerator_variables(settings, is_distributed=modes or worker.world_size > 1)
        if _multinode_launcher(settings):
            return variable_values | deepspeed_variables(worker)
        return variable_values | torchrun_variables(worker) if modes or worker.world_size > 1 else variable_values

    return variables
