// Descriptors of cuDNN's older interface: plain structs, so that one pair of functions creates and destroys all.
#pragma once
#include "libs/common.h"
#include "libs/cudnn_backend.h"

namespace presim::libs::cudnn {

constexpr int kMaxDims = 8;

struct TensorDesc {
  int32_t type = 0, count = 0;
  int32_t dims[kMaxDims] = {}, strides[kMaxDims] = {};
};

struct FilterDesc {
  int32_t type = 0, format = 0, count = 0;
  int32_t dims[kMaxDims] = {};
};

struct ConvolutionDesc {
  int32_t count = 0;
  int32_t pads[kMaxDims] = {}, strides[kMaxDims] = {}, dilations[kMaxDims] = {};
  int32_t mode = 0, compute = 0, groups = 1, math = 0;
};

struct PoolingDesc {
  int32_t mode = 0, nan = 0, count = 0;
  int32_t window[kMaxDims] = {}, pads[kMaxDims] = {}, strides[kMaxDims] = {};
};

struct DropoutDesc {
  float probability = 0;
  void* states = nullptr;
  unsigned long long seed = 0;
};

struct RnnDesc {
  int32_t algo = 0, cell = 0, bias = 0, bidirectional = 0, input_mode = 0, type = 0, math_type = 0;
  int32_t input = 0, hidden = 0, projection = 0, layers = 0;
  DropoutDesc* dropout = nullptr;
};

struct RnnDataDesc {
  int32_t type = 0, layout = 0, length = 0, batch = 0, size = 0;
};

struct ActivationDesc {
  int32_t mode = 0, nan = 0;
  double coefficient = 0;
};

struct CtcDesc {
  int32_t type = 0, normalization = 0, gradient = 0, max_label = 0;
};

template <class T>
int create(T** out) {
  if (out == nullptr) return kNullPointer;
  *out = new T;
  return kSuccess;
}

inline int64_t tensor_bytes(const TensorDesc* tensor) {
  if (tensor == nullptr) return 0;
  int64_t elements = 1;
  for (int i = 0; i < tensor->count; ++i) elements *= tensor->dims[i];
  return elements * type_bits(tensor->type) / 8;
}

// Memory-bound work: a name and the bytes of the named tensors.
inline int log_bytes(void* handle, const char* operation, int type, int64_t bytes) {
  if (handle_of(handle) == nullptr) return kNotInitialized;
  struct Key {
    int64_t operation, type, bytes;
  };
  int32_t work = descriptor(Key{reinterpret_cast<int64_t>(operation), type, bytes}, [operation](const Key& key) {
    Text text("cudnn_graph");
    text.add("ops", operation).add("bytes", key.bytes).add("dtype", type_name(int(key.type)));
    return std::string(text);
  });
  log_work(stream_of(handle), work);
  return kSuccess;
}

}  // namespace presim::libs::cudnn
