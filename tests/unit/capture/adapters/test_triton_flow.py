"""Finding the parameters that a Triton kernel writes, in code as printed by Triton 3.8 (shortened)."""

from __future__ import annotations

import pytest

from presim.capture.adapters.triton_work import TritonKernel

HEAD = (
    "  tt.func public @kernel(%X: !tt.ptr<bf16> {tt.divisibility = 16 : i32}, %Y: !tt.ptr<f32>, %N: !tt.ptr<i32>, "
    "%rows: i32) attributes {noinline = false} {"
)


def code(*lines: str) -> str:
    return "\n".join(["module {", HEAD, *(f"    {line}" for line in lines), "  }", "}"])


def written(text: str) -> frozenset[str]:
    return TritonKernel(text).written


def test_a_store_is_traced_to_its_parameter() -> None:
    found = written(
        code(
            "%0 = tt.splat %X : !tt.ptr<bf16> -> tensor<64x!tt.ptr<bf16>>",
            "%1 = tt.addptr %0, %off : tensor<64x!tt.ptr<bf16>>, tensor<64xi32>",
            "%2 = tt.load %1, %mask : tensor<64x!tt.ptr<bf16>>",
            "%Y_3 = tt.splat %Y : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>",
            "%Y_4 = tt.addptr %Y_3, %off : tensor<64x!tt.ptr<f32>>, tensor<64xi32>",
            "tt.store %Y_4, %2, %mask : tensor<64x!tt.ptr<f32>>",
        )
    )
    assert found == {"Y"}


def test_atomic_operations_write() -> None:
    found = written(
        code(
            "%0 = tt.addptr %N, %i : !tt.ptr<i32>, i32",
            "%1 = tt.atomic_rmw add, acq_rel, gpu, %0, %c1, %true : (!tt.ptr<i32>, i32, i1) -> i32",
            "%2 = tt.addptr %Y, %1 : !tt.ptr<f32>, i32",
            "%3 = tt.atomic_cas relaxed, gpu, %2, %a, %b : (!tt.ptr<f32>, f32, f32) -> f32",
        )
    )
    assert found == {"N", "Y"}


def test_a_pointer_advanced_by_a_loop_stays_in_its_tensor() -> None:
    """In the loop and after it; the loop's other pointer is only read."""
    found = written(
        code(
            "%r:3 = scf.for %i = %c0 to %rows step %c1 iter_args(%acc = %zero, %x = %X, %y = %Y) -> "
            "(f32, !tt.ptr<bf16>, !tt.ptr<f32>)  : i32 {",
            "  %5 = tt.load %x : !tt.ptr<bf16>",
            "  %x_6 = tt.addptr %x, %c1 : !tt.ptr<bf16>, i32",
            "  %y_7 = tt.addptr %y, %c1 : !tt.ptr<f32>, i32",
            "  scf.yield %acc, %x_6, %y_7 : f32, !tt.ptr<bf16>, !tt.ptr<f32>",
            "}",
            "tt.store %r#2, %r#0 : !tt.ptr<f32>",
        )
    )
    assert found == {"Y"}


def test_a_descriptor_writes_to_the_tensor_of_its_pointer() -> None:
    found = written(
        code(
            "%d = tt.make_tensor_descriptor %Y, [%rows], [%c1] : !tt.ptr<f32>, !tt.tensordesc<tensor<64xf32>>",
            "tt.descriptor_store %d[%c0], %v : !tt.tensordesc<tensor<64xf32>>, tensor<64xf32>",
        )
    )
    assert found == {"Y"}


def test_untraceable_stores_are_not_guessed() -> None:
    assert written(code("tt.store %somewhere, %v : !tt.ptr<f32>")) == frozenset()
    with pytest.raises(ValueError, match=r"^no public function in this code$"):
        written("")
