// Kernels by name, and their launches.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "device.h"

namespace presim {

struct Dim3 {
  uint32_t x, y, z;
};

struct Module;

// The object behind cudaKernel_t, cudaFunction_t, CUfunction and CUkernel. Never freed.
struct Kernel {
  std::atomic<bool> live{false};
  const char* name = nullptr;
  Module* module = nullptr;  // nullptr: registered by the program itself
  int dynamic_shared = 49152;
  int carveout = -1;
  int registers = 64;
  const void* image = nullptr;  // the argument of __cudaRegisterFatBinary
};

// Registered by the start-up code of a compiled file. `name` and `image` live as long as that file.
void register_kernel(const void* host_function, const char* name, const void* image);
// By the host function that represents it, or by its own handle; nullptr: unknown.
Kernel* find_kernel(const void* function);

// Modules and libraries loaded at run time (Triton, nvrtc): every requested kernel name exists.
int load_module(Module** out, const void* image);
int unload_module(void* module);
Module* find_module(void* module);
int module_kernel(Kernel** out, void* module, const char* name);
int module_global(void** address, size_t* bytes, void* module, const char* name);

int launch_kernel(const void* function, Dim3 grid, Dim3 block, size_t shared, void* stream);

int blocks_per_sm(const Kernel& kernel, int block_size, size_t dynamic_shared);

}  // namespace presim
