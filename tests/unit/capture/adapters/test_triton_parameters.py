"""What a kernel reads and writes, by its parameter names."""

from __future__ import annotations

import dataclasses

from presim.capture.adapters.triton_parameters import most_loaded, read_and_written, without_duplicates


@dataclasses.dataclass
class Tensor:
    """The attributes used of a tensor."""

    address: int
    shape: tuple[int, ...] = (4, 8)
    dtype: str = "float32"

    def data_ptr(self) -> int:
        return self.address


ONE, TWO, THREE, FOUR = (Tensor(address) for address in range(4))


def test_parameters_named_like_outputs_are_written() -> None:
    """Names from Transformer Engine's permutation and Megatron's rotary embedding."""
    tensors = [("input_ptr", ONE), ("row_id_map_ptr", TWO), ("output_ptr", THREE), ("O_KEY", FOUR)]
    assert read_and_written(tensors) == ([ONE, TWO], [THREE, FOUR])


def test_gradients_of_outputs_are_read_and_updated_tensors_are_both() -> None:
    tensors = [("output_grad_ptr", ONE), ("in_out_ptr0", TWO), ("out_ptr0", THREE)]
    assert read_and_written(tensors) == ([ONE, TWO], [TWO, THREE])


def test_a_tensor_with_two_names_moves_once() -> None:
    """Transformer Engine passes its permutation's output also as its buffer."""
    tensors = [("input_ptr", ONE), ("output_buf_ptr", TWO), ("output_ptr", TWO)]
    assert without_duplicates(tensors) == [("input_ptr", ONE), ("output_buf_ptr", TWO)]


GATHER = """
def triton_red_fused_embedding_rms_norm_0(in_ptr0, in_ptr1, in_ptr2, out_ptr0, xnumel, r0_numel, XBLOCK, R0_BLOCK):
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        tmp3 = tl.load(in_ptr1 + (r0_1 + 4096*tmp0), r0_mask & xmask, other=0.0).to(tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        tmp9 = tl.load(in_ptr1 + (r0_1 + 4096*tmp0), r0_mask & xmask, other=0.0).to(tl.float32)
        tmp18 = tl.load(in_ptr2 + (r0_1), r0_mask, other=0.0)
        tl.store(out_ptr0 + (r0_1 + 4096*x0), tmp9 * tmp18, r0_mask & xmask)
"""


def test_a_generated_kernel_reads_of_a_table_what_it_loads() -> None:
    """Each load runs once for each element that the kernel iterates over; the embedding is loaded in two passes."""
    found = most_loaded(GATHER, {"xnumel": 8, "r0_numel": 4096})
    assert found["in_ptr1"] == 2 * 8 * 4096
    assert found["in_ptr2"] == 8 * 4096
    assert "out_ptr0" not in found


def test_nothing_is_said_of_kernels_that_are_not_generated_or_of_unknown_size() -> None:
    assert most_loaded(GATHER, {"xnumel": 8}) == {}
    assert most_loaded(GATHER.replace("triton_red", "my"), {"xnumel": 8, "r0_numel": 4096}) == {}
    assert most_loaded("def (", {}) == {}
