// Records the caching allocator's blocks; see memory.cpp.
#pragma once

namespace presim::hook {

void install_allocator_tracker();  // once, after CUDA's initialisation

}  // namespace presim::hook
