#include "runtime.h"

using namespace presim;
using namespace presim::cudart;

PRESIM_EXPORT cudaError_t cudaGetLastError() {
  int error = last_error;
  last_error = kSuccess;
  return cudaError_t(error);
}

PRESIM_EXPORT cudaError_t cudaPeekAtLastError() { return cudaError_t(last_error); }

PRESIM_EXPORT const char* cudaGetErrorName(cudaError_t error) {
  const char* name = runtime_error_name(error);
  return name != nullptr ? name : "unrecognized error code";
}

PRESIM_EXPORT const char* cudaGetErrorString(cudaError_t error) {
  const char* sentence = error_sentence(error);
  return sentence != nullptr ? sentence : "unrecognized error code";
}
