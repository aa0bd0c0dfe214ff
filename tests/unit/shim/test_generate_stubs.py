"""The stub generator and the symbol lists it reads."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import presim

SHIM = Path(presim.__file__).parent / "shim"
generator: dict[str, Any] = runpy.run_path(str(SHIM / "generate_stubs.py"))
LISTS = sorted((SHIM / "symbols").glob("*.txt"))


def source(line: str, library: str = "cublas", rules: str = "") -> str:
    """Return the stub of one line of a symbols file."""
    stub = generator["parse_stub"](line)
    return str(stub.source("0", generator["rule_for"](generator["parse_rules"](rules), library, stub.name)))


def test_out_parameters_are_zeroed_and_handles_created() -> None:
    """A stub that only returned 0 would leave them uninitialised."""
    text = source("libThing pip 0:new,2:8")
    assert "fresh_handle(a0);" in text
    assert "zero(a2, 8);" in text
    assert 'unmodelled("libThing")' in text


def test_structs_by_value_keep_their_size() -> None:
    """A 128-byte struct is passed on the stack and shifts no other argument."""
    assert "Bytes<128> a2" in source("ncclCommInitRank pi{128}i 0:new")


def test_return_types() -> None:
    """A status, a string or nothing."""
    assert "return 0;" in source("a p -")
    assert 'return "unknown";' in source("a i - text")
    assert "return" not in source("a p - void")


def test_rules_replace_the_call_counter() -> None:
    """Device work is logged with its sizes; harmless calls are not counted."""
    work = source("cublasSaxpy_v2 pippipi -", rules="cublas cublas.axpy_v2 work n=1")
    assert 'library_kernel(a0, "cublasSaxpy_v2", keys, {0, {int32_t(a1)}});' in work
    assert "unmodelled" not in work
    assert "unmodelled" not in source("cublasLoggerConfigure iiip -", rules="cublas .*Logger.* quiet")


def test_a_rule_that_names_a_pointer_as_a_size_is_refused() -> None:
    """It would log an address as a size."""
    with pytest.raises(SystemExit, match="names an argument of f that is no integer"):
        source("f pp -", rules="cublas f work n=1")


def test_version_script_has_the_real_librarys_version() -> None:
    """PyTorch links cudaMalloc@libcudart.so.13."""
    symbols = generator["parse"]("soname libx.so.1\nversion libx.so.1\nf p -\n")
    assert generator["version_script"](symbols).startswith("libx.so.1 {")
    untagged = generator["parse"]("soname libx.so.1\nversion none\n")
    assert generator["version_script"](untagged).startswith("{")


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_symbol_lists_are_valid(path: Path) -> None:
    """Every function occurs once and every out-parameter is one of its arguments."""
    symbols = generator["parse"](path.read_text())
    assert symbols.soname.startswith("lib")
    names = [stub.name for stub in symbols.stubs]
    assert len(names) == len(set(names))
    for stub in symbols.stubs:
        assert re.fullmatch(r"\w+", stub.name)
        assert all(position < len(stub.arguments) for position, _ in stub.outs)


def test_every_rule_matches_a_function() -> None:
    """A rule that matches no function has a misspelt name."""
    rules = generator["parse_rules"]((SHIM / "stub_rules.txt").read_text())
    names = {path.stem: [s.name for s in generator["parse"](path.read_text()).stubs] for path in LISTS}
    unused = [r.pattern for r in rules if not any(re.fullmatch(r.pattern, name) for name in names[r.library])]
    assert unused == []
