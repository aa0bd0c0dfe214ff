// cuDNN's normalisation, pooling, softmax, activation, dropout, sampling and CTC loss, by the bytes they move.
// Trailing arguments that are not used are not declared: in this ABI the caller owns them.
#include "libs/cudnn_legacy.h"

namespace {
using namespace presim::libs;
using namespace presim::libs::cudnn;
using Tensor = const TensorDesc*;

int type_of(Tensor tensor) { return tensor != nullptr ? tensor->type : 0; }

int log_two(void* handle, const char* name, Tensor a, Tensor b) {
  return log_bytes(handle, name, type_of(a), tensor_bytes(a) + tensor_bytes(b));
}
int log_three(void* handle, const char* name, Tensor a, Tensor b, Tensor c) {
  return log_bytes(handle, name, type_of(a), tensor_bytes(a) + tensor_bytes(b) + tensor_bytes(c));
}
int zero_size(size_t* bytes) {
  if (bytes == nullptr) return kNullPointer;
  *bytes = 0;
  return kSuccess;
}
}  // namespace

// ---- batch normalisation
PRESIM_EXPORT int cudnnBatchNormalizationForwardInference(void* h, int, const void*, const void*, Tensor x, const void*,
                                                          Tensor y) {
  return log_two(h, "batch_norm_inference", x, y);
}
PRESIM_EXPORT int cudnnBatchNormalizationForwardTraining(void* h, int, const void*, const void*, Tensor x, const void*,
                                                         Tensor y) {
  return log_three(h, "batch_norm_forward", x, x, y);  // once for the statistics, once to normalise
}
PRESIM_EXPORT int cudnnBatchNormalizationForwardTrainingEx(void* h, int, int, const void*, const void*, Tensor x,
                                                           const void*, Tensor, const void*, Tensor y) {
  return log_three(h, "batch_norm_forward", x, x, y);
}
PRESIM_EXPORT int cudnnBatchNormalizationBackward(void* h, int, const void*, const void*, const void*, const void*,
                                                  Tensor x, const void*, Tensor dy, const void*, Tensor dx) {
  return log_bytes(h, "batch_norm_backward", type_of(x), 2 * (tensor_bytes(x) + tensor_bytes(dy)) + tensor_bytes(dx));
}
PRESIM_EXPORT int cudnnBatchNormalizationBackwardEx(void* h, int, int, const void*, const void*, const void*,
                                                    const void*, Tensor x, const void*, Tensor, const void*, Tensor dy,
                                                    const void*, Tensor, void*, Tensor dx) {
  return log_bytes(h, "batch_norm_backward", type_of(x), 2 * (tensor_bytes(x) + tensor_bytes(dy)) + tensor_bytes(dx));
}
PRESIM_EXPORT int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void*, int, int, Tensor, Tensor, Tensor,
                                                                           Tensor, const void*, size_t* bytes) {
  return zero_size(bytes);
}
PRESIM_EXPORT int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void*, int, int, Tensor, Tensor, Tensor, Tensor,
                                                                    Tensor, Tensor, const void*, size_t* bytes) {
  return zero_size(bytes);
}
PRESIM_EXPORT int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void*, int, int, const void*, Tensor,
                                                                       size_t* bytes) {
  return zero_size(bytes);
}

// ---- pooling, softmax, activation, dropout
PRESIM_EXPORT int cudnnPoolingForward(void* h, const void*, const void*, Tensor x, const void*, const void*, Tensor y) {
  return log_two(h, "pooling_forward", x, y);
}
PRESIM_EXPORT int cudnnPoolingBackward(void* h, const void*, const void*, Tensor y, const void*, Tensor dy, const void*,
                                       Tensor x) {
  return log_bytes(h, "pooling_backward", type_of(x), 2 * tensor_bytes(x) + tensor_bytes(y) + tensor_bytes(dy));
}
PRESIM_EXPORT int cudnnSoftmaxForward(void* h, int, int, const void*, Tensor x, const void*, const void*, Tensor y) {
  return log_two(h, "softmax_forward", x, y);
}
PRESIM_EXPORT int cudnnSoftmaxBackward(void* h, int, int, const void*, Tensor y, const void*, Tensor dy) {
  return log_three(h, "softmax_backward", y, dy, y);
}
PRESIM_EXPORT int cudnnActivationForward(void* h, const void*, const void*, Tensor x, const void*, const void*,
                                         Tensor y) {
  return log_two(h, "activation_forward", x, y);
}
PRESIM_EXPORT int cudnnActivationBackward(void* h, const void*, const void*, Tensor y, const void*, Tensor dy,
                                          const void*, Tensor x) {
  return log_bytes(h, "activation_backward", type_of(y), 2 * tensor_bytes(x) + tensor_bytes(y) + tensor_bytes(dy));
}
PRESIM_EXPORT int cudnnDropoutForward(void* h, const void*, Tensor x, const void*, Tensor y) {
  return log_two(h, "dropout_forward", x, y);
}
PRESIM_EXPORT int cudnnDropoutBackward(void* h, const void*, Tensor dy, const void*, Tensor dx) {
  return log_two(h, "dropout_backward", dy, dx);
}

// ---- grid sampling
PRESIM_EXPORT int cudnnSpatialTfSamplerForward(void* h, const void*, const void*, Tensor x, const void*, const void*,
                                               const void*, Tensor y) {
  return log_two(h, "grid_sampler_forward", x, y);
}
PRESIM_EXPORT int cudnnSpatialTfSamplerBackward(void* h, const void*, const void*, Tensor x, const void*, const void*,
                                                Tensor dx, void*, const void*, Tensor dy) {
  return log_three(h, "grid_sampler_backward", x, dx, dy);
}

// ---- CTC loss
PRESIM_EXPORT int cudnnGetCTCLossWorkspaceSize(void*, Tensor, Tensor, const int*, const int*, const int*, int,
                                               const void*, size_t* bytes) {
  return zero_size(bytes);
}
PRESIM_EXPORT int cudnnGetCTCLossWorkspaceSize_v8(void*, int, const void*, Tensor, Tensor, size_t* bytes) {
  return zero_size(bytes);
}
PRESIM_EXPORT int cudnnCTCLoss(void* h, Tensor probabilities, const void*, const int*, const int*, const int*, void*,
                               Tensor gradients) {
  return log_two(h, "ctc_loss", probabilities, gradients);
}
PRESIM_EXPORT int cudnnCTCLoss_v8(void* h, int, const void*, Tensor probabilities, const void*, const int*, const int*,
                                  const int*, void*, Tensor gradients) {
  return log_two(h, "ctc_loss", probabilities, gradients);
}
