// Modules and libraries compiled by Triton and nvrtc, and their kernels by name.
#include <cstring>
#include <sys/stat.h>

#include "core/config.h"
#include "core/kernels.h"
#include "driver.h"

using namespace presim;
using namespace presim::driver;

namespace {

int load(CUmodule* out, const void* image) { return load_module(reinterpret_cast<Module**>(out), image); }

int load_file(void* out, const char* path) {
  struct stat found;
  if (path == nullptr) return kInvalidValue;
  if (stat(path, &found) != 0) return kFileNotFound;
  return load_module(static_cast<Module**>(out), path);
}

int function_attribute(int* value, int attribute, const void* function) {
  Kernel* kernel = find_kernel(function);
  if (value == nullptr) return kInvalidValue;
  if (kernel == nullptr) return kInvalidHandle;
  const DeviceConfig& device = device_config();
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; return kSuccess;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = kernel->registers; return kSuccess;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = device.compute_major * 10 + device.compute_minor; return kSuccess;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = kernel->dynamic_shared; return kSuccess;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = kernel->carveout; return kSuccess;
    default: *value = 0; return kSuccess;  // sizes of sections, clusters: none
  }
}

int set_function_attribute(const void* function, int attribute, int value) {
  Kernel* kernel = find_kernel(function);
  if (kernel == nullptr) return kInvalidHandle;
  // Triton requests newer ones first and falls back to those of this driver.
  if (attribute < 0 || attribute >= CU_FUNC_ATTRIBUTE_MAX) return kInvalidValue;
  if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
    if (value < 0 || value > device_config().shared_per_block_optin) return kInvalidValue;
    kernel->dynamic_shared = value;
  }
  if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) kernel->carveout = value;
  return kSuccess;
}

template <class Out>
CUresult give_name(Out* out, const void* function) {
  Kernel* kernel = find_kernel(function);
  if (out == nullptr || kernel == nullptr) return result(out == nullptr ? kInvalidValue : kInvalidHandle);
  *out = kernel->name;
  return CUDA_SUCCESS;
}

}  // namespace

PRESIM_EXPORT CUresult cuModuleLoadData(CUmodule* out, const void* image) { return result(load(out, image)); }
PRESIM_EXPORT CUresult cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned, CUjit_option*, void**) {
  return result(load(out, image));
}
PRESIM_EXPORT CUresult cuModuleLoadFatBinary(CUmodule* out, const void* image) { return result(load(out, image)); }
PRESIM_EXPORT CUresult cuModuleLoad(CUmodule* out, const char* path) { return result(load_file(out, path)); }
PRESIM_EXPORT CUresult cuModuleUnload(CUmodule module) { return result(unload_module(module)); }
PRESIM_EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
  return result(module_kernel(reinterpret_cast<Kernel**>(out), module, name));
}
PRESIM_EXPORT CUresult cuModuleGetGlobal(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
  return result(module_global(pointers(address), bytes, module, name));
}

PRESIM_EXPORT CUresult cuLibraryLoadData(CUlibrary* out, const void* image, CUjit_option*, void**, unsigned, CUlibraryOption*,
                                         void**, unsigned) {
  return result(load_module(reinterpret_cast<Module**>(out), image));
}
PRESIM_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary* out, const char* path, CUjit_option*, void**, unsigned,
                                             CUlibraryOption*, void**, unsigned) {
  return result(load_file(out, path));
}
PRESIM_EXPORT CUresult cuLibraryUnload(CUlibrary library) { return result(unload_module(library)); }
PRESIM_EXPORT CUresult cuLibraryGetModule(CUmodule* out, CUlibrary library) {
  if (out == nullptr || find_module(library) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUmodule>(library);
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary library, const char* name) {
  return result(module_kernel(reinterpret_cast<Kernel**>(out), library, name));
}
PRESIM_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
  return result(module_global(pointers(address), bytes, library, name));
}
PRESIM_EXPORT CUresult cuKernelGetFunction(CUfunction* out, CUkernel kernel) {
  if (out == nullptr || find_kernel(kernel) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

PRESIM_EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  return result(function_attribute(value, attribute, function));
}
PRESIM_EXPORT CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice) {
  return result(function_attribute(value, attribute, kernel));
}
PRESIM_EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return result(set_function_attribute(function, attribute, value));
}
PRESIM_EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice) {
  return result(set_function_attribute(kernel, attribute, value));
}
PRESIM_EXPORT CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }
PRESIM_EXPORT CUresult cuKernelSetCacheConfig(CUkernel, CUfunc_cache, CUdevice) { return CUDA_SUCCESS; }
PRESIM_EXPORT CUresult cuFuncGetName(const char** out, CUfunction function) { return give_name(out, function); }
PRESIM_EXPORT CUresult cuKernelGetName(const char** out, CUkernel kernel) { return give_name(out, kernel); }
PRESIM_EXPORT CUresult cuFuncGetModule(CUmodule* out, CUfunction function) {
  Kernel* kernel = find_kernel(function);
  if (out == nullptr || kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = reinterpret_cast<CUmodule>(kernel->module);
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  if (state == nullptr || find_kernel(function) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuFuncLoad(CUfunction) { return CUDA_SUCCESS; }
