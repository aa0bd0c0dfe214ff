"""Reading Triton's code as text finds what Triton's own parser finds: operations, operands, results and regions."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from presim.capture.adapters.triton_ir import parse, walk

FOLDER = Path(__file__).parent / "ttir"


@pytest.mark.torch_cuda  # Triton comes with it
@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.ttir")))
def test_operations_are_those_of_tritons_own_parser(name: str) -> None:
    ir = pytest.importorskip("triton._C.libtriton").ir
    context = ir.context()
    ir.load_dialects(context)
    parsed: Counter[tuple[str, int, int, int]] = Counter()

    def count(op: object) -> None:
        shape = op.get_num_operands(), op.get_num_results(), op.get_num_regions()  # type: ignore[attr-defined]
        parsed[op.get_name(), *shape] += 1  # type: ignore[attr-defined]

    ir.parse_mlir_module(str(FOLDER / name), context).walk(count)
    functions = Counter({key: number for key, number in parsed.items() if key[0] in ("builtin.module", "tt.func")})
    code = parse((FOLDER / name).read_text())
    shapes = ((op.name, len(op.operands), len(op.results), len(op.regions)) for op in walk(code.blocks))
    assert Counter(shapes) == parsed - functions
