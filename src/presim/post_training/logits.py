"""What a framework's own code does to the logits of a micro-batch, beyond a composed step's cross-entropy.

A vocabulary is large, and log-probabilities and their entropy pass over fp32 logits many times. A composed step copies
logits to fp32 (2 + 4 bytes of each), takes their log-softmax (4 + 4), and as much in the backward pass (12 + 6).
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from presim.cost.chain import Chain
from presim.hardware import Cluster
from presim.trace.schema import Group
from presim.trace.signatures import Elementwise, Gemm, Signature

LogitsCode = Literal["composed", "verl-megatron", "nemo-rl-megatron"]
_COMPOSED_FORWARD, _COMPOSED_UPDATE = 14, 32
_SAMPLE_TOKENS = 8192
_SAMPLE_LOGITS = 1 << 28  # enough that a kernel's start does not count


@dataclasses.dataclass(frozen=True)
class LogitsTraffic:
    """Bytes read and written for each logit of a GPU."""

    old: int = _COMPOSED_FORWARD  # log-probabilities of the policy, with what else is logged of them
    reference: int = _COMPOSED_FORWARD
    update: int = _COMPOSED_UPDATE  # forward and backward


# bf16 to fp32 moves 6 bytes, a pass in place or into a copy 8, a reduction 4.
TRAFFIC: dict[LogitsCode, LogitsTraffic] = {
    "composed": LogitsTraffic(),
    # verl/utils/megatron/tensor_parallel.py and workers/actor/megatron_actor.py, commit 8fdc4d3: to fp32 (6), division
    # by the temperature (8), Megatron's vocab_parallel_cross_entropy (maximum 4, difference 8, exponential 8, sum 4,
    # quotient 8); for the entropy a copy of the logits (8) and vocab_parallel_entropy (40); backward 22.
    "verl-megatron": LogitsTraffic(old=94, reference=46, update=68),
    # nemo_rl/distributed/model_utils.py, commit 7ea279ab, DistributedLogprob: to fp32 (6), maximum (4), difference (8),
    # exponential (8), sum (4), difference (8); an update keeps the softmax (8), negates and scales it (16), and returns
    # to bf16 (6).
    "nemo-rl-megatron": LogitsTraffic(old=38, reference=38, update=68),
}


@dataclasses.dataclass(frozen=True)
class LogitsSeconds:
    """Seconds for each logit of a GPU beyond those of a composed step."""

    old: float = 0.0
    reference: float = 0.0
    update: float = 0.0

    def scaled(self, factor: float) -> LogitsSeconds:
        """So many logits."""
        return LogitsSeconds(self.old * factor, self.reference * factor, self.update * factor)


@dataclasses.dataclass(frozen=True)
class HeadSeconds:
    """Seconds of the product with the vocabulary and of the cross-entropy, which a critic has not."""

    forward_s: float = 0.0
    update_s: float = 0.0

    def scaled(self, factor: float) -> HeadSeconds:
        """So many tokens."""
        return HeadSeconds(self.forward_s * factor, self.update_s * factor)


def head_seconds(hidden: int, vocabulary: int, cluster: Cluster) -> HeadSeconds:
    """Seconds of the output layer for each token, on one GPU, in composed steps."""
    product_s = _seconds(Gemm(_SAMPLE_TOKENS, vocabulary, hidden, 1, "bfloat16", layout="NT"), cluster) / _SAMPLE_TOKENS
    byte_s = _byte_s(cluster)
    return HeadSeconds(
        product_s + _COMPOSED_FORWARD * vocabulary * byte_s, 3 * product_s + _COMPOSED_UPDATE * vocabulary * byte_s
    )


def _byte_s(cluster: Cluster) -> float:
    """Seconds for each byte that a large elementwise kernel moves."""
    size_bytes = 4 * _SAMPLE_LOGITS
    kernel = Elementwise(size_bytes, size_bytes, _SAMPLE_LOGITS, "float32", 1, "aten::div_")
    return _seconds(kernel, cluster) / (2 * size_bytes)


def _seconds(kernel: Signature, cluster: Cluster) -> float:
    prices, _ = Chain.default(cluster).price_all([kernel], [Group("alone", (0,), 1)], cluster)
    return float(prices[0].duration_ns) / 1e9


def logits_seconds(code: LogitsCode, cluster: Cluster) -> LogitsSeconds:
    """Seconds of a framework's code for each logit of a GPU, at the rate of large elementwise kernels."""
    traffic = TRAFFIC[code]
    byte_s = _byte_s(cluster)
    return LogitsSeconds(
        (traffic.old - _COMPOSED_FORWARD) * byte_s,
        (traffic.reference - _COMPOSED_FORWARD) * byte_s,
        (traffic.update - _COMPOSED_UPDATE) * byte_s,
    )
