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


@triton.jit
def halve(result, scratch, source, rows):
    """None of its parameters has a name that says what it is for; the second is moved on by a loop."""
    place = tl.program_id(0)
    at = scratch + place
    for _ in range(rows):
        tl.store(at, place)
        at += 1
    tl.store(result + place, tl.load(source + place) / 2)


before, scratch, source = torch.ones(3, device="cuda"), counts([7] * 6), torch.full((3,), 4.0, device="cuda")
halve[(3,)](before, scratch, source, 3)
assert before.tolist() == [0.5] * 3  # not what it held before: nobody knows, and the policy answers
assert scratch.tolist() == [0] * 6
assert source.tolist() == [4.0] * 3

graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
with torch.cuda.graph(graph, stream=stream):
    _get_num_sampled_and_rejected_kernel[(3,)](sampled, rejected, *arguments)
    total = rejected.sum()
for prompts, expected in (([8, 9, 5], [0, 0, 2]), ([8, 10, 5], [0, 0, 0]), ([1, 1, 1], [0, 0, 2])):
    sampled.fill_(1)
    arguments[3].copy_(torch.tensor(prompts, dtype=torch.int32))
    graph.replay()
    assert rejected.tolist() == expected, (rejected, expected)  # requests 2, 0, 1, with this replay's values
    assert total.item() == sum(expected)


@torch.compile
def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(logits, targets)


value = loss(torch.randn(4096, 1024, device="cuda"), torch.randint(1024, (4096,), device="cuda")).item()
assert value == value
assert abs(value) < float("inf")
print("compiled loss", value)
