// cuBLAS: matrix products. Each entry becomes one gemm descriptor with the exact sizes, types and layouts.
#include "libs/gemm.h"

namespace {
using namespace presim::libs;

constexpr int kNotInitialized = 1, kInvalidValue = 7;

struct Call {
  const void* handle;
  int transa, transb;
  int64_t m, n, k, batch;
  const void* beta;
  int beta_bytes;
  int a, b, c, compute;
};

int gemm(const Call& call) {
  Handle* handle = handle_of(call.handle);
  if (handle == nullptr) return kNotInitialized;
  if (call.m < 0 || call.n < 0 || call.k < 0 || call.batch < 0) return kInvalidValue;
  bool tf32 = call.compute == kCompute32F && (handle->math_mode & 15) == kTf32MathMode &&
              (call.a == kF32 || call.a == kC64);
  Gemm key{call.m, call.n, call.k, call.batch, call.a, call.b, call.c, call.c,
           tf32 ? int(kCompute32FFastTF32) : call.compute, call.transa, call.transb};
  key.beta = reads_c(call.beta, call.beta_bytes, handle->pointer_mode);
  log_gemm(handle->stream, key);
  return 0;
}

int gemv(const void* handle, int trans, int64_t m, int64_t n, const void* beta, int bytes, int type, int compute,
         int64_t batch = 1) {
  return gemm({handle, trans, 0, trans ? n : m, 1, trans ? m : n, batch, beta, bytes, type, type, type, compute});
}

}  // namespace

// Typed entries differ only in the type, and _64 entries in the width of the sizes (the same register).
#define TYPED_ENTRIES(P, type, bytes, compute)                                                                       \
  PRESIM_EXPORT int cublas##P##gemm_v2(void* h, int ta, int tb, int m, int n, int k, const void*, const void*, int,  \
                                       const void*, int, const void* beta, void*, int) {                             \
    return gemm({h, ta, tb, m, n, k, 1, beta, bytes, type, type, type, compute});                                    \
  }                                                                                                                  \
  PRESIM_EXPORT int cublas##P##gemm_v2_64(void* h, int ta, int tb, int64_t m, int64_t n, int64_t k, const void*,     \
                                          const void*, int64_t, const void*, int64_t, const void* beta, void*,       \
                                          int64_t) {                                                                 \
    return gemm({h, ta, tb, m, n, k, 1, beta, bytes, type, type, type, compute});                                    \
  }                                                                                                                  \
  PRESIM_EXPORT int cublas##P##gemmBatched(void* h, int ta, int tb, int m, int n, int k, const void*, const void*,   \
                                           int, const void*, int, const void* beta, void*, int, int batch) {         \
    return gemm({h, ta, tb, m, n, k, batch, beta, bytes, type, type, type, compute});                                \
  }                                                                                                                  \
  PRESIM_EXPORT int cublas##P##gemmStridedBatched(void* h, int ta, int tb, int m, int n, int k, const void*,         \
                                                  const void*, int, long long, const void*, int, long long,          \
                                                  const void* beta, void*, int, long long, int batch) {              \
    return gemm({h, ta, tb, m, n, k, batch, beta, bytes, type, type, type, compute});                                \
  }
#define GEMV_ENTRIES(P, type, bytes, compute)                                                                        \
  PRESIM_EXPORT int cublas##P##gemv_v2(void* h, int t, int m, int n, const void*, const void*, int, const void*,     \
                                       int, const void* beta, void*, int) {                                          \
    return gemv(h, t, m, n, beta, bytes, type, compute);                                                             \
  }                                                                                                                  \
  PRESIM_EXPORT int cublas##P##gemv_v2_64(void* h, int t, int64_t m, int64_t n, const void*, const void*, int64_t,   \
                                          const void*, int64_t, const void* beta, void*, int64_t) {                  \
    return gemv(h, t, m, n, beta, bytes, type, compute);                                                             \
  }

TYPED_ENTRIES(H, kF16, 2, kCompute16F)
TYPED_ENTRIES(S, kF32, 4, kCompute32F)
TYPED_ENTRIES(D, kF64, 8, kCompute64F)
TYPED_ENTRIES(C, kC64, 8, kCompute32F)
TYPED_ENTRIES(Z, kC128, 16, kCompute64F)
GEMV_ENTRIES(S, kF32, 4, kCompute32F)
GEMV_ENTRIES(D, kF64, 8, kCompute64F)
GEMV_ENTRIES(C, kC64, 8, kCompute32F)
GEMV_ENTRIES(Z, kC128, 16, kCompute64F)

PRESIM_EXPORT int cublasGemmEx(void* h, int ta, int tb, int m, int n, int k, const void*, const void*, int atype, int,
                               const void*, int btype, int, const void* beta, void*, int ctype, int, int compute, int) {
  return gemm({h, ta, tb, m, n, k, 1, beta, scale_bytes(compute, -1), atype, btype, ctype, compute});
}

PRESIM_EXPORT int cublasGemmEx_64(void* h, int ta, int tb, int64_t m, int64_t n, int64_t k, const void*, const void*,
                                  int atype, int64_t, const void*, int btype, int64_t, const void* beta, void*,
                                  int ctype, int64_t, int compute, int) {
  return gemm({h, ta, tb, m, n, k, 1, beta, scale_bytes(compute, -1), atype, btype, ctype, compute});
}

PRESIM_EXPORT int cublasSgemmEx(void* h, int ta, int tb, int m, int n, int k, const void*, const void*, int atype, int,
                                const void*, int btype, int, const void* beta, void*, int ctype, int) {
  return gemm({h, ta, tb, m, n, k, 1, beta, 4, atype, btype, ctype, kCompute32F});
}

PRESIM_EXPORT int cublasGemmBatchedEx(void* h, int ta, int tb, int m, int n, int k, const void*, const void*, int atype,
                                      int, const void*, int btype, int, const void* beta, void*, int ctype, int,
                                      int batch, int compute, int) {
  return gemm({h, ta, tb, m, n, k, batch, beta, scale_bytes(compute, -1), atype, btype, ctype, compute});
}

PRESIM_EXPORT int cublasGemmStridedBatchedEx(void* h, int ta, int tb, int m, int n, int k, const void*, const void*,
                                             int atype, int, long long, const void*, int btype, int, long long,
                                             const void* beta, void*, int ctype, int, long long, int batch,
                                             int compute, int) {
  return gemm({h, ta, tb, m, n, k, batch, beta, scale_bytes(compute, -1), atype, btype, ctype, compute});
}

PRESIM_EXPORT int cublasGemmStridedBatchedEx_64(void* h, int ta, int tb, int64_t m, int64_t n, int64_t k, const void*,
                                                const void*, int atype, int64_t, long long, const void*, int btype,
                                                int64_t, long long, const void* beta, void*, int ctype, int64_t,
                                                long long, int64_t batch, int compute, int) {
  return gemm({h, ta, tb, m, n, k, batch, beta, scale_bytes(compute, -1), atype, btype, ctype, compute});
}

// One launch per group of equal shapes: logged as that many batched products.
PRESIM_EXPORT int cublasGemmGroupedBatchedEx(void* h, const int* ta, const int* tb, const int* m, const int* n,
                                             const int* k, const void*, const void*, int atype, const int*,
                                             const void*, int btype, const int*, const void* beta, void*, int ctype,
                                             const int*, int groups, const int* sizes, int compute) {
  int bytes = scale_bytes(compute, -1), status = 0;
  for (int i = 0; i < groups && status == 0; ++i) {
    const void* own = beta ? static_cast<const char*>(beta) + int64_t(i) * bytes : nullptr;
    status = gemm({h, ta[i], tb[i], m[i], n[i], k[i], sizes[i], own, bytes, atype, btype, ctype, compute});
  }
  return status;
}
