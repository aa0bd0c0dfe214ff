"""What a kernel reads and writes, by the names of its parameters."""

from __future__ import annotations

import dataclasses

from presim.capture.adapters.triton_parameters import each_once, read_and_written


@dataclasses.dataclass
class Tensor:
    """What is asked of one."""

    address: int
    shape: tuple[int, ...] = (4, 8)
    dtype: str = "float32"

    def data_ptr(self) -> int:
        return self.address


ONE, TWO, THREE, FOUR = (Tensor(address) for address in range(4))


def test_what_is_called_an_output_is_written() -> None:
    """Names of Transformer Engine's permutation and of Megatron's rotary embedding."""
    tensors = [("input_ptr", ONE), ("row_id_map_ptr", TWO), ("output_ptr", THREE), ("O_KEY", FOUR)]
    assert read_and_written(tensors) == ([ONE, TWO], [THREE, FOUR])


def test_gradients_of_outputs_are_read_and_what_is_updated_is_both() -> None:
    tensors = [("output_grad_ptr", ONE), ("in_out_ptr0", TWO), ("out_ptr0", THREE)]
    assert read_and_written(tensors) == ([ONE, TWO], [TWO, THREE])


def test_a_tensor_that_has_two_names_moves_once() -> None:
    """Transformer Engine hands its permutation's output over for its buffer, too."""
    tensors = [("input_ptr", ONE), ("output_buf_ptr", TWO), ("output_ptr", TWO)]
    assert each_once(tensors) == [("input_ptr", ONE), ("output_buf_ptr", TWO)]
