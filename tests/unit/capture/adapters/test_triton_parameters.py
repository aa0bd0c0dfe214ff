"""What a kernel reads and writes, by its parameter names."""

from __future__ import annotations

import dataclasses

from presim.capture.adapters.triton_parameters import read_and_written, without_duplicates


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
