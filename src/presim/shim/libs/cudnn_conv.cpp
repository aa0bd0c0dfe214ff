// cuDNN's older convolutions: one algorithm, no workspace, exact shapes in the log.
#include "libs/cudnn_legacy.h"

namespace {
using namespace presim::libs;
using namespace presim::libs::cudnn;

enum Direction : int32_t { kForward, kBackwardData, kBackwardFilter };
constexpr int kFma = 3;  // cudnnMathType_t: no tensor cores, hence no TF32

// ABI of cudnnConvolution*AlgoPerf_t.
struct Performance {
  int32_t algo, status;
  float time;
  size_t memory;
  int32_t determinism, math;
  int32_t reserved[3];
};
static_assert(sizeof(Performance) == 48);

struct Key {
  int32_t direction, type, compute, math, channels_last, groups, count, unused;
  int32_t image[kMaxDims], filter[kMaxDims], output[kMaxDims];
  int32_t strides[kMaxDims], pads[kMaxDims], dilations[kMaxDims];
};

std::string text_of(const Key& key) {
  static constexpr const char* kNames[] = {"fprop", "dgrad", "wgrad"};
  int spatial = key.count - 2;
  bool tf32 = key.type == 0 && key.math != kFma;
  Text text("conv");
  text.add("direction", kNames[key.direction]).add("n", key.image[0]).add("c", key.image[1]).add("k", key.filter[0]);
  text.add("input", key.image + 2, spatial).add("filter", key.filter + 2, spatial);
  text.add("output", key.output + 2, spatial).add("stride", key.strides, spatial).add("pad", key.pads, spatial);
  text.add("dilation", key.dilations, spatial).add("groups", key.groups).add("dtype", type_name(key.type));
  text.add("compute", tf32 ? "tf32" : type_name(key.compute)).add("layout", key.channels_last ? "nhwc" : "nchw");
  return text;
}

int log_convolution(void* handle, Direction direction, const TensorDesc* image, const FilterDesc* filter,
                    const TensorDesc* output, const ConvolutionDesc* shape) {
  if (handle_of(handle) == nullptr) return kNotInitialized;
  if (image == nullptr || filter == nullptr || output == nullptr || shape == nullptr) return kNullPointer;
  if (image->count < 3 || filter->count != image->count || output->count != image->count) return kBadParam;
  Key key{};
  key.direction = direction;
  key.type = image->type;
  key.compute = shape->compute;
  key.math = shape->math;
  key.channels_last = image->strides[1] == 1 && image->dims[1] > 1;
  key.groups = shape->groups;
  key.count = image->count;
  std::memcpy(key.image, image->dims, sizeof key.image);
  std::memcpy(key.filter, filter->dims, sizeof key.filter);
  std::memcpy(key.output, output->dims, sizeof key.output);
  std::memcpy(key.strides, shape->strides, sizeof key.strides);
  std::memcpy(key.pads, shape->pads, sizeof key.pads);
  std::memcpy(key.dilations, shape->dilations, sizeof key.dilations);
  presim::log_work(stream_of(handle), descriptor(key, text_of));
  return kSuccess;
}

int choose(const ConvolutionDesc* shape, int requested, int* returned, Performance* results) {
  if (returned == nullptr || results == nullptr || requested < 1) return kBadParam;
  *returned = 1;
  results[0] = Performance{};
  results[0].algo = 1;  // implicit GEMM, which supports all shapes
  results[0].determinism = 1;
  results[0].math = shape != nullptr ? shape->math : 0;
  return kSuccess;
}

int no_workspace(size_t* bytes) {
  if (bytes == nullptr) return kNullPointer;
  *bytes = 0;
  return kSuccess;
}

}  // namespace

PRESIM_EXPORT int cudnnConvolutionForward(void* h, const void*, const TensorDesc* x, const void*, const FilterDesc* w,
                                          const void*, const ConvolutionDesc* c, int, void*, size_t, const void*,
                                          const TensorDesc* y, void*) {
  return log_convolution(h, kForward, x, w, y, c);
}
PRESIM_EXPORT int cudnnConvolutionBiasActivationForward(void* h, const void*, const TensorDesc* x, const void*,
                                                        const FilterDesc* w, const void*, const ConvolutionDesc* c, int,
                                                        void*, size_t, const void*, const TensorDesc*, const void*,
                                                        const TensorDesc*, const void*, const ActivationDesc*,
                                                        const TensorDesc* y, void*) {
  return log_convolution(h, kForward, x, w, y, c);
}
PRESIM_EXPORT int cudnnConvolutionBackwardData(void* h, const void*, const FilterDesc* w, const void*,
                                               const TensorDesc* dy, const void*, const ConvolutionDesc* c, int, void*,
                                               size_t, const void*, const TensorDesc* dx, void*) {
  return log_convolution(h, kBackwardData, dx, w, dy, c);
}
PRESIM_EXPORT int cudnnConvolutionBackwardFilter(void* h, const void*, const TensorDesc* x, const void*,
                                                 const TensorDesc* dy, const void*, const ConvolutionDesc* c, int,
                                                 void*, size_t, const void*, const FilterDesc* dw, void*) {
  return log_convolution(h, kBackwardFilter, x, dw, dy, c);
}
PRESIM_EXPORT int cudnnConvolutionBackwardBias(void* h, const void*, const TensorDesc* dy, const void*, const void*,
                                               const TensorDesc* db, void*) {
  return log_bytes(h, "convolution_backward_bias", dy ? dy->type : 0, tensor_bytes(dy) + tensor_bytes(db));
}

PRESIM_EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(void*, const void*, const void*, const ConvolutionDesc* c,
                                                         const void*, int requested, int* returned, Performance* out) {
  return choose(c, requested, returned, out);
}
PRESIM_EXPORT int cudnnGetConvolutionBackwardDataAlgorithm_v7(void*, const void*, const void*, const ConvolutionDesc* c,
                                                              const void*, int requested, int* returned,
                                                              Performance* out) {
  return choose(c, requested, returned, out);
}
PRESIM_EXPORT int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void*, const void*, const void*,
                                                                const ConvolutionDesc* c, const void*, int requested,
                                                                int* returned, Performance* out) {
  return choose(c, requested, returned, out);
}
#define FIND_ENTRY(Name)                                                                                           \
  PRESIM_EXPORT int cudnnFindConvolution##Name##AlgorithmEx(void*, const void*, const void*, const void*,          \
                                                            const void*, const ConvolutionDesc* c, const void*,    \
                                                            void*, int requested, int* returned, Performance* out, \
                                                            void*, size_t) {                                       \
    return choose(c, requested, returned, out);                                                                    \
  }
FIND_ENTRY(Forward)
FIND_ENTRY(BackwardData)
FIND_ENTRY(BackwardFilter)

#define WORKSPACE_ENTRY(Name)                                                                                       \
  PRESIM_EXPORT int cudnnGetConvolution##Name##WorkspaceSize(void*, const void*, const void*, const void*,          \
                                                             const void*, int, size_t* bytes) {                     \
    return no_workspace(bytes);                                                                                     \
  }
WORKSPACE_ENTRY(Forward)
WORKSPACE_ENTRY(BackwardData)
WORKSPACE_ENTRY(BackwardFilter)

#define COUNT_ENTRY(Name)                                                                  \
  PRESIM_EXPORT int cudnnGetConvolution##Name##AlgorithmMaxCount(void*, int* count) {      \
    if (count == nullptr) return kNullPointer;                                             \
    *count = 1;                                                                            \
    return kSuccess;                                                                       \
  }
COUNT_ENTRY(Forward)
COUNT_ENTRY(BackwardData)
COUNT_ENTRY(BackwardFilter)
