// Data types and reductions of small payloads.
#include <array>
#include <cmath>
#include <mutex>

#include "libs/nccl.h"

namespace presim::libs::nccl {
namespace {

struct Type {
  const char* name;
  int bytes;
};
constexpr Type kTypes[] = {{"i8", 1},  {"u8", 1},  {"i32", 4}, {"u32", 4},  {"i64", 8},  {"u64", 8},
                           {"f16", 2}, {"f32", 4}, {"f64", 8}, {"bf16", 2}, {"e4m3", 1}, {"e5m2", 1}};
constexpr int kTypeCount = sizeof(kTypes) / sizeof(kTypes[0]);
enum : int { kI8, kU8, kI32, kU32, kI64, kU64, kF16, kF32, kF64, kBF16, kE4M3, kE5M2 };

// Factors of the operators created by ncclRedOpCreatePreMulSum. Never freed: programs create few.
std::vector<double>& factors() {
  static auto* made = new std::vector<double>;
  return *made;
}
std::mutex& factors_lock() {
  static auto* lock = new std::mutex;
  return *lock;
}

struct Half {
  _Float16 value;
  explicit operator double() const { return double(value); }
  explicit Half(double v = 0) : value(_Float16(v)) {}
};

struct BFloat {
  uint16_t bits;
  explicit operator double() const {
    uint32_t wide = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return double(value);
  }
  explicit BFloat(double v = 0) {
    float value = float(v);
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
    if (!std::isnan(value)) wide += 0x7fff + (wide >> 16 & 1);  // round to nearest even
    bits = uint16_t(wide >> 16);
  }
};

// OCP 8-bit floats. Overflow becomes the largest finite value, as in NVIDIA's conversions.
template <int kExponentBits, int kBias, int kLargest>
struct Float8 {
  static constexpr int kMantissaBits = 7 - kExponentBits;
  uint8_t bits;

  static double decode(int code) {
    int exponent = code >> kMantissaBits, mantissa = code & ((1 << kMantissaBits) - 1);
    if (exponent == 0) return std::ldexp(mantissa, 1 - kBias - kMantissaBits);
    return std::ldexp(mantissa + (1 << kMantissaBits), exponent - kBias - kMantissaBits);
  }
  explicit operator double() const {
    int code = bits & 0x7f;
    double value = code <= kLargest ? decode(code) : kExponentBits == 5 && code == kLargest + 1 ? INFINITY : NAN;
    return bits & 0x80 ? -value : value;
  }
  explicit Float8(double v = 0) {
    int code = 0x7f;  // not a number in both formats
    if (!std::isnan(v)) {
      double size = std::fabs(v);
      code = 0;
      for (int step = 64; step > 0; step /= 2) {  // finds the largest code not above the value
        if (code + step <= kLargest && decode(code + step) <= size) code += step;
      }
      if (code < kLargest) {
        double below = size - decode(code), above = decode(code + 1) - size;
        if (above < below || (above == below && code % 2 == 1)) ++code;
      }
    }
    bits = uint8_t(code | (std::signbit(v) ? 0x80 : 0));
  }
};
using E4M3 = Float8<4, 7, 0x7e>;
using E5M2 = Float8<5, 15, 0x7b>;

template <class Function>
void with_type(int type, Function function) {
  switch (type) {
    case kI8: return function(int8_t{});
    case kU8: return function(uint8_t{});
    case kI32: return function(int32_t{});
    case kU32: return function(uint32_t{});
    case kI64: return function(int64_t{});
    case kU64: return function(uint64_t{});
    case kF16: return function(Half{});
    case kF32: return function(float{});
    case kF64: return function(double{});
    case kBF16: return function(BFloat{});
    case kE4M3: return function(E4M3{});
    case kE5M2: return function(E5M2{});
    default: return;
  }
}

template <class T>
T read(const char* data, int64_t index) {
  T value;
  std::memcpy(&value, data + index * int64_t(sizeof(T)), sizeof(T));
  return value;
}

// Integers wrap around, as on the device.
template <class T>
T reduce_integers(const std::vector<Part>& parts, int64_t index, int op, int64_t ranks) {
  T first = read<T>(parts[0].data, index);
  uint64_t sum = 0, product = 1;
  T most = first, least = first;
  for (const Part& part : parts) {
    T value = read<T>(part.data, index);
    sum += uint64_t(value) * uint64_t(part.ranks);
    if (op == kProd)
      for (int64_t i = 0; i < part.ranks; ++i) product *= uint64_t(value);
    most = value > most ? value : most;
    least = value < least ? value : least;
  }
  if (op == kProd) return T(product);
  if (op == kMax) return most;
  if (op == kMin) return least;
  return op == kAvg ? T(T(sum) / T(ranks)) : T(sum);
}

template <class T>
T reduce_floats(const std::vector<Part>& parts, int64_t index, int op, int64_t ranks) {
  double first = double(read<T>(parts[0].data, index));
  double sum = 0, product = 1, most = first, least = first;
  for (const Part& part : parts) {
    double value = double(read<T>(part.data, index));
    sum += value * double(part.ranks);
    if (op == kProd) product *= std::pow(value, double(part.ranks));
    most = std::fmax(most, value);
    least = std::fmin(least, value);
  }
  if (op == kProd) return T(product);
  if (op == kMax) return T(most);
  if (op == kMin) return T(least);
  return T(op == kAvg ? sum / double(ranks) : sum);
}

}  // namespace

int type_bytes(int type) { return type >= 0 && type < kTypeCount ? kTypes[type].bytes : 1; }
const char* type_name(int type) { return type >= 0 && type < kTypeCount ? kTypes[type].name : "unknown"; }

const char* op_name(int op) {
  static constexpr const char* kNames[] = {"sum", "prod", "max", "min", "avg"};
  return op < 0 ? "none" : op < kFirstOwnOp ? kNames[op] : "premul_sum";
}

int create_premul_op(double factor) {
  std::lock_guard lock(factors_lock());
  factors().push_back(factor);
  return kFirstOwnOp + int(factors().size()) - 1;
}

double read_scalar(const void* value, int type) {
  double result = 1.0;
  with_type(type, [&](auto like) { result = double(read<decltype(like)>(static_cast<const char*>(value), 0)); });
  return result;
}

void scale_by_own_factor(std::string* data, int type, int op) {
  double factor = 1.0;
  {
    std::lock_guard lock(factors_lock());
    size_t index = size_t(op - kFirstOwnOp);
    if (op < kFirstOwnOp || index >= factors().size()) return;
    factor = factors()[index];
  }
  with_type(type, [&](auto like) {
    using T = decltype(like);
    for (size_t at = 0; at + sizeof(T) <= data->size(); at += sizeof(T)) {
      T value = read<T>(data->data() + at, 0);
      if constexpr (std::is_integral_v<T>) {
        value = T(value * T(int64_t(factor)));
      } else {
        value = T(double(value) * factor);
      }
      std::memcpy(data->data() + at, &value, sizeof value);
    }
  });
}

std::string reduce(const std::vector<Part>& parts, int64_t count, int type, int op, int64_t ranks) {
  std::string result(parts[0].data, size_t(count * type_bytes(type)));
  bool keeps = op == kMax || op == kMin || op == kAvg || ranks <= 1;
  if (parts.size() == 1 && keeps) return result;  // mean and extremes of equal copies are the value itself
  with_type(type, [&](auto like) {
    using T = decltype(like);
    for (int64_t i = 0; i < count; ++i) {
      T value;
      if constexpr (std::is_integral_v<T>) {
        value = reduce_integers<T>(parts, i, op, ranks);
      } else {
        value = reduce_floats<T>(parts, i, op, ranks);
      }
      std::memcpy(result.data() + i * int64_t(sizeof(T)), &value, sizeof value);
    }
  });
  return result;
}

}  // namespace presim::libs::nccl
