"""Elementwise kernels that access operands one by one are told by their names, in captures and in profiles."""

from __future__ import annotations

import pytest

from presim.capture.reading.classify import classify_launch
from presim.capture.reading.launch_operators import LaunchingOperator, parse_operator
from presim.capture.reading.log import Descriptor, parse
from presim.capture.reading.pointwise_kernels import element_operands
from presim.trace.signatures import Elementwise, Reduction

STRIDED = "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocast"
CASTING = "_ZN2at6native27unrolled_elementwise_kernelIZZZNS0_23direct_copy_kernel_cuda"
VECTORISED = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_add"
BY_INDEX = "_ZN2at6native24index_elementwise_kernelILi128ELi4E"
IN_PROFILE = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast"


def operator(name: str, inputs: str, outputs: str) -> LaunchingOperator:
    return parse_operator(parse(f"op name=aten::{name} in={inputs} out={outputs} args="))


def launch(kernel: str) -> Descriptor:
    return Descriptor("kernel", {"name": kernel, "grid": "1,1,1", "block": "128,1,1"})


MUL = operator("mul", "BFloat16[8;64],BFloat16[8;1]", "BFloat16[8;64]")


@pytest.mark.parametrize(
    ("kernel", "fields"),
    [
        (STRIDED, {"strided_operands": 3}),
        (IN_PROFILE, {"strided_operands": 3}),
        (CASTING, {"cast_operands": 3}),
        (VECTORISED, {}),
        (BY_INDEX, {}),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::elementwise", {}),
    ],
)
def test_the_kernel_s_name_tells_how_operands_are_accessed(kernel: str, fields: dict[str, int]) -> None:
    assert element_operands(launch(kernel), MUL) == fields


def test_a_number_on_the_host_and_an_overwritten_tensor_are_not_accessed() -> None:
    by_number = operator("mul", "BFloat16[8;64],cpu:Double[]", "BFloat16[8;64]")
    copy = operator("copy_", "Float[8;64],BFloat16[8;64]", "Float[8;64]")
    assert element_operands(launch(STRIDED), by_number) == {"strided_operands": 2}
    assert element_operands(launch(CASTING), copy) == {"cast_operands": 2}


def test_only_elementwise_work_has_them() -> None:
    signature = classify_launch(launch(STRIDED), MUL, 1.0)
    assert isinstance(signature, Elementwise)
    assert signature.strided_operands == 3
    assert isinstance(classify_launch(launch(STRIDED), operator("sum", "Float[8;64]", "Float[8]"), 1.0), Reduction)
