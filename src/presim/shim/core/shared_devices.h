// Memory of the node's GPUs, shared by all processes that use them.
//
// Each process holds its allocations on a GPU and, once it uses the GPU, a context there. The processes of a node that
// run together keep their accounts in one file, node-<number> in $PRESIM_RANKS_DIR; a process alone has its own.
#pragma once
#include <cstddef>
#include <cstdint>

#include "recorder.h"

namespace presim {

// `gpu`: its number in the node (visible_gpus.h).

PRESIM_API int node_of_rank(int64_t rank);
PRESIM_API int place_in_node(int64_t rank);

// Takes memory of a GPU, with a context at the first use; false: it is full.
bool take_memory(int gpu, size_t bytes);
void return_memory(int gpu, size_t bytes);
// This process uses the GPU: it has a context there, if one fits.
PRESIM_API void use_gpu(int gpu);
// Whether it has one.
PRESIM_API bool has_context(int gpu);
// Held by all processes together, contexts included.
size_t held_memory(int gpu);

// Notes what this process held, for the reader of the log, and ends its accounts: it is about to exit.
PRESIM_API void close_accounts();

}  // namespace presim
