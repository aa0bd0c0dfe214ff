// Kernels loaded at run time.
#include "core/kernels.h"
#include "runtime.h"

using namespace presim;
using namespace presim::cudart;

PRESIM_EXPORT cudaError_t cudaLibraryLoadData(cudaLibrary_t* out, const void* code, cudaJitOption*, void**, unsigned,
                                              cudaLibraryOption*, void**, unsigned) {
  return result(load_module(reinterpret_cast<Module**>(out), code));
}
PRESIM_EXPORT cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t* out, const char* name, cudaJitOption*, void**, unsigned,
                                                  cudaLibraryOption*, void**, unsigned) {
  return result(load_module(reinterpret_cast<Module**>(out), name));
}
PRESIM_EXPORT cudaError_t cudaLibraryUnload(cudaLibrary_t library) { return result(unload_module(library)); }
PRESIM_EXPORT cudaError_t cudaLibraryGetKernel(cudaKernel_t* out, cudaLibrary_t library, const char* name) {
  return result(module_kernel(reinterpret_cast<Kernel**>(out), library, name));
}
PRESIM_EXPORT cudaError_t cudaLibraryGetGlobal(void** address, size_t* bytes, cudaLibrary_t library, const char* name) {
  return result(module_global(address, bytes, library, name));
}
