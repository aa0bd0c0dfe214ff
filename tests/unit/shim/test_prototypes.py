"""Reading C prototypes: the kind of each argument, as the stub generator needs it."""

from __future__ import annotations

import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

import presim

HEADER = """
typedef struct context *handle_t;
typedef enum { ZERO = 0 } mode_t;
typedef struct { char internal[128]; } unique_t;
typedef unsigned long long big_t;
int libCreate(handle_t *handle);
int libGetSize(handle_t handle, size_t *bytes, int n);
int libInit(handle_t handle, unique_t id, mode_t mode, float alpha, double beta);
int libRun(const float *input, float *output, const int *lengths, void **args, big_t count);
const char *libGetErrorString(int status);
void libForget(void);
static inline int helper(int x) { return libInline(x); }
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Lines of a symbols file by function."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    directory = tmp_path_factory.mktemp("include")
    (directory / "lib.h").write_text(HEADER)
    path = Path(presim.__file__).parent / "shim/symbols/prototypes.py"
    namespace: dict[str, Any] = runpy.run_path(str(path))
    found = namespace["read"](("lib.h",), [directory])
    return {name: prototype.line() for name, prototype in found.items()}


@pytest.mark.parametrize(
    "expected",
    [
        "libCreate p 0:new",  # a creation function returns a handle
        "libGetSize ppi 1:8",  # a size is an out-parameter
        "libInit p{128}ifd -",  # structs by value with their size, enums as integers
        "libRun ppppi -",  # data and arrays of arguments are not written
        "libGetErrorString i - text",
        "libForget - - void",
    ],
)
def test_line_of_a_prototype(lines: dict[str, str], expected: str) -> None:
    """The format is the one that generate_stubs.py reads."""
    assert lines[expected.split(" ")[0]] == expected


def test_calls_are_not_read_as_prototypes(lines: dict[str, str]) -> None:
    """Inline functions contain calls that look like prototypes."""
    assert "libInline" not in lines
