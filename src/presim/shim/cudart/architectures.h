// Architectures of the code in a compiled image.
#pragma once

namespace presim::cudart {

// The architecture (90 for 9.0) of the code in an image (the argument of __cudaRegisterFatBinary) that a device of
// compute capability `device` runs: the highest one not above it. CUB looks up its tuning by this number and has no
// entry for architectures without code (8.9 if there is code for 8.6). Returns `device` if nothing fits or the image
// cannot be read.
int architecture_for(const void* image, int device);

}  // namespace presim::cudart
