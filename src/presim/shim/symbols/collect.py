#!/usr/bin/env python3
"""Write symbols/<library>.txt from NVIDIA's wheels and from what builds of PyTorch import.

    collect.py --nvidia SITE/nvidia --torch TORCH_LIB_DIR [--torch ...] [--pynvml pynvml.py]

Run by hand when a new CUDA or PyTorch version is supported; the lists are committed, so that building presim
needs none of this. Only facts of the binary interface are taken: names, argument kinds, version tags.
The format is described in generate_stubs.py.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import prototypes

HERE = Path(__file__).resolve().parent
UNVERSIONED = {"nccl", "cusparseLt", "cufile", "cuda", "nvidia-ml"}


@dataclass(frozen=True)
class Library:
    """Where one library's facts come from."""

    name: str
    soname: str
    headers: tuple[str, ...] = ()
    shared_object: str = ""  # below the wheels' nvidia/ folder
    prefix: str = ""  # exported names that belong to the interface; empty: all
    default_return: int = 0

    @property
    def version(self) -> str:
        """The symbol version tag the real library exports."""
        if self.name in UNVERSIONED:
            return "none"
        return "NVSHMEM" if self.name == "nvshmem_host" else self.soname


LIBRARIES = (
    Library("cudart", "libcudart.so.13", ("cuda_runtime_api.h", "cuda_profiler_api.h"), "cu13/lib/libcudart.so.13"),
    Library("cuda", "libcuda.so.1", ("cuda.h", "cudaProfiler.h"), prefix="cu"),
    Library("nvidia-ml", "libnvidia-ml.so.1", prefix="nvml", default_return=3),  # 3: not supported
    Library("cublas", "libcublas.so.13", ("cublas_api.h", "cublasXt.h"), "cu13/lib/libcublas.so.13"),
    Library("cublasLt", "libcublasLt.so.13", ("cublasLt.h",), "cu13/lib/libcublasLt.so.13"),
    Library("cudnn", "libcudnn.so.9", ("cudnn.h",), "cudnn/lib/libcudnn.so.9"),
    Library("nccl", "libnccl.so.2", ("nccl.h",), "nccl/lib/libnccl.so.2"),
    Library("cufft", "libcufft.so.12", ("cufft.h", "cufftXt.h"), "cu13/lib/libcufft.so.12"),
    Library("curand", "libcurand.so.10", ("curand.h",), "cu13/lib/libcurand.so.10"),
    Library(
        "cusolver",
        "libcusolver.so.12",
        ("cusolverDn.h", "cusolverSp.h", "cusolverRf.h", "cusolverSp_LOWLEVEL_PREVIEW.h"),
        "cu13/lib/libcusolver.so.12",
    ),
    Library("cusparse", "libcusparse.so.12", ("cusparse.h",), "cu13/lib/libcusparse.so.12"),
    Library("cusparseLt", "libcusparseLt.so.0", ("cusparseLt.h",), "cusparselt/lib/libcusparseLt.so.0"),
    Library("cufile", "libcufile.so.0", ("cufile.h",), "cu13/lib/libcufile.so.0", prefix="cuFile"),
    Library("cupti", "libcupti.so.13", ("cupti.h",), "cu13/lib/libcupti.so.13"),
    Library("nvrtc", "libnvrtc.so.13", ("nvrtc.h",), "cu13/lib/libnvrtc.so.13"),
    Library("nvshmem_host", "libnvshmem_host.so.3", (), "nvshmem/lib/libnvshmem_host.so.3", prefix="nvshmem"),
    # Frameworks that link cuDNN's parts by name want the files; the functions come from libcudnn itself.
    *(
        Library(f"cudnn_{part}", f"libcudnn_{part}.so.9", prefix="none")
        for part in (
            "adv",
            "cnn",
            "engines_precompiled",
            "engines_runtime_compiled",
            "engines_tensor_ir",
            "ext",
            "graph",
            "heuristic",
            "ops",
        )
    ),
)


def symbols(path: Path, which: str) -> list[str]:
    """Names in a shared object's dynamic table, with their version tags."""
    text = subprocess.run(["nm", "-D", f"--{which}-only", path], check=True, capture_output=True, text=True).stdout
    return [line.split()[-1] for line in text.splitlines() if " A " not in line]


def exported(library: Library, nvidia: Path) -> set[str]:
    """C functions the real library offers; C++ names are nobody's interface."""
    if not library.shared_object:
        return set()
    names = {name.split("@")[0] for name in symbols(nvidia / library.shared_object, "defined")}
    return {n for n in names if n.startswith(library.prefix) and not n.startswith("_Z") and n not in ("_init", "_fini")}


def imported(library: Library, torch_dirs: list[Path]) -> set[str]:
    """Functions of the library that any of these builds of PyTorch links."""
    function_names: set[str] = set()
    for directory in torch_dirs:
        for shared_object in directory.glob("*.so"):
            for name in symbols(shared_object, "undefined"):
                plain, _, tag = name.partition("@")
                by_prefix = library.version == "none" and re.match(rf"{library.prefix or library.name}[A-Z]", plain)
                if tag == library.version or (by_prefix and not tag):
                    function_names.add(plain)
    return function_names


def collect(library: Library, nvidia: Path, torch_dirs: list[Path], pynvml: Path | None) -> str:
    """The text of one symbols file."""
    includes = sorted(nvidia.glob("*/include"))
    prototype_by_name = prototypes.read(library.headers, includes) if library.headers else {}
    names = exported(library, nvidia) | imported(library, torch_dirs)
    if library.name == "cuda":
        names |= {name for name in prototype_by_name if name.startswith("cu")}
    if library.name == "nvidia-ml" and pynvml:
        names |= set(re.findall(r'"(nvml[A-Z]\w+)"', pynvml.read_text()))
    lines = [f"soname {library.soname}", f"version {library.version}"]
    if library.default_return:
        lines.append(f"default_return {library.default_return}")
    lines += [prototype_by_name[name].line() if name in prototype_by_name else f"{name} ? -" for name in sorted(names)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write every list beside this script."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nvidia", type=Path, required=True)
    parser.add_argument("--torch", type=Path, action="append", default=[])
    parser.add_argument("--pynvml", type=Path)
    options = parser.parse_args()
    for library in LIBRARIES:
        text = collect(library, options.nvidia, options.torch, options.pynvml)
        assert " {0}" not in text, "a struct passed by value has no known size"
        (HERE / f"{library.name}.txt").write_text(text)
        print(f"{library.name}: {text.count(chr(10)) - 2} functions, {text.count(' ? ')} without a prototype")


if __name__ == "__main__":
    main()
