// Small payloads: what a collective gives when every rank holds the same data.
#include <cmath>
#include <mutex>

#include "core/values.h"
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
enum : int { kI8, kU8, kI32, kU32, kI64, kU64, kF16, kF32, kF64, kBF16 };

// Factors of the operators made by ncclRedOpCreatePreMulSum; never freed, a program makes a handful.
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
  operator double() const { return double(value); }
  Half& operator=(double v) {
    value = _Float16(v);
    return *this;
  }
};

struct BFloat {
  uint16_t bits;
  operator double() const {
    uint32_t wide = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return double(value);
  }
  BFloat& operator=(double v) {
    float value = float(v);
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
    if (!std::isnan(value)) wide += 0x7fff + (wide >> 16 & 1);  // round to nearest even
    bits = uint16_t(wide >> 16);
    return *this;
  }
};

template <class T>
void scale(void* data, int64_t count, double factor) {
  auto* values = static_cast<T*>(data);
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_integral_v<T>) {
      values[i] = T(values[i] * T(int64_t(factor)));
    } else {
      values[i] = double(values[i]) * factor;
    }
  }
}

template <class T>
void power(void* data, int64_t count, int exponent) {
  auto* values = static_cast<T*>(data);
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_integral_v<T>) {
      T result = 1;
      for (int j = 0; j < exponent; ++j) result = T(result * values[i]);
      values[i] = result;
    } else {
      values[i] = std::pow(double(values[i]), exponent);
    }
  }
}

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
    default: return;  // 8-bit floats are never read on the host
  }
}

double factor_of(int op, int ranks) {
  if (op == kSum) return ranks;
  std::lock_guard lock(factors_lock());
  size_t index = size_t(op - kFirstOwnOp);
  return index < factors().size() ? factors()[index] * ranks : 1.0;
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
  with_type(type, [&](auto like) {
    std::memcpy(&like, value, sizeof like);
    result = double(like);
  });
  return result;
}

void reduce_equal(const void* send, void* recv, int64_t count, int type, int op, int ranks) {
  if (send == nullptr || recv == nullptr) return;
  if (send != recv) std::memmove(recv, send, size_t(count) * size_t(type_bytes(type)));
  bool keeps = op == kMax || op == kMin || op == kAvg || (ranks <= 1 && op < kFirstOwnOp);
  if (keeps) return;  // equal copies: their mean and extremes are the value itself
  with_type(type, [&](auto like) {
    using T = decltype(like);
    if (op == kProd) return power<T>(recv, count, ranks);
    scale<T>(recv, count, factor_of(op, ranks));
  });
}

void received(const void* recv, int64_t recv_bytes, const void* send, int64_t send_bytes, bool moved) {
  if (recv == nullptr) return;
  if (!moved || send == nullptr) return presim::forget(recv, size_t(recv_bytes));
  presim::know_as(recv, size_t(recv_bytes), send, size_t(send_bytes));
}

}  // namespace presim::libs::nccl
