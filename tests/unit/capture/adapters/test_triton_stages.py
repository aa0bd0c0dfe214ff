"""Triton's compiler without machine code."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from presim.capture.adapters.triton_stages import _stop_early

LLVM = """define internal float @max(float %0) {
}
define ptx_kernel void @triton_poi_add_0(ptr addrspace(1) %0, i32 %1) local_unnamed_addr #0 {
}
"""


def compiler(text: str) -> tuple[Any, list[str]]:
    """A module like Triton's with the adapter, and what it ran."""
    ran: list[str] = []

    class CUDABackend:
        def add_stages(self, stages: dict[str, Any], options: object, language: object) -> None:
            def llir(source: object, metadata: dict[str, Any]) -> str:
                module.llvm.optimize_module(source, level=3)
                module.llvm.to_module(source)
                metadata["shared"] = 1024
                return text

            def ptx(source: object, metadata: dict[str, Any]) -> str:
                ran.append("ptx")
                metadata["name"] = "by Triton"
                return "ptx"

            stages["ttgir"] = lambda source, metadata: "ttgir"
            stages |= {"llir": llir, "ptx": ptx, "cubin": lambda source, metadata: ran.append("ptxas")}

        def hash(self) -> str:
            return "13.1"

    llvm = SimpleNamespace(
        optimize_module=lambda *args, **kwargs: ran.append("optimise"), to_module=lambda *args: ran.append("translate")
    )
    module = SimpleNamespace(CUDABackend=CUDABackend, llvm=llvm)
    _stop_early(module)
    return module, ran


def compiled(module: Any) -> tuple[dict[str, Any], Any]:
    """The metadata and the last stage's result."""
    stages: dict[str, Any] = {}
    module.CUDABackend().add_stages(stages, None, None)
    metadata: dict[str, Any] = {}
    result: Any = None
    for stage in stages.values():
        result = stage(result, metadata)
    return metadata, result


def test_only_the_translation_runs() -> None:
    """Shared memory and the name are noted; optimisation, PTX and ptxas do not run."""
    module, ran = compiler(LLVM)
    metadata, binary = compiled(module)
    assert metadata == {"shared": 1024, "name": "triton_poi_add_0"}
    assert isinstance(binary, bytes)
    assert len(binary) > 0
    assert ran == ["translate"]


def test_a_name_that_is_not_plain_is_read_by_triton() -> None:
    """Without exactly one plain entry, Triton's own stage names the kernel."""
    module, ran = compiler('define ptx_kernel void @"a b"(ptr %0) {')
    assert compiled(module)[0]["name"] == "by Triton"
    assert ran == ["translate", "ptx"]


def test_kernels_have_keys_of_their_own() -> None:
    """A real run must not find them in Triton's cache."""
    module, _ = compiler(LLVM)
    assert module.CUDABackend().hash() not in ("", "13.1")


def test_other_back_ends_stay() -> None:
    """A module without the class is left as it is."""
    module = SimpleNamespace()
    _stop_early(module)
    assert vars(module) == {}
