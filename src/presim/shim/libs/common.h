// Shared parts of the fake math libraries: handles with a stream, names of data types, and interned descriptors.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <unordered_map>

#include "core/recorder.h"

#define PRESIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace presim::libs {

// Behind every cublasHandle_t, cusolverDnHandle_t …: the magic distinguishes our handles from anything else (a plan, a
// descriptor, a cublasLt handle that was never created), so that a wrong handle never leads to foreign memory.
struct Handle {
  static constexpr uint64_t kMagic = 0x70726573696d4c42;
  uint64_t magic = kMagic;
  void* stream = nullptr;
  int32_t pointer_mode = 0;
  int32_t math_mode = 0;
  int32_t atomics_mode = 0;
  int32_t sm_target = 0;
};

inline Handle* handle_of(const void* handle) {
  auto address = reinterpret_cast<uintptr_t>(handle);
  if (address < 4096 || address % alignof(Handle) != 0) return nullptr;
  auto* found = static_cast<Handle*>(const_cast<void*>(handle));
  return found->magic == Handle::kMagic ? found : nullptr;
}

inline void* stream_of(const void* handle) {
  Handle* found = handle_of(handle);
  return found != nullptr ? found->stream : nullptr;
}

template <class T = Handle>
int create_handle(void** out, int error) {
  if (out == nullptr) return error;
  *out = new T;
  return 0;
}

template <class T = Handle>
int destroy_handle(void* handle, int error) {
  if (handle_of(handle) == nullptr) return error;
  handle_of(handle)->magic = 0;
  delete static_cast<T*>(handle);
  return 0;
}

inline int set_stream(void* handle, void* stream, int error) {
  if (handle_of(handle) == nullptr) return error;
  handle_of(handle)->stream = stream;
  return 0;
}

inline int get_stream(const void* handle, void** stream, int error) {
  if (handle_of(handle) == nullptr || stream == nullptr) return error;
  *stream = stream_of(handle);
  return 0;
}

// Short name and bits of a cudaDataType.
struct DataType {
  const char* name;
  int bits;
};

inline DataType data_type(int cuda_type) {
  static constexpr DataType kTypes[] = {
      {"f32", 32},  {"f64", 64},  {"f16", 16},  {"i8", 8},    {"c64", 64},   {"c128", 128}, {"c32", 32},
      {"ci8", 16},  {"u8", 8},    {"cu8", 16},  {"i32", 32},  {"ci32", 64},  {"u32", 32},   {"cu32", 64},
      {"bf16", 16}, {"cb16", 32}, {"i4", 4},    {"ci4", 8},   {"u4", 4},     {"cu4", 8},    {"i16", 16},
      {"ci16", 32}, {"u16", 16},  {"cu16", 32}, {"i64", 64},  {"ci64", 128}, {"u64", 64},   {"cu64", 128},
      {"e4m3", 8},  {"e5m2", 8},  {"e8m0", 8},  {"e2m3", 6},  {"e3m2", 6},   {"e2m1", 4},
  };
  constexpr int count = sizeof(kTypes) / sizeof(kTypes[0]);
  return cuda_type >= 0 && cuda_type < count ? kTypes[cuda_type] : DataType{"unknown", 8};
}

// Descriptor id of a key. `format` writes the text only the first time, so the hot path formats nothing. The table is
// per thread (no lock) and never freed, because work is logged until the end of the process.
template <class Key, class Format>
int32_t descriptor(const Key& key, Format format) {
  static_assert(std::has_unique_object_representations_v<Key>, "padding would make equal keys differ");
  struct Hash {
    size_t operator()(const Key& k) const {
      uint64_t hash = 0xcbf29ce484222325, word = 0;
      const char* bytes = reinterpret_cast<const char*>(&k);
      for (size_t i = 0; i < sizeof(Key); i += sizeof word) {
        std::memcpy(&word, bytes + i, sizeof(Key) - i < 8 ? sizeof(Key) - i : 8);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15;
        hash ^= hash >> 32;
      }
      return hash;
    }
  };
  struct Equal {
    bool operator()(const Key& a, const Key& b) const { return std::memcmp(&a, &b, sizeof(Key)) == 0; }
  };
  static thread_local auto* known = new std::unordered_map<Key, int32_t, Hash, Equal>;
  auto found = known->find(key);
  if (found != known->end()) return found->second;
  int32_t id = intern(format(key));
  known->emplace(key, id);
  return id;
}

// "family" followed by " key=value" for every call of add().
class Text {
 public:
  explicit Text(const char* family) : text_(family) {}
  Text& add(const char* key, const std::string& value) {
    text_ += std::string(" ") + key + "=" + value;
    return *this;
  }
  Text& add(const char* key, const char* value) { return add(key, std::string(value)); }
  Text& add(const char* key, int64_t value) { return add(key, std::to_string(value)); }
  Text& add(const char* key, int value) { return add(key, std::to_string(value)); }
  template <class T>
  Text& add(const char* key, const T* values, int count) {
    std::string joined;
    for (int i = 0; i < count; ++i) joined += (i ? "," : "") + std::to_string(values[i]);
    return add(key, joined);
  }
  operator std::string() const { return text_; }

 private:
  std::string text_;
};

// A library's kernel with only its name and a few sizes. Generated stubs with a rule call it.
struct SizedCall {
  int64_t name;
  int64_t sizes[6];
};

inline void library_kernel(const void* handle, const char* name, const char* const* keys, SizedCall call) {
  call.name = reinterpret_cast<int64_t>(name);
  int32_t id = descriptor(call, [keys, name](const SizedCall& key) {
    Text text("kernel");
    text.add("name", name).add("grid", "0,0,0").add("block", "0,0,0").add("shared", "0");
    for (int i = 0; keys[i] != nullptr; ++i) text.add(keys[i], key.sizes[i]);
    return std::string(text);
  });
  log_work(stream_of(handle), id);
}

}  // namespace presim::libs
