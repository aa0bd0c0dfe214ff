// cuBLASLt: the choice of the only algorithm, and the product with its epilogue and scaling modes.
#include "core/values.h"
#include "libs/cublasLt.h"
#include "libs/gemm.h"

namespace {
using namespace presim::libs;

constexpr int kNotSupported = 15;

// ABI of cublasLtMatmulAlgo_t and cublasLtMatmulHeuristicResult_t.
struct Algo {
  uint64_t data[8];  // data[0]: id; then the configuration attributes, two to a word
};
struct HeuristicResult {
  Algo algo;
  size_t workspace;
  int32_t state;
  float waves;
  int32_t reserved[4];
};
static_assert(sizeof(HeuristicResult) == 96);

constexpr int kConfigAttributes = 9;

bool one_a_tensor(int mode) { return mode == 0; }  // CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F
bool scaled(int type) { return data_type(type).bits <= 8 && type != kI8; }

struct Shape {
  int64_t m, n, k;
};

Shape shape(const lt::MatmulDesc& desc, const lt::MatrixLayout& a, const lt::MatrixLayout& d) {
  return {int64_t(d.rows), int64_t(d.cols), int64_t(desc.transa == 0 ? a.cols : a.rows)};
}

bool consistent(const lt::MatmulDesc& desc, const lt::MatrixLayout& a, const lt::MatrixLayout& b,
                const lt::MatrixLayout& d) {
  if (d.batch_mode == lt::kGrouped) return true;  // its sizes are on the device
  Shape s = shape(desc, a, d);
  uint64_t a_rows = desc.transa == 0 ? a.rows : a.cols;
  uint64_t b_inner = desc.transb == 0 ? b.rows : b.cols, b_outer = desc.transb == 0 ? b.cols : b.rows;
  return int64_t(a_rows) == s.m && int64_t(b_inner) == s.k && int64_t(b_outer) == s.n;
}

// Sizes of a grouped product are computed on the device. The reader of the log has the operator's shapes.
void log_grouped(const lt::MatrixLayout& a, const lt::MatrixLayout& b, const lt::MatrixLayout& d, void* stream) {
  struct Key {
    int64_t groups, a, b, d;
  };
  presim::log_work(stream, descriptor(Key{d.batch_count, a.type, b.type, d.type}, [](const Key& key) {
    Text text("grouped_gemm");
    text.add("groups", key.groups).add("m", 0).add("n", 0).add("k", 0).add("a", data_type(int(key.a)).name);
    return std::string(text.add("b", data_type(int(key.b)).name).add("d", data_type(int(key.d)).name));
  }));
}

void fill(HeuristicResult* result) {
  *result = HeuristicResult{};
  result->waves = 1.0f;
}

}  // namespace

PRESIM_EXPORT int cublasLtMatmulAlgoGetHeuristic(void*, const lt::MatmulDesc* desc, const lt::MatrixLayout* a,
                                                 const lt::MatrixLayout* b, const lt::MatrixLayout*,
                                                 const lt::MatrixLayout* d, void*, int requested,
                                                 HeuristicResult* results, int* returned) {
  if (desc == nullptr || a == nullptr || b == nullptr || d == nullptr || returned == nullptr) return lt::kInvalidValue;
  *returned = 0;
  if (!consistent(*desc, *a, *b, *d)) return lt::kInvalidValue;
  if (requested < 1 || results == nullptr) return lt::kInvalidValue;
  fill(results);
  *returned = 1;
  return 0;
}

PRESIM_EXPORT int cublasLtMatmulAlgoGetIds(void*, int, int, int, int, int, int, int requested, int* ids, int* returned) {
  if (returned != nullptr) *returned = requested > 0 ? 1 : 0;
  if (requested > 0 && ids != nullptr) ids[0] = 0;
  return 0;
}

PRESIM_EXPORT int cublasLtMatmulAlgoInit(void*, int, int, int, int, int, int, int id, Algo* algo) {
  if (algo == nullptr) return lt::kInvalidValue;
  *algo = Algo{};
  algo->data[0] = uint64_t(uint32_t(id));
  return 0;
}

PRESIM_EXPORT int cublasLtMatmulAlgoCheck(void*, const lt::MatmulDesc* desc, const lt::MatrixLayout* a,
                                          const lt::MatrixLayout* b, const lt::MatrixLayout*, const lt::MatrixLayout* d,
                                          const Algo* algo, HeuristicResult* result) {
  if (desc == nullptr || a == nullptr || b == nullptr || d == nullptr || result == nullptr) return lt::kInvalidValue;
  fill(result);
  if (algo != nullptr) result->algo = *algo;
  return consistent(*desc, *a, *b, *d) ? 0 : kNotSupported;
}

PRESIM_EXPORT int cublasLtMatmulAlgoConfigSetAttribute(Algo* algo, int attribute, const void* value, size_t bytes) {
  if (algo == nullptr || value == nullptr || attribute < 0 || attribute >= kConfigAttributes) return lt::kInvalidValue;
  std::memcpy(reinterpret_cast<char*>(algo) + attribute * 4, value, bytes < 4 ? bytes : 4);
  return 0;
}

PRESIM_EXPORT int cublasLtMatmulAlgoConfigGetAttribute(const Algo* algo, int attribute, void* value, size_t bytes,
                                                       size_t* written) {
  if (algo == nullptr || attribute < 0 || attribute >= kConfigAttributes) return lt::kInvalidValue;
  size_t size = attribute >= 7 ? 2 : 4;  // the two shape ids are 16 bits wide
  if (written != nullptr) *written = size;
  if (value == nullptr || bytes < size) return bytes == 0 ? 0 : lt::kInvalidValue;
  std::memcpy(value, reinterpret_cast<const char*>(algo) + attribute * 4, size);
  return 0;
}

// The algorithm has no variable capability.
PRESIM_EXPORT int cublasLtMatmulAlgoCapGetAttribute(const Algo*, int, void* value, size_t bytes, size_t* written) {
  if (written != nullptr) *written = bytes;
  if (value != nullptr) std::memset(value, 0, bytes);
  return 0;
}

PRESIM_EXPORT int cublasLtMatmul(void*, const lt::MatmulDesc* desc, const void*, const void*, const lt::MatrixLayout* a,
                                 const void*, const lt::MatrixLayout* b, const void* beta, const void*,
                                 const lt::MatrixLayout* c, void* out, const lt::MatrixLayout* d, const Algo*, void*,
                                 size_t, void* stream) {
  if (desc == nullptr || a == nullptr || b == nullptr || d == nullptr) return lt::kInvalidValue;
  if (!consistent(*desc, *a, *b, *d)) return lt::kInvalidValue;
  if (d->batch_mode == lt::kGrouped) {
    log_grouped(*a, *b, *d, stream);
    return 0;
  }
  // A PyTorch operator sets the known values of its result afterwards. Values set by an extension before are invalid.
  if (out != nullptr) presim::forget(out, size_t(d->rows * d->cols * data_type(d->type).bits / 8));
  Shape s = shape(*desc, *a, *d);
  Gemm key{s.m, s.n, s.k, d->batch_count, int32_t(a->type), int32_t(b->type), int32_t((c ? c : d)->type),
           int32_t(d->type), desc->compute, desc->transa, desc->transb};
  // Alpha from a device vector comes with beta zero (mode 3) or in host memory (mode 4).
  int mode = desc->pointer_mode;
  key.beta = mode == 3 ? 0 : reads_c(beta, scale_bytes(desc->compute, desc->scale_type), mode == 4 ? 0 : mode);
  key.epilogue = desc->epilogue;
  if (scaled(key.a)) key.scale_a = desc->scale_modes[0];
  if (scaled(key.b)) key.scale_b = desc->scale_modes[1];
  if (one_a_tensor(key.scale_a) && one_a_tensor(key.scale_b)) key.fast = desc->fast_accumulation != 0;
  log_gemm(stream, key);
  return 0;
}

PRESIM_EXPORT int cublasLtMatrixTransform(void*, void*, const void*, const void*, const lt::MatrixLayout*, const void*,
                                          const void*, const lt::MatrixLayout*, void*, const lt::MatrixLayout* c,
                                          void* stream) {
  if (c == nullptr) return lt::kInvalidValue;
  SizedCall key{0, {int64_t(c->rows), int64_t(c->cols), c->batch_count}};
  Handle on{};
  on.stream = stream;
  static constexpr const char* kKeys[] = {"m", "n", "batch", nullptr};
  library_kernel(&on, "cublasLtMatrixTransform", kKeys, key);
  return 0;
}
