"""How much FSDP2 pads the shards of a number of ranks.

``fully_shard`` splits each parameter along its rows, and every rank gets as many rows as the first. With more ranks
than a parameter has rows, each gathers and reduces a row for every rank. Two captures of fewer ranks do not show this.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from presim.errors import InputError
from presim.trace.schema import Kind, Phase, Trace
from presim.trace.signatures import Gemm

_OPERATOR = "FSDP::all_gather_copy_out"  # torch/distributed/fsdp/_fully_shard
_MOST_PADDING = 0.02  # of the bytes of shards: what the law of two sizes may leave out


def padded_share(rows: int, ranks: int) -> float:
    """Rows that ranks gather of a parameter, relative to those that it has.

    >>> padded_share(4096, 1024), padded_share(4096, 16384)
    (1.0, 4.0)
    """
    return -(-rows // ranks) * ranks / rows


def padding(trace: Trace, ranks: int) -> float:
    """Bytes of the shards of linear layers' weights on so many ranks, relative to the weights; 1 without FSDP2."""
    if not any(name.startswith(_OPERATOR) for name in trace.operators):
        return 1.0
    is_forward = trace.mask(Kind.WORK) & (trace.columns["phase"] == int(Phase.FORWARD))
    numbers, counts = np.unique(trace.columns["signature"][is_forward], return_counts=True)
    elements = padded_elements = 0.0
    for number, count in zip(numbers.tolist(), counts.tolist()):
        product = trace.signatures[number]
        if isinstance(product, Gemm) and product.batch == 1 and product.layout == "NT":
            weight = product.n * product.k * count
            elements += weight
            padded_elements += weight * padded_share(product.n, ranks)
    return padded_elements / elements if elements else 1.0


def check_padding(traces: Sequence[Trace], captured_ranks: int, ranks: int, world_size: int) -> None:
    """Check that more ranks pad about as much as those of the capture.

    Raises:
        InputError: they pad more than the law of two sizes may leave out.
    """
    for trace in traces:
        before, after = padding(trace, captured_ranks), padding(trace, ranks)
        if after > before * (1 + _MOST_PADDING):
            raise InputError(
                f"FSDP2 splits parameters by rows, and on {ranks} ranks it pads the weights of linear layers to "
                f"{after:.2f} times their bytes, which captures of fewer ranks do not show; capture the job with "
                f"--world-size {world_size}, which takes about as long as at any size"
            )
