// Which architectures a compiled image holds code for.
#pragma once

namespace presim::cudart {

// Of the code in the image that __cudaRegisterFatBinary was given, the architecture (90 for 9.0) that a device of
// compute capability `device` runs: the highest that is not above it. CUB, for one, looks for its tuning under exactly
// this number, and has none for an architecture that nobody compiled for (8.9, where there is code for 8.6). Where
// nothing fits, or the image cannot be read: `device`.
int architecture_for(const void* image, int device);

}  // namespace presim::cudart
