// cuSPARSE: handles, matrices as their sizes, and products with them; the other routines are device work by name.
#include "libs/common.h"

namespace {
using namespace presim::libs;

constexpr int kNotInitialized = 1, kInvalidValue = 3;

struct Matrix {
  int64_t rows = 0, columns = 0, nonzeros = 0, batch = 1;
  int32_t type = 0;
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

struct Product {
  int64_t name, m, n, k, nonzeros, batch, type;
};

// `sparse` may be any operand; op(A) is m x k, the result m x n.
int log_product(const void* handle, const char* name, int64_t m, int64_t n, int64_t k, const Matrix& sparse) {
  if (handle_of(handle) == nullptr) return kNotInitialized;
  Product key{reinterpret_cast<int64_t>(name), m, n, k, sparse.nonzeros, sparse.batch, sparse.type};
  int32_t work = descriptor(key, [name](const Product& p) {
    Text text("kernel");
    text.add("name", name).add("grid", "0,0,0").add("block", "0,0,0").add("shared", 0);
    text.add("m", p.m).add("n", p.n).add("k", p.k).add("nnz", p.nonzeros).add("batch", p.batch);
    text.add("dtype", data_type(int(p.type)).name);
    return std::string(text);
  });
  presim::log_work(stream_of(handle), work);
  return 0;
}

int64_t rows(const Matrix& matrix, int op) { return op == 0 ? matrix.rows : matrix.columns; }
int64_t columns(const Matrix& matrix, int op) { return op == 0 ? matrix.columns : matrix.rows; }

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
                                    int, int, int, int type) {
  return make(out, {rows, columns, nonzeros, 1, type});
}
PRESIM_EXPORT int cusparseCreateCsc(Matrix** out, int64_t rows, int64_t columns, int64_t nonzeros, void*, void*, void*,
                                    int, int, int, int type) {
  return make(out, {rows, columns, nonzeros, 1, type});
}
PRESIM_EXPORT int cusparseCreateCoo(Matrix** out, int64_t rows, int64_t columns, int64_t nonzeros, void*, void*, void*,
                                    int, int, int type) {
  return make(out, {rows, columns, nonzeros, 1, type});
}
PRESIM_EXPORT int cusparseCreateBsr(Matrix** out, int64_t rows, int64_t columns, int64_t blocks, int64_t high,
                                    int64_t wide, void*, void*, void*, int, int, int, int type, int) {
  return make(out, {rows * high, columns * wide, blocks * high * wide, 1, type});
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
  return log_product(h, "cusparseSpMM", rows(*a, opa), columns(*b, opb), columns(*a, opa), *a);
}
PRESIM_EXPORT int cusparseSpMV(void* h, int opa, const void*, const Matrix* a, const Matrix* x, const void*,
                               const Matrix*, int, int, void*) {
  if (a == nullptr || x == nullptr) return kInvalidValue;
  return log_product(h, "cusparseSpMV", rows(*a, opa), 1, columns(*a, opa), *a);
}
PRESIM_EXPORT int cusparseSDDMM(void* h, int opa, int opb, const void*, const Matrix* a, const Matrix* b, const void*,
                                const Matrix* c, int, int, void*) {
  if (a == nullptr || b == nullptr || c == nullptr) return kInvalidValue;
  return log_product(h, "cusparseSDDMM", rows(*a, opa), columns(*b, opb), columns(*a, opa), *c);
}
PRESIM_EXPORT int cusparseSpSV_solve(void* h, int, const void*, const Matrix* a) {
  return a == nullptr ? kInvalidValue : log_product(h, "cusparseSpSV", a->rows, 1, a->columns, *a);
}
PRESIM_EXPORT int cusparseSpSM_solve(void* h, int, int opb, const void*, const Matrix* a, const Matrix* b) {
  if (a == nullptr || b == nullptr) return kInvalidValue;
  return log_product(h, "cusparseSpSM", a->rows, columns(*b, opb), a->columns, *a);
}
