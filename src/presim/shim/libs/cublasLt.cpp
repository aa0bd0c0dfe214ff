// cuBLASLt: descriptors are sets of attributes; the product itself is in cublasLt_matmul.cpp.
#include "libs/cublasLt.h"

#include <new>

#include "libs/common.h"

namespace {
using namespace presim::libs;

template <class T>
int create(void** out) {
  if (out == nullptr) return lt::kInvalidValue;
  *out = new T{};
  return 0;
}

int init_layout(void* descriptor, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  if (descriptor == nullptr) return lt::kInvalidValue;
  new (descriptor) lt::MatrixLayout{rows, cols, ld, 0, uint32_t(type), 0, 1, 0, 0};
  return 0;
}

int init_matmul(void* descriptor, int compute, int scale_type) {
  if (descriptor == nullptr) return lt::kInvalidValue;
  auto* matmul = new (descriptor) lt::MatmulDesc{};
  matmul->compute = compute;
  matmul->scale_type = scale_type;
  matmul->epilogue = 1;
  matmul->aux_type = matmul->bias_type = -1;
  return 0;
}

int init_grouped(void* descriptor, int type, int groups, const void* rows, const void* cols, const void* ld) {
  if (descriptor == nullptr) return lt::kInvalidValue;
  auto address = [](const void* array) { return reinterpret_cast<uint64_t>(array); };
  new (descriptor) lt::MatrixLayout{address(rows), address(cols), int64_t(address(ld)), 0, uint32_t(type), 0, groups,
                                    lt::kGrouped, 0};
  return 0;
}

struct Opaque64 {
  uint64_t data[8];
};

}  // namespace

PRESIM_EXPORT int cublasLtCreate(void** handle) { return create_handle(handle, lt::kInvalidValue); }
PRESIM_EXPORT int cublasLtDestroy(void* handle) { return destroy_handle(handle, lt::kInvalidValue); }
PRESIM_EXPORT size_t cublasLtGetVersion() { return 130200; }
PRESIM_EXPORT size_t cublasLtGetCudartVersion() { return 13000; }

PRESIM_EXPORT int cublasLtGetProperty(int type, int* value) {
  if (value == nullptr || type < 0 || type > 2) return lt::kInvalidValue;
  *value = type == 0 ? 13 : type == 1 ? 2 : 0;
  return 0;
}

PRESIM_EXPORT const char* cublasLtGetStatusName(int status) {
  return status == 0 ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_INVALID_VALUE";
}
PRESIM_EXPORT const char* cublasLtGetStatusString(int status) { return cublasLtGetStatusName(status); }

// ---- matrix layouts
PRESIM_EXPORT int cublasLtMatrixLayoutInit_internal(void* d, size_t, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  return init_layout(d, type, rows, cols, ld);
}
PRESIM_EXPORT int cublasLtMatrixLayoutCreate(void** out, int type, uint64_t rows, uint64_t cols, int64_t ld) {
  int status = create<lt::MatrixLayout>(out);
  return status != 0 ? status : init_layout(*out, type, rows, cols, ld);
}
PRESIM_EXPORT int cublasLtGroupedMatrixLayoutInit_internal(void* d, size_t, int type, int groups, const void* rows,
                                                           const void* cols, const void* ld) {
  return init_grouped(d, type, groups, rows, cols, ld);
}
PRESIM_EXPORT int cublasLtGroupedMatrixLayoutCreate(void** out, int type, int groups, const void* rows,
                                                    const void* cols, const void* ld) {
  int status = create<lt::MatrixLayout>(out);
  return status != 0 ? status : init_grouped(*out, type, groups, rows, cols, ld);
}
PRESIM_EXPORT int cublasLtMatrixLayoutDestroy(void* d) {
  delete static_cast<lt::MatrixLayout*>(d);
  return 0;
}
PRESIM_EXPORT int cublasLtMatrixLayoutSetAttribute(void* d, int attribute, const void* value, size_t bytes) {
  return lt::set(d, lt::kLayoutFields, attribute, value, bytes);
}
PRESIM_EXPORT int cublasLtMatrixLayoutGetAttribute(void* d, int attribute, void* value, size_t bytes, size_t* written) {
  return lt::get(d, lt::kLayoutFields, attribute, value, bytes, written);
}

// ---- product descriptors
PRESIM_EXPORT int cublasLtMatmulDescInit_internal(void* d, size_t, int compute, int scale_type) {
  return init_matmul(d, compute, scale_type);
}
PRESIM_EXPORT int cublasLtMatmulDescCreate(void** out, int compute, int scale_type) {
  int status = create<lt::MatmulDesc>(out);
  return status != 0 ? status : init_matmul(*out, compute, scale_type);
}
PRESIM_EXPORT int cublasLtMatmulDescDestroy(void* d) {
  delete static_cast<lt::MatmulDesc*>(d);
  return 0;
}
PRESIM_EXPORT int cublasLtMatmulDescSetAttribute(void* d, int attribute, const void* value, size_t bytes) {
  return lt::set(d, lt::kMatmulFields, attribute, value, bytes);
}
PRESIM_EXPORT int cublasLtMatmulDescGetAttribute(void* d, int attribute, void* value, size_t bytes, size_t* written) {
  return lt::get(d, lt::kMatmulFields, attribute, value, bytes, written);
}

// ---- preferences: there is only one algorithm, so they are ignored
PRESIM_EXPORT int cublasLtMatmulPreferenceInit_internal(void* d, size_t bytes) {
  if (d == nullptr) return lt::kInvalidValue;
  std::memset(d, 0, bytes < sizeof(Opaque64) ? bytes : sizeof(Opaque64));
  return 0;
}
PRESIM_EXPORT int cublasLtMatmulPreferenceCreate(void** out) { return create<Opaque64>(out); }
PRESIM_EXPORT int cublasLtMatmulPreferenceDestroy(void* d) {
  delete static_cast<Opaque64*>(d);
  return 0;
}
PRESIM_EXPORT int cublasLtMatmulPreferenceSetAttribute(void* d, int, const void*, size_t) {
  return d != nullptr ? 0 : lt::kInvalidValue;
}
