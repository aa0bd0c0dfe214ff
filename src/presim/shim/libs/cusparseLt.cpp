// cuSPARSELt: products with a 2:4 sparse operand. The caller owns 512-byte descriptors, which hold ours.
#include <utility>

#include "libs/common.h"

namespace {
using namespace presim::libs;

constexpr int kInvalidValue = 3;

struct Matrix {
  int64_t rows, columns;
  int32_t type;
  int16_t by_rows, structured;  // row-major; two of four values are stored
};

struct Matmul {
  Matrix a, b, c, d;
  int32_t opa, opb, compute, epilogue;
};
static_assert(sizeof(Matmul) <= 512);

struct Key {
  int64_t m, n, k;
  int32_t a, b, c, d, opa, opb, compute, beta, sparse, epilogue;  // sparse: 0: a, 1: b
};

constexpr int kRowMajor = 2;
enum Epilogue : int32_t { kNone = 0, kRelu = 1, kGelu = 2, kBias = 4 };
constexpr int kActivationRelu = 0, kActivationGelu = 3, kBiasPointer = 8;  // attributes of a product

const char* compute_name(int compute) { return compute == 0 ? "i32" : compute == 3 ? "f16" : "f32"; }

std::string text_of(const Key& key) {
  static constexpr const char* kTrans[] = {"N", "T", "C"};
  Text text("gemm");
  text.add("m", key.m).add("n", key.n).add("k", key.k).add("batch", 1);
  text.add("a", data_type(key.a).name).add("b", data_type(key.b).name).add("c", data_type(key.c).name);
  text.add("d", data_type(key.d).name).add("compute", compute_name(key.compute));
  text.add("transa", kTrans[key.opa % 3]).add("transb", kTrans[key.opb % 3]).add("beta", key.beta);
  std::string epilogue = key.epilogue & kGelu ? "gelu" : key.epilogue & kRelu ? "relu" : "";
  if (key.epilogue & kBias) epilogue += epilogue.empty() ? "bias" : "_bias";
  text.add("epilogue", epilogue.empty() ? "none" : epilogue);
  return text.add("sparse", "2:4").add("sparse_operand", key.sparse ? "b" : "a");
}

int init_matrix(Matrix* out, int64_t rows, int64_t columns, int type, int order, bool structured) {
  if (out == nullptr) return kInvalidValue;
  *out = {rows, columns, type, order == kRowMajor, structured};
  return 0;
}

// In column-major order, as in cuBLAS: a row-major product is that of the transposed operands in reverse order.
Key key_of(const Matmul& p, bool reads_c) {
  int64_t m = p.opa == 0 ? p.a.rows : p.a.columns, k = p.opa == 0 ? p.a.columns : p.a.rows;
  int64_t n = p.opb == 0 ? p.b.columns : p.b.rows;
  Key key{m, n, k, p.a.type, p.b.type, p.c.type, p.d.type, p.opa, p.opb, p.compute, reads_c, p.b.structured, p.epilogue};
  if (p.d.by_rows) {
    std::swap(key.m, key.n);
    std::swap(key.a, key.b);
    std::swap(key.opa, key.opb);
    key.sparse = !key.sparse;
  }
  return key;
}

// Half of the values and a two-bit index for each.
int compressed_size(const Matrix& matrix, size_t* bytes, size_t* buffer) {
  size_t kept = size_t(matrix.rows * matrix.columns / 2), bits = size_t(data_type(matrix.type).bits);
  if (bytes != nullptr) *bytes = kept * bits / 8 + kept / 4;
  if (buffer != nullptr) *buffer = 0;
  return 0;
}

void log_transform(const char* name, const Matrix& matrix, void* stream) {
  static constexpr const char* kKeys[] = {"m", "n", nullptr};
  Handle on{};
  on.stream = stream;
  library_kernel(&on, name, kKeys, {0, {matrix.rows, matrix.columns}});
}

}  // namespace

PRESIM_EXPORT int cusparseLtInit(void* handle) { return handle != nullptr ? 0 : kInvalidValue; }
PRESIM_EXPORT int cusparseLtDestroy(const void*) { return 0; }
PRESIM_EXPORT int cusparseLtGetVersion(const void*, int* version) {
  if (version == nullptr) return kInvalidValue;
  *version = 801;
  return 0;
}
PRESIM_EXPORT int cusparseLtDenseDescriptorInit(const void*, Matrix* out, int64_t rows, int64_t columns, int64_t,
                                                uint32_t, int type, int order) {
  return init_matrix(out, rows, columns, type, order, false);
}
PRESIM_EXPORT int cusparseLtStructuredDescriptorInit(const void*, Matrix* out, int64_t rows, int64_t columns, int64_t,
                                                     uint32_t, int type, int order, int) {
  return init_matrix(out, rows, columns, type, order, true);
}
PRESIM_EXPORT int cusparseLtMatmulDescriptorInit(const void*, Matmul* out, int opa, int opb, const Matrix* a,
                                                 const Matrix* b, const Matrix* c, const Matrix* d, int compute) {
  if (out == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr) return kInvalidValue;
  *out = {*a, *b, *c, *d, opa, opb, compute, 0};
  return 0;
}
PRESIM_EXPORT int cusparseLtMatmulDescSetAttribute(const void*, Matmul* matmul, int attribute, const void* value, size_t) {
  if (matmul == nullptr || value == nullptr) return kInvalidValue;
  bool on = attribute == kBiasPointer ? *static_cast<void* const*>(value) != nullptr : *static_cast<const int*>(value) != 0;
  int which = attribute == kBiasPointer ? kBias : attribute == kActivationGelu ? kGelu : attribute == kActivationRelu ? kRelu : 0;
  matmul->epilogue = on ? matmul->epilogue | which : matmul->epilogue & ~which;
  return 0;
}
PRESIM_EXPORT int cusparseLtMatmulPlanInit(const void*, Matmul* plan, const Matmul* matmul, const void*) {
  if (plan == nullptr || matmul == nullptr) return kInvalidValue;
  *plan = *matmul;
  return 0;
}
PRESIM_EXPORT int cusparseLtMatmulAlgGetAttribute(const void*, const void*, int, void* value, size_t bytes) {
  if (value != nullptr) std::memset(value, 0, bytes);
  return 0;
}
PRESIM_EXPORT int cusparseLtMatmulGetWorkspace(const void*, const void*, size_t* bytes) {
  if (bytes != nullptr) *bytes = 0;
  return 0;
}

PRESIM_EXPORT int cusparseLtMatmul(const void*, const Matmul* plan, const void*, const void*, const void*,
                                   const float* beta, const void*, void*, void*, void** streams, int32_t count) {
  if (plan == nullptr) return kInvalidValue;
  Key key = key_of(*plan, beta != nullptr && *beta != 0.0f);
  presim::log_work(streams != nullptr && count > 0 ? streams[0] : nullptr, descriptor(key, text_of));
  return 0;
}
PRESIM_EXPORT int cusparseLtMatmulSearch(const void*, Matmul*, const void*, const void*, const void*, const void*,
                                         const void*, void*, void*, void**, int32_t) {
  return 0;  // there is one algorithm
}

PRESIM_EXPORT int cusparseLtSpMMACompressedSize(const void*, const Matmul* plan, size_t* bytes, size_t* buffer) {
  return plan == nullptr ? kInvalidValue : compressed_size(plan->a, bytes, buffer);
}
PRESIM_EXPORT int cusparseLtSpMMACompressedSize2(const void*, const Matrix* matrix, size_t* bytes, size_t* buffer) {
  return matrix == nullptr ? kInvalidValue : compressed_size(*matrix, bytes, buffer);
}
PRESIM_EXPORT int cusparseLtSpMMACompress2(const void*, const Matrix* matrix, int, int, const void*, void*, void*,
                                           void* stream) {
  if (matrix == nullptr) return kInvalidValue;
  log_transform("cusparseLtSpMMACompress2", *matrix, stream);
  return 0;
}
