"""The emulated device's properties in the runtime, the driver and NVML."""

from __future__ import annotations

from pathlib import Path

import pytest

from support import emulated

CODE = """
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p, create_string_buffer

rt, cu, ml = (ctypes.CDLL(name) for name in ("libcudart.so.13", "libcuda.so.1", "libnvidia-ml.so.1"))

rt.cudaDeviceSynchronize()  # writes a log: emulated.run reads one

def number(call, *arguments):
    value = c_int(-7)
    status = call(byref(value), *arguments)
    return [status, value.value]

results["count"] = [number(rt.cudaGetDeviceCount), number(cu.cuDeviceGetCount)]
results["set"] = [rt.cudaSetDevice(3), number(rt.cudaGetDevice), rt.cudaSetDevice(8), rt.cudaSetDevice(-1)]
results["version"] = [number(rt.cudaRuntimeGetVersion), number(rt.cudaDriverGetVersion)]
results["capability"] = [number(rt.cudaDeviceGetAttribute, 75, 0), number(cu.cuDeviceGetAttribute, 76, 0),
                         number(rt.cudaDeviceGetAttribute, 16, 9)]
properties = create_string_buffer(2048)
results["properties"] = [rt.cudaGetDeviceProperties(properties, 0), properties.value.decode()]
pci = [create_string_buffer(32) for _ in range(2)]
for device in (0, 1):
    rt.cudaDeviceGetPCIBusId(pci[device], 32, device)
results["pci"] = [pci[0].value != pci[1].value, number(rt.cudaDeviceGetByPCIBusId, pci[1])]
results["peer"] = [number(rt.cudaDeviceCanAccessPeer, 0, 1), rt.cudaDeviceEnablePeerAccess(1, 0),
                   rt.cudaDeviceEnablePeerAccess(1, 0), rt.cudaDeviceDisablePeerAccess(1),
                   rt.cudaDeviceDisablePeerAccess(1)]
rt.cudaGetErrorString.restype = rt.cudaGetErrorName.restype = c_char_p
results["error"] = [rt.cudaGetErrorName(2).decode(), rt.cudaGetErrorString(2).decode()]
text = c_char_p()
cu.cuGetErrorName(2, byref(text))
results["driver error"] = text.value.decode()

handle, label, memory = c_void_p(), create_string_buffer(96), (c_ulonglong * 3)()
results["nvml"] = [ml.nvmlInit_v2(), ml.nvmlDeviceGetHandleByIndex_v2(c_uint(2), byref(handle)),
                   ml.nvmlDeviceGetName(handle, label, 96), label.value.decode(),
                   ml.nvmlDeviceGetMemoryInfo(handle, memory), memory[0]]
cpus = (c_ulonglong * 16)()
results["cpus"] = [ml.nvmlDeviceGetCpuAffinity(handle, 16, cpus), ml.nvmlDeviceSetCpuAffinity(handle),
                   {cpu for cpu in range(1024) if cpus[cpu // 64] >> cpu % 64 & 1} == os.sched_getaffinity(0),
                   ml.nvmlDeviceGetCpuAffinity(handle, 0, cpus), ml.nvmlDeviceGetCpuAffinity(c_void_p(99), 16, cpus)]
reading = c_uint()
results["sensors"] = [[call(handle, *kind, byref(reading)), reading.value] for call, *kind in (
    [ml.nvmlDeviceGetPowerUsage], [ml.nvmlDeviceGetEnforcedPowerLimit], [ml.nvmlDeviceGetTemperature, c_uint(0)],
    [ml.nvmlDeviceGetClockInfo, c_uint(1)], [ml.nvmlDeviceGetMaxClockInfo, c_uint(2)])]
ml.nvmlDeviceGetUUID(handle, label, 96)
again = c_void_p()
results["by uuid"] = [ml.nvmlDeviceGetHandleByUUID(label, byref(again)), again.value == handle.value,
                      ml.nvmlDeviceGetHandleByUUID(b"GPU-none", byref(again))]
results["small buffer"] = ml.nvmlDeviceGetName(handle, label, 4)

context, current = c_void_p(), c_void_p()
results["context"] = [cu.cuInit(0), cu.cuDevicePrimaryCtxRetain(byref(context), 1), cu.cuCtxSetCurrent(context),
                      number(rt.cudaGetDevice), cu.cuCtxGetCurrent(byref(current)), current.value == context.value]
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """One process makes all the calls."""
    return emulated.run(CODE, tmp_path_factory.mktemp("device")).results


def test_device_properties_match_the_description(results: dict[str, object]) -> None:
    """Count, name, compute capability, versions."""
    assert results["count"] == [[0, 8], [0, 8]]
    assert results["properties"] == [0, "NVIDIA H100 80GB HBM3"]
    assert results["capability"] == [[0, 9], [0, 0], [101, -7]]
    assert results["version"] == [[0, 13000], [0, 13000]]


def test_a_thread_has_a_current_device(results: dict[str, object]) -> None:
    """The driver's contexts set it too; a device that does not exist is refused."""
    assert results["set"] == [0, [0, 3], 101, 101]
    assert results["context"] == [0, 0, 0, [0, 1], 0, True]


def test_devices_have_pci_addresses_and_peers(results: dict[str, object]) -> None:
    """Each device has its own PCI address; peer access can be enabled once."""
    assert results["pci"] == [True, [0, 1]]
    assert results["peer"] == [[0, 1], 0, 704, 0, 705]


def test_errors_have_cudas_names_and_messages(results: dict[str, object]) -> None:
    """PyTorch raises OutOfMemoryError for the code and prints the message."""
    assert results["error"] == ["cudaErrorMemoryAllocation", "out of memory"]
    assert results["driver error"] == "CUDA_ERROR_OUT_OF_MEMORY"


def test_nvml_reports_the_same_device(results: dict[str, object]) -> None:
    """By index and by UUID."""
    assert results["nvml"] == [0, 0, 0, "NVIDIA H100 80GB HBM3", 0, 85520809984]
    assert results["by uuid"] == [0, True, 6]
    assert results["small buffer"] == 7


def test_the_gpu_is_near_all_cpus_of_the_process(results: dict[str, object]) -> None:
    assert results["cpus"] == [0, 0, True, 2, 2]


def test_sensors_show_the_datasheet(results: dict[str, object]) -> None:
    """Its power limit and clocks, and one temperature."""
    assert results["sensors"] == [[0, 700000], [0, 700000], [0, 50], [0, 1980], [0, 2619]]


def test_without_a_description_there_is_no_gpu(tmp_path: Path) -> None:
    """The error is cudaErrorNoDevice, and no log is written."""
    code = """
from ctypes import byref, c_int, c_size_t, c_void_p
rt = ctypes.CDLL("libcudart.so.13")
results["calls"] = [rt.cudaGetDeviceCount(byref(c_int())), rt.cudaMalloc(byref(c_void_p()), c_size_t(1)),
                    rt.cudaDeviceSynchronize(), rt.cudaStreamCreate(byref(c_void_p()))]
ctypes.CDLL("libcublas.so.13")
rt.cudaMipmappedArrayGetSparseProperties(None, None)  # writes a log: emulated.run reads one
"""
    assert emulated.run(code, tmp_path, PRESIM_DEVICE="/dev/null").results["calls"] == [100] * 4
