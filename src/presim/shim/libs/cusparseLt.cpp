// cuSPARSELt: products with a 2:4 sparse operand. The caller owns 512-byte descriptors; ours lie inside them.
#include "libs/common.h"

namespace {
using namespace presim::libs;

constexpr int kInvalidValue = 3;

struct Matrix {
  int64_t rows, columns;
  int32_t type;
};

struct Matmul {
  Matrix a, b, c, d;
  int32_t opa, opb, compute, padding;
};
static_assert(sizeof(Matmul) <= 512);

struct Key {
  int64_t m, n, k;
  int32_t a, b, c, d, opa, opb, compute, beta;
};

const char* compute_name(int compute) { return compute == 0 ? "i32" : compute == 3 ? "f16" : "f32"; }

std::string text_of(const Key& key) {
  static constexpr const char* kTrans[] = {"N", "T", "C"};
  Text text("gemm");
  text.add("m", key.m).add("n", key.n).add("k", key.k).add("batch", 1);
  text.add("a", data_type(key.a).name).add("b", data_type(key.b).name).add("c", data_type(key.c).name);
  text.add("d", data_type(key.d).name).add("compute", compute_name(key.compute));
  text.add("transa", kTrans[key.opa % 3]).add("transb", kTrans[key.opb % 3]).add("beta", key.beta);
  return text.add("epilogue", "none").add("sparse", "2:4");
}

int init_matrix(Matrix* out, int64_t rows, int64_t columns, int type) {
  if (out == nullptr) return kInvalidValue;
  *out = {rows, columns, type};
  return 0;
}

// Half of the values and two bits for the place of each.
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
                                                uint32_t, int type, int) {
  return init_matrix(out, rows, columns, type);
}
PRESIM_EXPORT int cusparseLtStructuredDescriptorInit(const void*, Matrix* out, int64_t rows, int64_t columns, int64_t,
                                                     uint32_t, int type, int, int) {
  return init_matrix(out, rows, columns, type);
}
PRESIM_EXPORT int cusparseLtMatmulDescriptorInit(const void*, Matmul* out, int opa, int opb, const Matrix* a,
                                                 const Matrix* b, const Matrix* c, const Matrix* d, int compute) {
  if (out == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr) return kInvalidValue;
  *out = {*a, *b, *c, *d, opa, opb, compute, 0};
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
  const Matmul& p = *plan;
  int64_t m = p.opa == 0 ? p.a.rows : p.a.columns, k = p.opa == 0 ? p.a.columns : p.a.rows;
  Key key{m, p.opb == 0 ? p.b.columns : p.b.rows, k, p.a.type, p.b.type, p.c.type, p.d.type, p.opa, p.opb, p.compute,
          beta != nullptr && *beta != 0.0f};
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
