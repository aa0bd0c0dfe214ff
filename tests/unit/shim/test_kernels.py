"""Kernels registered by the program or loaded by the driver, with every kind of launch."""

from __future__ import annotations

import pytest

from support import emulated

CODE = """
from ctypes import CFUNCTYPE, Structure, byref, c_char_p, c_int, c_size_t, c_uint, c_void_p, create_string_buffer

rt = ctypes.CDLL("libcudart.so.13")
cu = ctypes.CDLL("libcuda.so.1")

class Dim3(Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]

stub = create_string_buffer(16)
name = create_string_buffer(b"_Z6kernelPf")
rt.__getattr__("__cudaRegisterFunction")(None, stub, name, name, -1, None, None, None, None, None)
rt.cudaLaunchKernel.argtypes = [c_void_p, Dim3, Dim3, c_void_p, c_size_t, c_void_p]
launch_handle = rt.__getattr__("__cudaLaunchKernel")
launch_handle.argtypes = rt.cudaLaunchKernel.argtypes
push = rt.__getattr__("__cudaPushCallConfiguration")
push.argtypes = [Dim3, Dim3, c_size_t, c_void_p]

def launch(function=stub, grid=(4, 2, 1), block=(128, 1, 1), shared=0, stream=None):
    address = function if isinstance(function, c_void_p) else ctypes.cast(function, c_void_p)
    return rt.cudaLaunchKernel(address, Dim3(*grid), Dim3(*block), None, shared, stream)

with section("runtime"):
    launch()
    launch(shared=1024)
    launch()
    kernel = c_void_p()
    rt.__getattr__("__cudaGetKernel")(byref(kernel), stub)
    launch_handle(kernel, Dim3(1, 1, 1), Dim3(32, 1, 1), None, 0, None)

grid, block, shared, stream = Dim3(), Dim3(), c_size_t(), c_void_p()
results["push"] = push(Dim3(3, 1, 1), Dim3(64, 1, 1), 256, c_void_p(77))
pop = rt.__getattr__("__cudaPopCallConfiguration")
results["pop"] = [pop(byref(grid), byref(block), byref(shared), byref(stream)), grid.x, block.x, shared.value,
                  stream.value, pop(byref(grid), byref(block), byref(shared), byref(stream))]

results["refused"] = [launch(create_string_buffer(8)), launch(block=(2048, 1, 1)), launch(grid=(0, 1, 1)),
                      launch(grid=(1, 65536, 1)), launch(shared=100_000), launch(stream=c_void_p(0x1230))]
rt.cudaFuncSetAttribute(stub, 8, 200_000)
results["opted in"] = launch(shared=100_000)
results["too much"] = rt.cudaFuncSetAttribute(stub, 8, 300_000)
blocks = c_int()
results["occupancy"] = [rt.cudaOccupancyMaxActiveBlocksPerMultiprocessor(byref(blocks), stub, 128, c_size_t(0)),
                        blocks.value]

module, function = c_void_p(), c_void_p()
image = create_string_buffer(b"cubin")
results["load"] = cu.cuModuleLoadData(byref(module), image)
results["get"] = cu.cuModuleGetFunction(byref(function), module, c_char_p(b"triton_poi_fused_add_0"))
with section("driver"):
    cu.cuLaunchKernel(function, 7, 1, 1, 128, 1, 1, 64, None, None, None)
results["attributes"] = [cu.cuFuncSetAttribute(function, attribute, 200_000) for attribute in (99, 8)]
found, outcome = c_void_p(), c_int()
cu.cuGetProcAddress_v2(b"cuLaunchKernelEx", byref(found), 13000, ctypes.c_uint64(0), byref(outcome))
config = (c_uint * 16)(9, 1, 1, 256, 1, 1, 0)
with section("driver ex"):
    CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_void_p)(found.value)(config, function, None, None)
results["unload"] = [cu.cuModuleUnload(module), cu.cuModuleUnload(module)]

entry = c_void_p()
results["newest"] = [rt.cudaGetDriverEntryPointByVersion(b"cuMemAlloc", byref(entry), 13000, ctypes.c_uint64(0), None),
                     entry.value == ctypes.cast(cu.cuMemAlloc_v2, c_void_p).value]
results["no such name"] = [rt.cudaGetDriverEntryPointByVersion(b"cuNothing", byref(entry), 13000, ctypes.c_uint64(0),
                                                               byref(outcome)), outcome.value, entry.value]
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> emulated.Captured:
    """One process makes all the calls."""
    return emulated.run(CODE, tmp_path_factory.mktemp("kernels"))


def test_launches_are_logged_with_the_kernels_name_and_shape(captured: emulated.Captured) -> None:
    """The kernel is given by its host function or by its handle."""
    assert captured.work("runtime") == [
        "kernel name=_Z6kernelPf grid=4,2,1 block=128,1,1 shared=0",
        "kernel name=_Z6kernelPf grid=4,2,1 block=128,1,1 shared=1024",
        "kernel name=_Z6kernelPf grid=4,2,1 block=128,1,1 shared=0",
        "kernel name=_Z6kernelPf grid=1,1,1 block=32,1,1 shared=0",
    ]


def test_launch_configurations_are_a_stack(captured: emulated.Captured) -> None:
    """A configuration pushed by <<<...>>> can be popped once."""
    assert captured.results["push"] == 0
    assert captured.results["pop"] == [0, 3, 64, 256, 77, 52]


def test_invalid_launches_are_refused(captured: emulated.Captured) -> None:
    """Unknown function, large block, empty grid, large grid, shared memory without opt-in, unknown stream."""
    assert captured.results["refused"] == [98, 9, 9, 9, 1, 400]
    assert (captured.results["opted in"], captured.results["too much"]) == (0, 1)
    assert captured.results["occupancy"] == [0, 8]


def test_a_launch_with_too_many_threads_or_blocks_is_reported_once(captured: emulated.Captured) -> None:
    (remark,) = [note for note in captured.log.notes if note.startswith("remark ")]
    assert remark == (
        "remark The kernel kernel was launched with 4 x 2 x 1 blocks of 2048 x 1 x 1 threads, where CUDA takes "
        "2147483647 x 65535 x 65535 blocks of 1024 threads (64 in z) at most: this fails on a GPU as well."
    )


def test_kernels_of_loaded_modules_are_logged_by_name(captured: emulated.Captured) -> None:
    """Launched as Triton does, directly and through a function pointer."""
    assert (captured.results["load"], captured.results["get"]) == (0, 0)
    assert captured.work("driver") == ["kernel name=triton_poi_fused_add_0 grid=7,1,1 block=128,1,1 shared=64"]
    assert captured.work("driver ex") == ["kernel name=triton_poi_fused_add_0 grid=9,1,1 block=256,1,1 shared=0"]
    assert captured.results["unload"] == [0, 400]


def test_an_attribute_unknown_to_this_driver_is_refused_so_triton_uses_the_older_one(
    captured: emulated.Captured,
) -> None:
    assert captured.results["attributes"] == [1, 0]


def test_the_newest_version_of_a_driver_function_is_returned(captured: emulated.Captured) -> None:
    """For an unknown name the call succeeds and its status parameter reports the failure."""
    assert captured.results["newest"] == [0, True]
    assert captured.results["no such name"] == [0, 1, None]
