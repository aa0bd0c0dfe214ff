"""Detecting CUDA extensions with their own runtime from their files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from presim.capture.adapters.extensions import explain, has_own_runtime, libraries_with_own_runtime, notes
from presim.capture.setup.environment import find_compiler

KERNELS = '__attribute__((section(".nv_fatbin"), used)) static char device_code[] = "…";'
STATIC = KERNELS + 'extern "C" void __cudaRegisterFatBinary() {} extern "C" void load() { __cudaRegisterFatBinary(); }'
SHARED = KERNELS + 'extern "C" void __cudaRegisterFatBinary(); extern "C" void load() { __cudaRegisterFatBinary(); }'
HOST = 'extern "C" void load() {}'


def build(directory: Path, name: str, source: str) -> Path:
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C++ compiler")
    (directory / f"{name}.cpp").write_text(source)
    library = directory / f"{name}.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, directory / f"{name}.cpp"], check=True)
    return library


@pytest.mark.parametrize(("source", "expected"), [(STATIC, True), (SHARED, False), (HOST, False)])
def test_device_code_without_a_shared_runtime_is_detected(tmp_path: Path, source: str, *, expected: bool) -> None:
    assert has_own_runtime(build(tmp_path, "extension", source)) is expected


def test_a_runtime_with_hidden_symbols_is_detected(tmp_path: Path) -> None:
    """nvcc links it so by default."""
    hidden = STATIC.replace('extern "C" void __cuda', '__attribute__((visibility("hidden"))) void __cuda', 1)
    source = hidden.replace('extern "C" void load', "void load")
    assert has_own_runtime(build(tmp_path, "extension", source))


def test_torchvision_s_jpeg_decoder_is_ignored(tmp_path: Path) -> None:
    found = [build(tmp_path, name, STATIC) for name in ("libnvjpeg.4a0b", "extension")]
    assert libraries_with_own_runtime(found) == ["extension.so"]


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF\x01", b"\x7fELF\x02" + bytes(20)])
def test_other_files_have_no_runtime(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "odd.so").write_bytes(content)
    assert libraries_with_own_runtime([tmp_path / "odd.so", tmp_path / "gone.so"]) == []


def test_a_stripped_library_is_detected(tmp_path: Path) -> None:
    library = build(tmp_path, "extension", STATIC)
    strip = shutil.which("strip")
    if strip is None:
        pytest.skip("no strip")
    subprocess.run([strip, library], check=True)
    assert has_own_runtime(library)


def test_a_cuda_error_names_the_unsupported_extension() -> None:
    error = "RuntimeError: CUDA driver version is insufficient for CUDA runtime version"
    assert explain(error, ["fast.so"]).startswith(" (unsupported: fast.so contains its own CUDA runtime")
    assert explain(error, []) == ""
    assert explain("ValueError: no", ["fast.so"]) == ""
    assert notes([]) == []
    assert notes(["fast.so"])[0].startswith("Unsupported: fast.so contains its own CUDA runtime")


def test_a_build_for_another_cuda_is_named() -> None:
    error = "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"
    assert explain(error, []) == (
        " (built for CUDA 12; presim emulates CUDA 13: install the extension's build for that)"
    )
    assert explain(error.replace(".12", ".13"), []) == ""
