"""Results of the emulated Triton kernels of vLLM's V2 runner, on CPU tensors."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import emulated

pytestmark = pytest.mark.torch_cuda

CODE = """
from types import SimpleNamespace
import torch
from presim.capture.adapters import vllm_kernels
from presim.capture.device_values.triton import TABLE

def ints(*values):
    return torch.tensor(values, dtype=torch.int32)

def emulate(kernel, **parameters):
    a = SimpleNamespace(**parameters)
    TABLE[kernel].compute(a)
    return a

# Two of three slots are in the batch: request 2 with 4 tokens of its prompt of 6, request 0 with one after its prompt.
batch = dict(idx_mapping_ptr=ints(2, 0), query_start_loc_ptr=ints(0, 4, 5))
a = emulate("_prepare_pos_seq_lens_kernel", **batch, num_computed_tokens_ptr=ints(7, 0, 0),
            pos_ptr=torch.zeros(8, dtype=torch.int64), seq_lens_ptr=ints(9, 9, 9))
results["lengths"], results["positions"] = a.seq_lens_ptr.tolist(), a.pos_ptr[:5].tolist()

a = emulate("_get_num_sampled_and_rejected_kernel", idx_mapping_ptr=batch["idx_mapping_ptr"],
            seq_lens_ptr=ints(4, 8, 0), prefill_len_ptr=ints(7, 1, 6), cu_num_logits_ptr=ints(0, 1, 4),
            num_sampled_ptr=ints(1, 2), num_rejected_ptr=ints(-1, -1))
results["sampled"], results["rejected"] = a.num_sampled_ptr.tolist(), a.num_rejected_ptr.tolist()

a = emulate("_post_update_kernel", **batch, num_sampled_ptr=a.num_sampled_ptr, num_rejected_ptr=a.num_rejected_ptr,
            num_computed_tokens_ptr=ints(7, 0, 0), last_sampled_tokens_ptr=torch.zeros(3, 1, dtype=torch.int64),
            total_len_ptr=ints(8, 0, 6),
            sampled_tokens_ptr=torch.tensor([[5, 0, 0], [6, 7, 0]]))
results["computed"], results["total"] = a.num_computed_tokens_ptr.tolist(), a.total_len_ptr.tolist()
results["last"] = a.last_sampled_tokens_ptr.flatten().tolist()

a = emulate("_post_update_num_computed_tokens_kernel", **batch, num_computed_tokens_ptr=ints(7, 0, 0))
results["further"] = a.num_computed_tokens_ptr.tolist()

a = emulate("_expand_idx_mapping_kernel", idx_mapping_ptr=batch["idx_mapping_ptr"], cu_num_logits_ptr=ints(0, 1, 4),
            expanded_idx_mapping_ptr=ints(0, 0, 0, 0), expanded_local_pos_ptr=ints(9, 9, 9, 9))
results["expanded"] = [a.expanded_idx_mapping_ptr.tolist(), a.expanded_local_pos_ptr.tolist()]

a = emulate("_apply_write_kernel", output_ptr=torch.zeros(3, 4, dtype=torch.int32), write_indices_ptr=ints(2, 0),
            write_starts_ptr=ints(1, 0), write_contents_ptr=ints(5, 6, 7), write_cu_lens_ptr=ints(2, 3))
results["written"] = a.output_ptr.tolist()
"""


def test_counters_advance_as_on_a_gpu(tmp_path: Path) -> None:
    emulated.require_cuda_torch()
    results = emulated.run(CODE, tmp_path).results
    assert results["lengths"] == [4, 8, 0]
    assert results["positions"] == [0, 1, 2, 3, 7]
    assert results["sampled"] == [0, 2]  # the prompt of the first is not done
    assert results["rejected"] == [0, 1]
    assert results["computed"] == [7, 0, 4]  # one token queried and one rejected; four queried
    assert results["total"] == [10, 0, 6]
    assert results["last"] == [7, 0, 0]
    assert results["further"] == [8, 0, 4]
    assert results["expanded"] == [[2, 0, 0, 0], [0, 0, 1, 2]]
    assert results["written"] == [[7, 0, 0, 0], [0, 0, 0, 0], [0, 5, 6, 0]]
