"""What transformers decides from values on the device, which the emulated one has not computed.

Causal models without an attention mask look at their position ids: where a row holds several packed sequences, a mask
of [length, length] replaces the causal attention kernels. Positions that the model itself counted (``arange`` on the
device) read as zeros here, and would pass for packed ones. Those that came from the host are what they are.
"""

from __future__ import annotations

import ctypes
from typing import Any

from presim.capture.after_import import when_imported


def install() -> None:
    """Before the script runs; nothing happens where it does not import transformers."""
    when_imported("transformers.masking_utils", _replace)


def _replace(module: Any) -> None:
    find = module.find_packed_sequence_indices

    def find_packed_sequence_indices(position_ids: Any) -> Any:
        found = find(position_ids)  # asks of the device what it asks there
        counted = found is not None and position_ids.is_cuda and not any(_bytes(position_ids))
        return None if counted else found

    module.find_packed_sequence_indices = find_packed_sequence_indices


def _bytes(tensor: Any) -> bytes:
    """What the emulated device holds, looked at without a copy that the script did not ask for."""
    return ctypes.string_at(tensor.data_ptr(), tensor.nbytes) if tensor.is_contiguous() else b""
