"""Fine-tuning by Megatron's family: adapters, packed samples, how NeMo's launcher trained all weights of a model."""

from __future__ import annotations

import dataclasses

from presim.studies.validation.cases import Case
from presim_study.megatron_family import mlperf, tuned


@dataclasses.dataclass(frozen=True)
class Adapters:
    """LoRA: the rank, and the linear layers that have one."""

    rank: int
    targets: tuple[str, ...]


def adapters(case: Case) -> Adapters | None:
    """MLPerf's have rank 16 on all of attention; NeMo's and Bridge's performance recipes on the joint projection."""
    if "lora" not in f"{case.text('model')} {case.text('sharding')}".lower():
        return None
    return Adapters(16, ("linear_qkv", "linear_proj") if mlperf.is_one(case) else ("linear_qkv",))


def completed(case: Case) -> Case:
    """NeMo's fine-tuning in pipelines, whose tables have no column for virtual stages, with those of its launcher.

    Each layer is one where all weights are trained, and adapters have none: NeMo-Framework-Launcher,
    ``examples/peft/llama/h100`` (``70b_2node.sh``, ``13b_1node.sh``, ``70b_1node_lora.sh``).
    """
    if not _is_launched(case) or case.text("vp") or case.count("pp", 1) == 1 or adapters(case):
        return case
    return Case({**case.row, "vp": str(case.count("n_layers") // case.count("pp"))})


def halves_state(case: Case) -> bool:
    """The optimizer's state and copy of the weights in bf16: the launcher's ``peft/llama/sft.yaml``."""
    return _is_launched(case) and not adapters(case)


_SAMPLE = 256  # tokens of one of SQuAD's samples, as long as attention over all of them asks for; a round figure


def packed(case: Case) -> int:
    """Samples in each sequence of Bridge's and NeMo's fine-tuning (SQuAD, packed); 0 where they are not apart.

    Each attends to itself alone. MLPerf's LoRA packs its documents, too, and attends to the whole.
    """
    tuned_on = tuned.is_tuned(case) and not mlperf.is_one(case)
    kind = f"{case.text('model')} {case.text('sharding')}".lower()
    if not tuned_on or not any(word in kind for word in ("lora", "sft")) or case.count("micro_batch", 1) > 1:
        return 0
    return case.count("seq_len") // _SAMPLE if case.count("seq_len") % _SAMPLE == 0 else 0


def _is_launched(case: Case) -> bool:
    """Fine-tuning of NeMo's tables up to 24.09, which NeMo-Framework-Launcher ran; later ones are NeMo 2's."""
    is_tuning = "[SFT]" in case.text("model") or adapters(case) is not None
    is_one = case.text("framework").startswith("NeMo (Megatron") and "24.0" in case.text("framework_version")
    return is_tuning and is_one
