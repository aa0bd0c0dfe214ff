"""A Triton kernel whose name is in the table of those that are emulated, and one that torch.compile generates."""

import torch
import triton
import triton.language as tl


@triton.jit
def _get_num_sampled_and_rejected_kernel(
    num_sampled_ptr, num_rejected_ptr, seq_lens_ptr, cu_num_logits_ptr, idx_mapping_ptr, prefill_len_ptr
):
    """With the parameters that vLLM's has; what it would compute plays no part on the emulated device."""
    row = tl.program_id(0)
    tl.store(num_rejected_ptr + row, tl.load(num_sampled_ptr + row))


def counts(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device="cuda")


sampled, rejected = counts([1, 1, 1]), torch.empty(3, dtype=torch.int32, device="cuda")
arguments = (counts([5, 4, 9]), counts([0, 1, 2, 5]), counts([2, 0, 1]), counts([8, 9, 5]))
_get_num_sampled_and_rejected_kernel[(3,)](sampled, rejected, *arguments)
assert sampled.tolist() == [1, 0, 1]  # requests 2, 0, 1 have prompts of 5, 8, 9 tokens, of which 5, 4, 9 are done
assert rejected.tolist() == [0, 0, 2]

unknown = torch.randn(4096, 4096, device="cuda")[0, :3].int()
_get_num_sampled_and_rejected_kernel[(3,)](sampled, rejected, unknown, *arguments[1:])
assert sampled.tolist() == rejected.tolist() == [0, 0, 0]  # one input is not known: the policy answers


@torch.compile
def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits, targets)


value = loss(torch.randn(4096, 1024, device="cuda"), torch.randint(1024, (4096,), device="cuda")).item()
assert value == value
assert abs(value) < float("inf")
print("compiled loss", value)
