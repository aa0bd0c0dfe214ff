// One descriptor for every product of cuBLAS and cuBLASLt, in cuBLAS's own column-major terms: D[m,n] = op(A)[m,k] op(B)[k,n].
#pragma once
#include "libs/common.h"

namespace presim::libs {

// cublasComputeType_t
enum Compute : int {
  kCompute16F = 64,
  kCompute32F = 68,
  kCompute64F = 70,
  kCompute32I = 72,
  kCompute32FFast16F = 74,
  kCompute32FFast16BF = 75,
  kCompute32FFastTF32 = 77,
  kCompute32FBF16x9 = 78,
  kCompute64FFixed = 79,
};

// cudaDataType
enum CudaType : int { kF32 = 0, kF64 = 1, kF16 = 2, kI8 = 3, kC64 = 4, kC128 = 5, kI32 = 10, kBF16 = 14 };

constexpr int kTf32MathMode = 3;

struct Gemm {
  int64_t m, n, k, batch = 1;
  int32_t a, b, c, d, compute;
  int32_t transa, transb;
  int32_t beta = 0;              // 1: C is read
  int32_t epilogue = 1;          // cublasLtEpilogue_t
  int32_t scale_a = -1, scale_b = -1;  // cublasLtMatmulMatrixScale_t, -1: not scaled
  int32_t fast = -1;             // FP8: 1 accumulates with reduced precision, 0 in full float32; -1: not applicable
};

inline const char* compute_name(int compute, int a) {
  switch (compute & ~1) {
    case kCompute16F: return "f16";
    case kCompute64F: return "f64";
    case kCompute32I: return "i32";
    default: break;
  }
  switch (compute) {
    case kCompute32FFast16F: return a == kF32 || a == kC64 ? "f16" : "f32";
    case kCompute32FFast16BF: return a == kF32 || a == kC64 ? "bf16" : "f32";
    case kCompute32FFastTF32: return a == kF32 || a == kC64 ? "tf32" : "f32";
    case kCompute32FBF16x9: return "bf16x9";
    case kCompute64FFixed: return "f64";
    default: return "f32";
  }
}

inline std::string epilogue_name(int epilogue) {
  static constexpr struct { int bit; const char* name; } kParts[] = {
      {2, "relu"}, {8, "drelu"}, {32, "gelu"}, {64, "dgelu"}, {128, "aux"}, {4, "bias"}, {16, "bgrad"},
      {256, "bgrada"}, {512, "bgradb"},
  };
  std::string name;
  for (auto& part : kParts)
    if (epilogue & part.bit) name += (name.empty() ? "" : "_") + std::string(part.name);
  return name.empty() ? "none" : name;
}

inline const char* scale_name(int mode) {
  static constexpr const char* kNames[] = {"tensor", "vec16_e4m3", "vec32_e8m0", "row", "vec128", "block128"};
  return mode >= 0 && mode < 6 ? kNames[mode] : "unknown";
}

inline std::string gemm_text(const Gemm& g) {
  static constexpr const char* kTrans[] = {"N", "T", "C", "N"};
  Text text("gemm");
  text.add("m", g.m).add("n", g.n).add("k", g.k).add("batch", g.batch);
  text.add("a", data_type(g.a).name).add("b", data_type(g.b).name);
  text.add("c", data_type(g.c).name).add("d", data_type(g.d).name).add("compute", compute_name(g.compute, g.a));
  text.add("transa", kTrans[g.transa & 3]).add("transb", kTrans[g.transb & 3]).add("beta", g.beta);
  text.add("epilogue", epilogue_name(g.epilogue));
  if (g.scale_a >= 0) text.add("scale_a", scale_name(g.scale_a));
  if (g.scale_b >= 0) text.add("scale_b", scale_name(g.scale_b));
  if (g.fast >= 0) text.add("sums", g.fast ? "fast" : "precise");
  return text;
}

// Empty products launch nothing.
inline void log_gemm(void* stream, const Gemm& gemm) {
  if (gemm.m <= 0 || gemm.n <= 0 || gemm.batch <= 0) return;
  log_work(stream, descriptor(gemm, gemm_text));
}

inline int scale_bytes(int compute, int scale_type) {
  if (scale_type >= 0) return data_type(scale_type).bits / 8;
  return (compute & ~1) == kCompute16F ? 2 : (compute & ~1) == kCompute64F ? 8 : 4;
}

// Whether the product reads C. A beta in device memory is unknown to the host: then C is assumed to be read.
inline int32_t reads_c(const void* beta, int bytes, int pointer_mode) {
  static constexpr char kZero[16] = {};
  if (beta == nullptr) return 0;
  if (pointer_mode != 0) return 1;
  return std::memcmp(beta, kZero, bytes < 16 ? bytes : 16) != 0;
}

}  // namespace presim::libs
