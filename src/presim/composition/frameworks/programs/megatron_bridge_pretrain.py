"""Pretrain a Hugging Face model with Megatron-Bridge: its models, mixed precision and training loop.

Each sample is the same, so that loading takes no time.

Arguments: a config.json, options of this script, and Bridge's own overrides as ``model.num_layers=4``. The settings are
those of Bridge's performance scripts: no checkpoints, evaluation or checks for NaN; fused RoPE and cross-entropy.
"""

from __future__ import annotations

import argparse
import functools
import json
from dataclasses import dataclass
from pathlib import Path

import mamba_extensions
import megatron_layers
import torch
import transformers

megatron_layers.install_weight_gradient_fusion()
mamba_extensions.install_extensions()

import megatron.bridge.training.initialize as bridge_initialize  # noqa: E402 - they look for the fusion when imported
import megatron_adapters  # noqa: E402
import megatron_grouped_mlp  # noqa: E402
import megatron_models  # noqa: E402
import megatron_overlap  # noqa: E402
import megatron_prediction  # noqa: E402
import packed_samples  # noqa: E402
from megatron.bridge.training.comm_overlap import CommOverlapConfig  # noqa: E402
from megatron.bridge.training.config import (  # noqa: E402
    CheckpointConfig,
    ConfigContainer,
    DatasetProvider,
    DistributedDataParallelConfig,
    DistributedInitConfig,
    LoggerConfig,
    OptimizerConfig,
    RerunStateMachineConfig,
    RNGConfig,
    SchedulerConfig,
    TokenizerConfig,
    TrainingConfig,
)
from megatron.bridge.training.gpt_step import forward_step  # noqa: E402
from megatron.bridge.training.mixed_precision import get_mixed_precision_config  # noqa: E402
from megatron.bridge.training.pretrain import pretrain  # noqa: E402
from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from stage_layout import read_chunks  # noqa: E402
from transformers import CONFIG_MAPPING, PretrainedConfig  # noqa: E402
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES  # noqa: E402


class _Sample(torch.utils.data.Dataset):
    """One sample, as often as asked for."""

    def __init__(self, sequence: int, count: int) -> None:
        tokens = torch.ones(sequence, dtype=torch.int64)
        self.sample = {
            "tokens": tokens,
            "labels": tokens,
            "loss_mask": torch.ones(sequence),
            "position_ids": torch.arange(sequence),
        }
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return self.sample


@dataclass
class EqualSamples(DatasetProvider):
    """Data for training alone."""

    seq_length: int = 4096
    packed_samples: int = 1  # in each sequence, of equal length; each attends to itself alone

    def build_datasets(self, context):
        """For training, validation and tests."""
        return _Sample(self.seq_length, context.train_samples), None, None


def parse() -> argparse.Namespace:
    """The model, and what Bridge has no field for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path, help="config.json of the model")
    parser.add_argument("overrides", nargs="*", metavar="FIELD=VALUE", help="of Bridge's ConfigContainer")
    parser.add_argument("--mixed-precision", default="bf16_mixed", help="name of one of Bridge's settings")
    parser.add_argument("--tp-overlap", action="store_true", help="as with userbuffers; see megatron_overlap")
    parser.add_argument("--grouped-mlp", action="store_true", help="experts in one kernel; see megatron_grouped_mlp")
    parser.add_argument("--chunks", help="layers that each chunk of the pipeline keeps, as 0:4,4:8; see stage_layout")
    parser.add_argument("--steps", type=int, default=100)
    return parser.parse_args()


def hugging_face_config(path: Path) -> PretrainedConfig:
    """The config, also with the fields that Transformers moved since Bridge was written.

    A type of its own may stand for another model's architecture, as Kimi K2's for DeepSeek-V3's.
    """
    fields = {name: value for name, value in json.loads(path.read_text()).items() if not name.startswith("_")}
    model_type = fields.get("model_type")
    if model_type not in CONFIG_MAPPING:
        known_types = {name: type_name for type_name, name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()}
        model_type = next((known_types[name] for name in fields.get("architectures", ()) if name in known_types), None)
    if model_type is None:
        raise ValueError(f"transformers {transformers.__version__} has no model_type {fields.get('model_type')!r}")
    config = CONFIG_MAPPING[model_type](**{**fields, "model_type": model_type})
    rope = getattr(config.get_text_config(), "rope_parameters", None) or {}
    if not hasattr(config, "rope_theta") and "rope_theta" in rope:
        config.rope_theta = rope["rope_theta"]
    return config


def configure(options: argparse.Namespace) -> ConfigContainer:
    """Bridge's configuration, with the overrides."""
    source = hugging_face_config(options.config)
    model = megatron_models.provider_of(source)
    model.apply_rope_fusion = True
    model.cross_entropy_loss_fusion = True
    model.cross_entropy_fusion_impl = "te"
    model.gradient_accumulation_fusion = True
    config = ConfigContainer(
        model=model,
        train=TrainingConfig(
            train_iters=options.steps,
            eval_iters=0,
            global_batch_size=32,
            micro_batch_size=1,
            manual_gc=True,
            manual_gc_interval=100,
        ),
        optimizer=OptimizerConfig(
            optimizer="adam",
            lr=3e-4,
            min_lr=3e-5,
            weight_decay=0.1,
            adam_beta2=0.95,
            clip_grad=1.0,
            bf16=True,
            use_distributed_optimizer=True,
        ),
        scheduler=SchedulerConfig(
            start_weight_decay=0.1, end_weight_decay=0.1, lr_decay_style="cosine", lr_warmup_iters=1
        ),
        ddp=DistributedDataParallelConfig(
            check_for_nan_in_grad=False,
            grad_reduce_in_fp32=True,
            overlap_grad_reduce=True,
            overlap_param_gather=True,
            average_in_collective=True,
            use_distributed_optimizer=True,
        ),
        dataset=EqualSamples(dataloader_type="single", num_workers=0, pin_memory=False),
        logger=LoggerConfig(log_interval=10),
        tokenizer=TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=source.get_text_config().vocab_size),
        checkpoint=CheckpointConfig(save=None, load=None, ckpt_format="torch_dist"),
        rng=RNGConfig(seed=1234),
        dist=DistributedInitConfig(),
        rerun_state_machine=RerunStateMachineConfig(check_for_nan_in_loss=False),
        comm_overlap=CommOverlapConfig(tp_comm_overlap=False),  # pipelines and data parallelism as Bridge overlaps them
        mixed_precision=get_mixed_precision_config(options.mixed_precision),
    )
    process_config_with_overrides(config, cli_overrides=megatron_adapters.with_adapters(config, options.overrides))
    config.dataset.seq_length = config.model.seq_length
    if options.chunks:
        megatron_models.keep_chunks(config.model, *read_chunks(options.chunks))
    megatron_models.balance_stages(config.model)
    if config.model.vocab_size % config.model.tensor_model_parallel_size:
        config.model.vocab_size = None  # the tokenizer's, padded
    return config


def with_overlap(step):
    """The forward step; exchanges of tensor parallelism run beside products from its first call on."""
    is_installed = False

    @functools.wraps(step)  # Bridge passes its state to steps whose signature asks for it
    def overlapped_step(*arguments, **settings):
        nonlocal is_installed
        if not is_installed:
            is_installed = True
            megatron_overlap.install(parallel_state.get_tensor_model_parallel_group())
        return step(*arguments, **settings)

    return overlapped_step


def main() -> None:
    """Train."""
    options = parse()
    # Bridge compiles helpers of datasets at every start; wheels of Megatron-core bring them compiled, without sources.
    bridge_initialize.compile_helpers = lambda: None
    megatron_layers.install_flash_attention()
    megatron_layers.install_router_product()
    if options.grouped_mlp:
        megatron_grouped_mlp.install()
    config = configure(options)
    megatron_prediction.install(config.model)
    if config.dataset.packed_samples > 1:
        packed_samples.attend_apart(config.dataset.packed_samples)
    pretrain(config, with_overlap(forward_step) if options.tp_overlap else forward_step)


if __name__ == "__main__":
    main()
