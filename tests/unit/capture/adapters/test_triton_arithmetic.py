"""Instructions of generated kernels, counted by hand."""

from __future__ import annotations

import textwrap

import pytest

from presim.capture.adapters.triton_arithmetic import Arithmetic, arithmetic, is_tiled

ELEMENTS = 1024


def pointwise(body: str, elements: int = ELEMENTS) -> Arithmetic:
    """Arithmetic of a kernel over one axis."""
    kernel = (
        textwrap.dedent("""\
        def triton_poi_fused_0(in_ptr0, in_ptr1, out_ptr0, xnumel, XBLOCK : tl.constexpr):
            xoffset = tl.program_id(0) * XBLOCK
            xindex = xoffset + tl.arange(0, XBLOCK)[:]
            x0 = xindex
            x1 = xindex // 512
        """)
        + textwrap.indent(textwrap.dedent(body), "    ")
        + "    tl.store(out_ptr0 + (x0), tmp9, None)\n"
    )
    return arithmetic(kernel, {"xnumel": elements})


def test_an_addition_of_two_tensors() -> None:
    """Two loads and a store count half an instruction each, because a thread moves several elements at a time."""
    counted = pointwise("""\
        tmp0 = tl.load(in_ptr0 + (x0), None)
        tmp1 = tl.load(in_ptr1 + (x0), None)
        tmp9 = tmp0 + tmp1
        """)
    assert counted == Arithmetic(round(ELEMENTS * (0.5 + 0.5 + 1 + 0.5)), 0, 0)


@pytest.mark.parametrize(
    ("line", "special"), [("tmp9 = tl_math.exp(tmp0)", 1), ("tmp9 = tmp0 / tmp0", 1), ("tmp9 = tmp0 * tmp0", 0)]
)
def test_functions_and_divisions_are_special(line: str, special: int) -> None:
    assert pointwise(f"tmp0 = tl.load(in_ptr0 + (x0), None)\n{line}\n").special == special * ELEMENTS


SCALE = """\
tmp0 = tl.load(in_ptr0 + ({place}), None).to(tl.float32)
tmp1 = tmp0.to(tl.float64)
tmp2 = tl.full([1], 448.0, tl.float64)
tmp3 = tmp2 / tmp1
tmp9 = tmp3.to(tl.float32)
"""


def test_a_scale_per_row_is_computed_for_every_element() -> None:
    """A 64-bit division takes eight 64-bit instructions; each conversion takes one."""
    counted = pointwise(SCALE.format(place="x1"))
    assert counted.wide == 8 * ELEMENTS
    assert counted.special == (1 + 1 + 1) * ELEMENTS


def test_a_scale_per_tensor_is_computed_once_per_thread() -> None:
    """A thread holds eight elements."""
    rows, tensor = pointwise(SCALE.format(place="x1")), pointwise(SCALE.format(place="0"))
    assert tensor.wide == rows.wide // 8
    assert tensor.special == rows.special // 8


def test_a_reduction_counts_its_loop_per_element_and_the_rest_per_thread() -> None:
    source = textwrap.dedent("""\
        def triton_red_fused_0(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr):
            xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
            r0_base = tl.arange(0, R0_BLOCK)[None, :]
            _tmp1 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
            for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
                r0_index = r0_offset + r0_base
                tmp0 = tl.load(in_ptr0 + (r0_index + 4096*xindex), None)
                _tmp1 = _tmp1 + tmp0
            tmp1 = tl.sum(_tmp1, 1)[:, None]
            tmp2 = libdevice.sqrt(tmp1)
            tl.store(out_ptr0 + (xindex), tmp2, None)
        """)
    rows, row = 64, 4096
    counted = arithmetic(source, {"xnumel": rows, "r0_numel": row})
    after = rows * 2048 / 8  # threads
    assert counted.special == after
    assert rows * row * 1.5 <= counted.plain <= rows * row * 1.5 + 8 * after


@pytest.mark.parametrize("source", ["", "def kernel(x_ptr):\n    tmp0 = tl.load(x_ptr)\n", "not python ("])
def test_other_kernels_have_no_arithmetic(source: str) -> None:
    assert arithmetic(source, {"xnumel": 8}) == Arithmetic()


def test_tiling_is_detected_from_the_sizes() -> None:
    assert is_tiled({"xnumel": 64, "ynumel": 8})
    assert not is_tiled({"xnumel": 64, "ynumel": 1})
    assert not is_tiled({"xnumel": 64, "r0_numel": 8})
