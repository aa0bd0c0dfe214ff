// cuDNN's recurrent layers: the position of each weight in the packed buffer (frameworks slice it), and the products
// of a pass.
#include "libs/cudnn_legacy.h"
#include "libs/gemm.h"

namespace {
using namespace presim::libs;
using namespace presim::libs::cudnn;

enum Cell : int { kRelu, kTanh, kLstm, kGru };
enum Bias : int { kNoBias, kInputBias, kDoubleBias, kRecurrentBias };

int64_t gates(const RnnDesc& d) { return d.cell == kLstm ? 4 : d.cell == kGru ? 3 : 1; }
int64_t directions(const RnnDesc& d) { return d.bidirectional ? 2 : 1; }
int64_t state_size(const RnnDesc& d) { return d.projection > 0 ? d.projection : d.hidden; }
bool projects(const RnnDesc& d) { return d.projection > 0 && d.projection != d.hidden; }
int64_t inputs(const RnnDesc& d, int64_t layer) { return layer == 0 ? d.input : directions(d) * state_size(d); }

bool has_bias(const RnnDesc& d, int64_t linear) {
  switch (d.bias) {
    case kDoubleBias: return true;
    case kInputBias: return linear < gates(d);
    case kRecurrentBias: return linear >= gates(d);
    default: return false;
  }
}

struct Matrix {
  int64_t rows = 0, columns = 0;
};

// Gates of the input first, then those of the state, then the projection.
Matrix matrix_of(const RnnDesc& d, int64_t pseudo_layer, int64_t linear) {
  if (linear < gates(d)) return {d.hidden, inputs(d, pseudo_layer / directions(d))};
  if (linear < 2 * gates(d)) return {d.hidden, state_size(d)};
  return projects(d) ? Matrix{state_size(d), d.hidden} : Matrix{};
}

int64_t linear_count(const RnnDesc& d) { return 2 * gates(d) + (projects(d) ? 1 : 0); }

// Elements before a matrix (all matrices come first) or, if `bias`, before a bias (they follow, in the same order).
int64_t offset_of(const RnnDesc& d, int64_t pseudo_layer, int64_t linear, bool bias) {
  int64_t total = d.layers * directions(d), matrices = 0, biases = 0, before_matrix = 0, before_bias = 0;
  for (int64_t layer = 0; layer < total; ++layer) {
    for (int64_t i = 0; i < linear_count(d); ++i) {
      if (layer == pseudo_layer && i == linear) {
        before_matrix = matrices;
        before_bias = biases;
      }
      Matrix matrix = matrix_of(d, layer, i);
      matrices += matrix.rows * matrix.columns;
      biases += i < 2 * gates(d) && has_bias(d, i) ? d.hidden : 0;
    }
  }
  if (pseudo_layer < 0) return matrices + biases;
  return bias ? matrices + before_bias : before_matrix;
}

int64_t bytes_of(const RnnDesc& d, int64_t elements) { return elements * type_bits(d.type) / 8; }

void describe_part(TensorDesc* out, int type, int64_t rows, int64_t columns) {
  if (out == nullptr) return;
  *out = TensorDesc{};
  out->type = type;
  if (rows == 0) return;  // no such part
  out->count = 3;
  int32_t dims[] = {1, int32_t(rows), int32_t(columns)}, strides[] = {int32_t(rows * columns), int32_t(columns), 1};
  std::memcpy(out->dims, dims, sizeof dims);
  std::memcpy(out->strides, strides, sizeof strides);
}

// ---- passes
struct Pass {
  void* handle;
  const RnnDesc* rnn;
  const RnnDataDesc* data;
  int64_t tokens() const { return int64_t(data->length) * data->batch; }
};

int cuda_type(int cudnn_type) { return cudnn_type == 1 ? kF64 : cudnn_type == 2 ? kF16 : cudnn_type == 9 ? kBF16 : kF32; }

void product(const Pass& pass, int64_t m, int64_t n, int64_t k, int beta, int64_t times = 1) {
  int type = cuda_type(pass.rnn->type);
  int compute = type == kF64 ? kCompute64F : pass.rnn->math_type == 3 || type != kF32 ? kCompute32F : kCompute32FFastTF32;
  Gemm key{m, n, k, 1, type, type, type, type, compute, 1, 0};
  key.beta = beta;
  for (int64_t i = 0; i < times; ++i) log_gemm(stream_of(pass.handle), key);
}

// The input's product covers all steps at once; the state's product waits for the previous step.
void forward(const Pass& pass) {
  const RnnDesc& d = *pass.rnn;
  for (int64_t layer = 0; layer < d.layers * directions(d); ++layer) {
    product(pass, gates(d) * d.hidden, pass.tokens(), inputs(d, layer / directions(d)), 0);
    product(pass, gates(d) * d.hidden, pass.data->batch, state_size(d), 1, pass.data->length);
    if (projects(d)) product(pass, state_size(d), pass.data->batch, d.hidden, 0, pass.data->length);
    log_bytes(pass.handle, "rnn_cell_forward", d.type, bytes_of(d, pass.tokens() * d.hidden * (gates(d) + 2)));
  }
}

void backward_data(const Pass& pass) {
  const RnnDesc& d = *pass.rnn;
  for (int64_t layer = d.layers * directions(d) - 1; layer >= 0; --layer) {
    if (projects(d)) product(pass, d.hidden, pass.data->batch, state_size(d), 0, pass.data->length);
    product(pass, state_size(d), pass.data->batch, gates(d) * d.hidden, 1, pass.data->length);
    product(pass, inputs(d, layer / directions(d)), pass.tokens(), gates(d) * d.hidden, 0);
    log_bytes(pass.handle, "rnn_cell_backward", d.type, bytes_of(d, pass.tokens() * d.hidden * (2 * gates(d) + 3)));
  }
}

void backward_weights(const Pass& pass) {
  const RnnDesc& d = *pass.rnn;
  for (int64_t layer = d.layers * directions(d) - 1; layer >= 0; --layer) {
    product(pass, gates(d) * d.hidden, inputs(d, layer / directions(d)), pass.tokens(), 1);
    product(pass, gates(d) * d.hidden, state_size(d), pass.tokens(), 1);
    if (projects(d)) product(pass, state_size(d), d.hidden, pass.tokens(), 1);
  }
}

int run(void (*pass)(const Pass&), void* handle, const RnnDesc* rnn, const RnnDataDesc* data) {
  if (handle_of(handle) == nullptr) return kNotInitialized;
  if (rnn == nullptr || data == nullptr) return kNullPointer;
  pass({handle, rnn, data});
  return kSuccess;
}

}  // namespace

PRESIM_EXPORT int cudnnSetRNNDescriptor_v8(RnnDesc* d, int algo, int cell, int bias, int direction, int input_mode,
                                           int type, int, int math_type, int32_t input, int32_t hidden,
                                           int32_t projection, int32_t layers, DropoutDesc* dropout, uint32_t) {
  if (d == nullptr) return kNullPointer;
  *d = {algo, cell, bias, direction, input_mode, type, math_type, input, hidden, projection, layers, dropout};
  return kSuccess;
}
PRESIM_EXPORT int cudnnSetRNNDataDescriptor(RnnDataDesc* d, int type, int layout, int length, int batch, int size,
                                            const int*, void*) {
  if (d == nullptr) return kNullPointer;
  *d = {type, layout, length, batch, size};
  return kSuccess;
}

PRESIM_EXPORT int cudnnGetRNNWeightSpaceSize(void*, const RnnDesc* d, size_t* bytes) {
  if (d == nullptr || bytes == nullptr) return kNullPointer;
  *bytes = size_t(bytes_of(*d, offset_of(*d, -1, 0, false)));
  return kSuccess;
}

PRESIM_EXPORT int cudnnGetRNNWeightParams(void*, const RnnDesc* d, int32_t pseudo_layer, size_t, const char* space,
                                          int32_t linear, TensorDesc* matrix_desc, const char** matrix,
                                          TensorDesc* bias_desc, const char** bias) {
  if (d == nullptr) return kNullPointer;
  Matrix shape = matrix_of(*d, pseudo_layer, linear);
  bool biased = linear < 2 * gates(*d) && has_bias(*d, linear);
  describe_part(matrix_desc, d->type, shape.rows, shape.columns);
  describe_part(bias_desc, d->type, biased ? d->hidden : 0, 1);
  if (matrix != nullptr) {
    *matrix = shape.rows ? space + bytes_of(*d, offset_of(*d, pseudo_layer, linear, false)) : nullptr;
  }
  if (bias != nullptr) *bias = biased ? space + bytes_of(*d, offset_of(*d, pseudo_layer, linear, true)) : nullptr;
  return kSuccess;
}

// Estimates: the workspace holds the inputs' products, the reserve all steps' data for the backward pass.
PRESIM_EXPORT int cudnnGetRNNTempSpaceSizes(void*, const RnnDesc* d, int training, const RnnDataDesc* x,
                                            size_t* workspace, size_t* reserve) {
  if (d == nullptr || x == nullptr) return kNullPointer;
  int64_t tokens = int64_t(x->length) * x->batch;
  if (workspace != nullptr) *workspace = size_t(bytes_of(*d, tokens * gates(*d) * d->hidden * directions(*d)));
  int64_t kept = tokens * d->layers * directions(*d) * d->hidden * (gates(*d) + 2);
  if (reserve != nullptr) *reserve = training ? size_t(bytes_of(*d, kept)) : 0;
  return kSuccess;
}

PRESIM_EXPORT int cudnnRNNForward(void* h, const RnnDesc* d, int, const int32_t*, const RnnDataDesc* x) {
  return run(forward, h, d, x);
}
PRESIM_EXPORT int cudnnRNNBackwardData_v8(void* h, const RnnDesc* d, const int32_t*, const RnnDataDesc* y) {
  return run(backward_data, h, d, y);
}
PRESIM_EXPORT int cudnnRNNBackwardWeights_v8(void* h, const RnnDesc* d, int, const int32_t*, const RnnDataDesc* x) {
  return run(backward_weights, h, d, x);
}
