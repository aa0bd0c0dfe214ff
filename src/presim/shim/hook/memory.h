// The caching allocator's blocks as records; see memory.cpp.
#pragma once

namespace presim::hook {

void install_allocator_tracker();  // after CUDA's initialisation, once

}  // namespace presim::hook
