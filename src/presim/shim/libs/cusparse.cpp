// cuSPARSE: handles, matrices as sizes, and their products. Other routines are device work by name.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "libs/common.h"

namespace {
using namespace presim::libs;

constexpr int kNotInitialized = 1, kInvalidValue = 3;

enum Format : int32_t { kDense, kCsr, kCsc, kCoo, kBsr };
constexpr const char* kFormats[] = {"dense", "csr", "csc", "coo", "bsr"};

struct Matrix {
  int64_t rows = 0, columns = 0, nonzeros = 0, batch = 1;
  int32_t type = 0, format = kDense;
  int64_t index_bytes = 4, block = 1;  // of one index; side of a block
};

int make(Matrix** out, Matrix matrix) {
  if (out == nullptr) return kInvalidValue;
  *out = new Matrix(matrix);
  return 0;
}

int drop(const Matrix* matrix) {
  delete matrix;
  return 0;
}

int64_t index_bytes(int type) { return type == 1 ? 2 : type == 3 ? 8 : 4; }

struct Product {
  int64_t operation, m, n, k, nonzeros, other, result, batch, index_bytes, block;
  int32_t type, format;
};

// op(A) is m x k, the result m x n. `sparse` is the sparse operand, for SDDMM the result. `other` and `result` are the
// non-zeros of the second operand and of the result if these are sparse too.
int log_product(const void* handle, const char* operation, int64_t m, int64_t n, int64_t k, const Matrix& sparse,
                int64_t other = 0, int64_t result = 0) {
  if (handle_of(handle) == nullptr) return kNotInitialized;
  Product key{reinterpret_cast<int64_t>(operation), m,      n, k, sparse.nonzeros, other, result, sparse.batch,
              sparse.index_bytes, sparse.block, sparse.type, sparse.format};
  int32_t work = descriptor(key, [operation](const Product& p) {
    Text text("sparse_product");
    text.add("operation", operation).add("m", p.m).add("n", p.n).add("k", p.k).add("nnz", p.nonzeros);
    text.add("other", p.other).add("result", p.result).add("batch", p.batch).add("dtype", data_type(p.type).name);
    text.add("format", kFormats[p.format]).add("index_bytes", p.index_bytes).add("block", p.block);
    return std::string(text);
  });
  presim::log_work(stream_of(handle), work);
  return 0;
}

// Kernels around a product that read or write these bytes once.
int log_bytes(const void* handle, const char* name, int64_t bytes) {
  if (handle_of(handle) == nullptr) return kNotInitialized;
  struct Key {
    int64_t name, bytes;
  };
  int32_t work = descriptor(Key{reinterpret_cast<int64_t>(name), bytes}, [name](const Key& key) {
    return std::string(Text(name).add("bytes", key.bytes));
  });
  presim::log_work(stream_of(handle), work);
  return 0;
}

int64_t rows(const Matrix& matrix, int op) { return op == 0 ? matrix.rows : matrix.columns; }
int64_t columns(const Matrix& matrix, int op) { return op == 0 ? matrix.columns : matrix.rows; }
int64_t pattern_bytes(const Matrix& matrix) { return (matrix.nonzeros + matrix.rows + 1) * matrix.index_bytes; }

// The number of non-zeros of a sparse result depends on unknown values. It is estimated as that of `hits` independent
// draws out of `places` places, of which some coincide.
int64_t distinct(double hits, double places) {
  return places > 0 ? int64_t(std::llround(-places * std::expm1(-hits / places))) : 0;
}

void note_result(const char* what, std::atomic<bool>& noted, int64_t nonzeros, int64_t most, const char* besides) {
  if (noted.exchange(true)) return;
  presim::note("remark The result of a sparse " + std::string(what) + " has as many non-zeros as operands whose " +
               "non-zeros are scattered evenly give (the first: " + std::to_string(nonzeros) + ", at most " +
               std::to_string(most) + "): their positions are values of the device." + besides);
}

}  // namespace

PRESIM_EXPORT int cusparseCreate(void** handle) { return create_handle(handle, kInvalidValue); }
PRESIM_EXPORT int cusparseDestroy(void* handle) { return destroy_handle(handle, kNotInitialized); }
PRESIM_EXPORT int cusparseSetStream(void* handle, void* stream) { return set_stream(handle, stream, kNotInitialized); }
PRESIM_EXPORT int cusparseGetStream(void* handle, void** stream) { return get_stream(handle, stream, kNotInitialized); }
PRESIM_EXPORT int cusparseSetPointerMode(void* handle, int mode) {
  if (handle_of(handle) == nullptr) return kNotInitialized;
  handle_of(handle)->pointer_mode = mode;
  return 0;
}
PRESIM_EXPORT int cusparseGetVersion(void*, int* version) {
  if (version == nullptr) return kInvalidValue;
  *version = 12700;
  return 0;
}
PRESIM_EXPORT const char* cusparseGetErrorString(int status) {
  return status == 0 ? "success" : status == kNotInitialized ? "initialization error" : "invalid value";
}
PRESIM_EXPORT const char* cusparseGetErrorName(int status) {
  return status == 0 ? "CUSPARSE_STATUS_SUCCESS" : "CUSPARSE_STATUS_INVALID_VALUE";
}

// ---- sparse matrices
PRESIM_EXPORT int cusparseCreateCsr(Matrix** out, int64_t rows, int64_t columns, int64_t nonzeros, void*, void*, void*,
                                    int, int indices, int, int type) {
  return make(out, {rows, columns, nonzeros, 1, type, kCsr, index_bytes(indices)});
}
PRESIM_EXPORT int cusparseCreateCsc(Matrix** out, int64_t rows, int64_t columns, int64_t nonzeros, void*, void*, void*,
                                    int, int indices, int, int type) {
  return make(out, {rows, columns, nonzeros, 1, type, kCsc, index_bytes(indices)});
}
PRESIM_EXPORT int cusparseCreateCoo(Matrix** out, int64_t rows, int64_t columns, int64_t nonzeros, void*, void*, void*,
                                    int indices, int, int type) {
  return make(out, {rows, columns, nonzeros, 1, type, kCoo, index_bytes(indices)});
}
PRESIM_EXPORT int cusparseCreateBsr(Matrix** out, int64_t rows, int64_t columns, int64_t blocks, int64_t high,
                                    int64_t wide, void*, void*, void*, int, int indices, int, int type, int) {
  return make(out, {rows * high, columns * wide, blocks * high * wide, 1, type, kBsr, index_bytes(indices), high});
}
PRESIM_EXPORT int cusparseCsrSetStridedBatch(Matrix* matrix, int batch, int64_t, int64_t) {
  if (matrix == nullptr) return kInvalidValue;
  matrix->batch = batch;
  return 0;
}
PRESIM_EXPORT int cusparseSpMatGetSize(const Matrix* matrix, int64_t* rows, int64_t* columns, int64_t* nonzeros) {
  if (matrix == nullptr) return kInvalidValue;
  if (rows != nullptr) *rows = matrix->rows;
  if (columns != nullptr) *columns = matrix->columns;
  if (nonzeros != nullptr) *nonzeros = matrix->nonzeros;
  return 0;
}
PRESIM_EXPORT int cusparseDestroySpMat(const Matrix* matrix) { return drop(matrix); }

// ---- dense matrices and vectors
PRESIM_EXPORT int cusparseCreateDnMat(Matrix** out, int64_t rows, int64_t columns, int64_t, void*, int type, int) {
  return make(out, {rows, columns, rows * columns, 1, type});
}
PRESIM_EXPORT int cusparseDnMatSetStridedBatch(Matrix* matrix, int batch, int64_t) {
  if (matrix == nullptr) return kInvalidValue;
  matrix->batch = batch;
  return 0;
}
PRESIM_EXPORT int cusparseDestroyDnMat(const Matrix* matrix) { return drop(matrix); }
PRESIM_EXPORT int cusparseCreateDnVec(Matrix** out, int64_t size, void*, int type) {
  return make(out, {size, 1, size, 1, type});
}
PRESIM_EXPORT int cusparseDestroyDnVec(const Matrix* matrix) { return drop(matrix); }

// ---- products
PRESIM_EXPORT int cusparseSpMM(void* h, int opa, int opb, const void*, const Matrix* a, const Matrix* b, const void*,
                               const Matrix* c, int, int, void*) {
  if (a == nullptr || b == nullptr || c == nullptr) return kInvalidValue;
  return log_product(h, "spmm", rows(*a, opa), columns(*b, opb), columns(*a, opa), *a);
}
PRESIM_EXPORT int cusparseSpMV(void* h, int opa, const void*, const Matrix* a, const Matrix* x, const void*,
                               const Matrix*, int, int, void*) {
  if (a == nullptr || x == nullptr) return kInvalidValue;
  return log_product(h, "spmv", rows(*a, opa), 1, columns(*a, opa), *a);
}
PRESIM_EXPORT int cusparseSDDMM(void* h, int opa, int opb, const void*, const Matrix* a, const Matrix* b, const void*,
                                const Matrix* c, int, int, void*) {
  if (a == nullptr || b == nullptr || c == nullptr) return kInvalidValue;
  return log_product(h, "sddmm", rows(*a, opa), columns(*b, opb), columns(*a, opa), *c);
}
PRESIM_EXPORT int cusparseSpSV_solve(void* h, int, const void*, const Matrix* a) {
  return a == nullptr ? kInvalidValue : log_product(h, "spsv", a->rows, 1, a->columns, *a);
}
PRESIM_EXPORT int cusparseSpSM_solve(void* h, int, int opb, const void*, const Matrix* a, const Matrix* b) {
  if (a == nullptr || b == nullptr) return kInvalidValue;
  return log_product(h, "spsm", a->rows, columns(*b, opb), a->columns, *a);
}

// ---- kernels over the pattern before a product
PRESIM_EXPORT int cusparseXcoo2csr(void* h, const void*, int nonzeros, int rows) {
  return log_bytes(h, "cusparseXcoo2csr", (int64_t(nonzeros) + rows + 1) * 4);
}
// Sorted by row and column: indices and their permutation, read and written in four radix passes.
PRESIM_EXPORT int cusparseXcoosortByRow(void* h, int, int, int nonzeros) {
  return log_bytes(h, "cusparseXcoosortByRow", int64_t(nonzeros) * (4 + 4 + 4) * 2 * 4);
}
PRESIM_EXPORT int cusparseXcsrsort(void* h, int, int, int nonzeros) {
  return log_bytes(h, "cusparseXcsrsort", int64_t(nonzeros) * (4 + 4) * 2 * 4);
}
PRESIM_EXPORT int cusparseSpMM_preprocess(void* h, int, int, const void*, const Matrix* a) {
  return a == nullptr ? kInvalidValue : log_bytes(h, "cusparseSpMM_preprocess", pattern_bytes(*a));
}
PRESIM_EXPORT int cusparseSpMV_preprocess(void* h, int, const void*, const Matrix* a) {
  return a == nullptr ? kInvalidValue : log_bytes(h, "cusparseSpMV_preprocess", pattern_bytes(*a));
}
PRESIM_EXPORT int cusparseSDDMM_preprocess(void* h, int, int, const void*, const Matrix*, const Matrix*, const void*,
                                           const Matrix* c) {
  return c == nullptr ? kInvalidValue : log_bytes(h, "cusparseSDDMM_preprocess", pattern_bytes(*c));
}

// ---- products of two sparse matrices: each step is called twice, first for the size of its buffer
PRESIM_EXPORT int cusparseSpGEMM_workEstimation(void* h, int, int, const void*, const Matrix* a, const Matrix* b,
                                                const void*, Matrix*, int, int, void*, size_t* bytes, void* buffer) {
  if (a == nullptr || b == nullptr || bytes == nullptr) return kInvalidValue;
  if (buffer != nullptr) return log_bytes(h, "cusparseSpGEMM_workEstimation", pattern_bytes(*a) + pattern_bytes(*b));
  *bytes = 1;  // called again with a buffer
  return 0;
}
PRESIM_EXPORT int cusparseSpGEMM_compute(void* h, int opa, int opb, const void*, const Matrix* a, const Matrix* b,
                                         const void*, Matrix* c, int, int, void*, size_t* bytes, void* buffer) {
  if (a == nullptr || b == nullptr || c == nullptr || bytes == nullptr) return kInvalidValue;
  int64_t m = rows(*a, opa), n = columns(*b, opb), k = columns(*a, opa);
  double products = double(a->nonzeros) * double(b->nonzeros) / double(std::max<int64_t>(k, 1));
  *bytes = 1;
  if (buffer == nullptr) return 0;
  c->nonzeros = distinct(products, double(m) * double(n));
  int64_t most = int64_t(std::min({products, double(m) * double(n), 9e18}));
  static std::atomic<bool> noted{false};
  note_result("product", noted, c->nonzeros, most, " The product's workspace is not counted in memory.");
  return log_product(h, "spgemm", m, n, k, *a, b->nonzeros, c->nonzeros);
}
PRESIM_EXPORT int cusparseSpGEMM_copy(void* h, int, int, const void*, const Matrix*, const Matrix*, const void*,
                                      const Matrix* c) {
  if (c == nullptr) return kInvalidValue;
  int64_t values = c->nonzeros * data_type(c->type).bits / 8;
  return log_bytes(h, "cusparseSpGEMM_copy", 2 * (pattern_bytes(*c) + values));
}

// ---- sums of two sparse matrices
PRESIM_EXPORT int cusparseXcsrgeam2Nnz(void* h, int m, int n, const void*, int a, const void*, const void*, const void*,
                                       int b, const void*, const void*, const void*, void*, int* total, void*) {
  if (total == nullptr) return kInvalidValue;
  double places = double(m) * double(n);
  double both = places > 0 ? double(a) * double(b) / places : 0;
  *total = int(std::llround(double(a) + double(b) - both));
  static std::atomic<bool> noted{false};
  note_result("sum", noted, *total, int64_t(a) + b, "");
  return log_bytes(h, "cusparseXcsrgeam2Nnz", (int64_t(a) + b + 3 * (int64_t(m) + 1)) * 4);
}
#define SUM(Letter, type_bytes)                                                                                        \
  PRESIM_EXPORT int cusparse##Letter##csrgeam2(void* h, int m, int n, const void*, const void*, int a, const void*,    \
                                               const void*, const void*, const void*, const void*, int b) {            \
    double places = double(m) * double(n), both = places > 0 ? double(a) * double(b) / places : 0;                     \
    int64_t entries = 2 * (int64_t(a) + b) - std::llround(both);                                                       \
    return log_bytes(h, "cusparse" #Letter "csrgeam2", entries * (4 + type_bytes) + 12 * (int64_t(m) + 1));            \
  }
SUM(S, 4) SUM(D, 8) SUM(C, 8) SUM(Z, 16)

// ---- the older interface for matrices of square blocks, as PyTorch calls it
#define BLOCKED(Letter, type)                                                                                          \
  PRESIM_EXPORT int cusparse##Letter##bsrmm(void* h, int, int opa, int, int mb, int n, int kb, int blocks,             \
                                            const void*, const void*, const void*, const void*, const void*,           \
                                            int side) {                                                                \
    int64_t s = side;                                                                                                  \
    Matrix a{mb * s, kb * s, blocks * s * s, 1, type, kBsr, 4, s};                                                     \
    return log_product(h, "spmm", rows(a, opa), n, columns(a, opa), a);                                                \
  }                                                                                                                    \
  PRESIM_EXPORT int cusparse##Letter##bsrmv(void* h, int, int opa, int mb, int kb, int blocks, const void*,            \
                                            const void*, const void*, const void*, const void*, int side) {            \
    int64_t s = side;                                                                                                  \
    Matrix a{mb * s, kb * s, blocks * s * s, 1, type, kBsr, 4, s};                                                     \
    return log_product(h, "spmv", rows(a, opa), 1, columns(a, opa), a);                                                \
  }
BLOCKED(S, 0) BLOCKED(D, 1) BLOCKED(C, 4) BLOCKED(Z, 5)
