// cuDNN's older interface: creating, setting and reading descriptors.
#include <algorithm>

#include "libs/cudnn_legacy.h"

namespace {
using namespace presim::libs;
using namespace presim::libs::cudnn;

int set_tensor(TensorDesc* d, int type, int count, const int* dims, const int* strides) {
  if (d == nullptr || dims == nullptr) return kNullPointer;
  if (count < 1 || count > kMaxDims) return kBadParam;
  d->type = type;
  d->count = count;
  std::copy_n(dims, count, d->dims);
  int32_t packed = 1;
  for (int i = count - 1; i >= 0; --i) {
    d->strides[i] = strides != nullptr ? strides[i] : packed;
    packed *= std::max(1, d->dims[i]);
  }
  return kSuccess;
}

// Channels-last order of a packed tensor.
void make_channels_last(TensorDesc* d) {
  int32_t stride = d->dims[1];
  d->strides[1] = 1;
  for (int i = d->count - 1; i >= 2; --i) {
    d->strides[i] = stride;
    stride *= d->dims[i];
  }
  d->strides[0] = stride;
}

template <class T>
void give(T* out, T value) {
  if (out != nullptr) *out = value;
}

void give_list(int* out, const int32_t* values, int count) {
  if (out != nullptr) std::copy_n(values, count, out);
}

}  // namespace

#define LIFETIME(Name, T)                                                               \
  PRESIM_EXPORT int cudnnCreate##Name##Descriptor(T** out) { return create<T>(out); }   \
  PRESIM_EXPORT int cudnnDestroy##Name##Descriptor(T* descriptor) {                     \
    delete descriptor;                                                                  \
    return kSuccess;                                                                    \
  }
LIFETIME(Tensor, TensorDesc)
LIFETIME(Filter, FilterDesc)
LIFETIME(Convolution, ConvolutionDesc)
LIFETIME(Pooling, PoolingDesc)
LIFETIME(Dropout, DropoutDesc)
LIFETIME(RNN, RnnDesc)
LIFETIME(RNNData, RnnDataDesc)
LIFETIME(Activation, ActivationDesc)
LIFETIME(CTCLoss, CtcDesc)

// ---- tensors and filters
PRESIM_EXPORT int cudnnSetTensorNdDescriptor(TensorDesc* d, int type, int count, const int* dims, const int* strides) {
  return set_tensor(d, type, count, dims, strides);
}
PRESIM_EXPORT int cudnnSetTensorNdDescriptorEx(TensorDesc* d, int format, int type, int count, const int* dims) {
  int status = set_tensor(d, type, count, dims, nullptr);
  if (status == kSuccess && format == 1 && count > 2) make_channels_last(d);
  return status;
}
PRESIM_EXPORT int cudnnSetTensor4dDescriptor(TensorDesc* d, int format, int type, int n, int c, int h, int w) {
  int dims[] = {n, c, h, w};
  return cudnnSetTensorNdDescriptorEx(d, format, type, 4, dims);
}
PRESIM_EXPORT int cudnnSetTensor4dDescriptorEx(TensorDesc* d, int type, int n, int c, int h, int w, int ns, int cs,
                                               int hs, int ws) {
  int dims[] = {n, c, h, w}, strides[] = {ns, cs, hs, ws};
  return set_tensor(d, type, 4, dims, strides);
}
PRESIM_EXPORT int cudnnGetTensorNdDescriptor(const TensorDesc* d, int requested, int* type, int* count, int* dims,
                                             int* strides) {
  if (d == nullptr) return kNullPointer;
  int given = std::min(requested, d->count);
  give(type, d->type);
  give(count, d->count);
  give_list(dims, d->dims, given);
  give_list(strides, d->strides, given);
  return kSuccess;
}
PRESIM_EXPORT int cudnnGetTensorSizeInBytes(const TensorDesc* d, size_t* bytes) {
  if (d == nullptr || bytes == nullptr) return kNullPointer;
  *bytes = size_t(tensor_bytes(d));
  return kSuccess;
}
PRESIM_EXPORT int cudnnSetFilterNdDescriptor(FilterDesc* d, int type, int format, int count, const int* dims) {
  if (d == nullptr || dims == nullptr) return kNullPointer;
  if (count < 1 || count > kMaxDims) return kBadParam;
  d->type = type;
  d->format = format;
  d->count = count;
  std::copy_n(dims, count, d->dims);
  return kSuccess;
}
PRESIM_EXPORT int cudnnSetFilter4dDescriptor(FilterDesc* d, int type, int format, int k, int c, int h, int w) {
  int dims[] = {k, c, h, w};
  return cudnnSetFilterNdDescriptor(d, type, format, 4, dims);
}
PRESIM_EXPORT int cudnnGetFilterNdDescriptor(const FilterDesc* d, int requested, int* type, int* format, int* count,
                                             int* dims) {
  if (d == nullptr) return kNullPointer;
  give(type, d->type);
  give(format, d->format);
  give(count, d->count);
  give_list(dims, d->dims, std::min(requested, d->count));
  return kSuccess;
}

// ---- convolutions, pooling, activations
PRESIM_EXPORT int cudnnSetConvolutionNdDescriptor(ConvolutionDesc* d, int count, const int* pads, const int* strides,
                                                  const int* dilations, int mode, int compute) {
  if (d == nullptr) return kNullPointer;
  if (count < 0 || count > kMaxDims) return kBadParam;
  d->count = count;
  std::copy_n(pads, count, d->pads);
  std::copy_n(strides, count, d->strides);
  std::copy_n(dilations, count, d->dilations);
  d->mode = mode;
  d->compute = compute;
  return kSuccess;
}
PRESIM_EXPORT int cudnnSetConvolutionMathType(ConvolutionDesc* d, int math) {
  if (d == nullptr) return kNullPointer;
  d->math = math;
  return kSuccess;
}
PRESIM_EXPORT int cudnnSetConvolutionGroupCount(ConvolutionDesc* d, int groups) {
  if (d == nullptr) return kNullPointer;
  d->groups = groups;
  return kSuccess;
}
PRESIM_EXPORT int cudnnSetPooling2dDescriptor(PoolingDesc* d, int mode, int nan, int wh, int ww, int ph, int pw, int sh,
                                              int sw) {
  if (d == nullptr) return kNullPointer;
  *d = {mode, nan, 2, {wh, ww}, {ph, pw}, {sh, sw}};
  return kSuccess;
}
PRESIM_EXPORT int cudnnSetActivationDescriptor(ActivationDesc* d, int mode, int nan, double coefficient) {
  if (d == nullptr) return kNullPointer;
  *d = {mode, nan, coefficient};
  return kSuccess;
}

// ---- dropout: its state is opaque; the size is that of cuDNN's generators on current GPUs
PRESIM_EXPORT int cudnnDropoutGetStatesSize(void*, size_t* bytes) {
  if (bytes == nullptr) return kNullPointer;
  *bytes = 1 << 20;
  return kSuccess;
}
PRESIM_EXPORT int cudnnSetDropoutDescriptor(DropoutDesc* d, void*, float probability, void* states, size_t,
                                            unsigned long long seed) {
  if (d == nullptr) return kNullPointer;
  *d = {probability, states, seed};
  return kSuccess;
}
PRESIM_EXPORT int cudnnRestoreDropoutDescriptor(DropoutDesc* d, void* handle, float probability, void* states,
                                                size_t bytes, unsigned long long seed) {
  return cudnnSetDropoutDescriptor(d, handle, probability, states, bytes, seed);
}

// ---- CTC
PRESIM_EXPORT int cudnnSetCTCLossDescriptorEx(CtcDesc* d, int type, int normalization, int gradient) {
  if (d == nullptr) return kNullPointer;
  *d = {type, normalization, gradient, 0};
  return kSuccess;
}
PRESIM_EXPORT int cudnnSetCTCLossDescriptor_v9(CtcDesc* d, int type, int normalization, int gradient, int max_label) {
  if (d == nullptr) return kNullPointer;
  *d = {type, normalization, gradient, max_label};
  return kSuccess;
}
