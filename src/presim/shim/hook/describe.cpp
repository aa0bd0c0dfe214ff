#include "describe.h"

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "collectives.h"
#include "recorder.h"
#include "values.h"
#include "values/tensors.h"
#include "written.h"

namespace presim::hook {
namespace {

enum Tag : int64_t { Tensor = 1, List = 2, Scalar = 3, Outputs = 4, WritesArgument = 5, Writes = 6, Overwrites = 7, Ends = 8 };

int64_t head(Tag tag, const at::Tensor& tensor, int64_t count) {
  return tag | int64_t(tensor.scalar_type()) << 8 | int64_t(tensor.is_cuda()) << 16 | count << 24;
}

// Neither sparse (in any layout) nor nested, because these have no strides.
bool dense(const at::Tensor& tensor) { return tensor.layout() == at::kStrided && !tensor.is_nested(); }

bool describe_tensor(const at::Tensor& tensor, Arena& arena) {
  if (!tensor.defined()) return false;
  auto* impl = tensor.unsafeGetTensorImpl();
  if (impl->has_symbolic_sizes_strides() || impl->is_python_dispatch() || !dense(tensor)) {
    return tensor.requires_grad();
  }
  auto sizes = tensor.sizes();
  auto strides = tensor.strides();
  arena.push_back(head(Tag::Tensor, tensor, int64_t(sizes.size())));
  for (size_t i = 0; i < sizes.size(); ++i) {  // negative: repeats the same memory (expand)
    arena.push_back(strides[i] == 0 && sizes[i] > 1 ? -sizes[i] : sizes[i]);
  }
  return tensor.requires_grad();
}

bool describe_list(const c10::IValue& value, Arena& arena) {
  bool differentiable = false;
  int64_t elements = 0, count = 0;
  const at::Tensor* first = nullptr;
  auto list = value.toListRef();
  for (const c10::IValue& item : list) {
    if (!item.isTensor() || !item.toTensor().defined()) continue;
    const at::Tensor& tensor = item.toTensor();
    if (first == nullptr) first = &tensor;
    bool symbolic = tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();  // while torch.compile traces
    if (!symbolic && dense(tensor)) elements += tensor.numel();
    differentiable |= tensor.requires_grad();
    ++count;
  }
  if (first != nullptr) {
    arena.push_back(head(Tag::List, *first, count));
    arena.push_back(elements);
  }
  return differentiable;
}

// Only attention, convolution and grouped products depend on scalars (causal, stride …). Elsewhere scalars may change
// at every step (a learning rate) and would make every launch look different. vLLM's attention is _vllm_fa3_C::fwd.
bool scalars_matter(const char* name) {
  return std::strstr(name, "attention") != nullptr || std::strstr(name, "conv") != nullptr ||
         std::strncmp(name, "_vllm_fa", 8) == 0;
}

bool describe_value(const c10::IValue& value, Arena& arena, bool scalars) {
  if (value.isTensor()) return describe_tensor(value.toTensor(), arena);
  if (value.isTensorList() || value.isOptionalTensorList() || (value.isList() && !value.toListRef().empty() &&
                                                               value.toListRef()[0].isTensor())) {
    return describe_list(value, arena);
  }
  if (!scalars) return false;
  auto push = [&arena](int64_t bits) {
    arena.push_back(Tag::Scalar);
    arena.push_back(bits);
  };
  if (value.isBool()) push(value.toBool());
  if (value.isInt()) push(value.toInt());
  if (value.isIntList())
    for (int64_t item : value.toIntVector()) push(item);
  return false;
}

// The ends of a grouped product's groups: a small device tensor, used if its values are computed or follow from the
// routing policy. Values from other policies are meaningless here.
void describe_groups(const at::RecordFunction& fn, Arena& arena) {
  constexpr int64_t kMostGroups = 1024;
  for (const c10::IValue& value : fn.inputs()) {
    if (!value.isTensor() || !values::plain(value.toTensor())) continue;
    const at::Tensor& tensor = value.toTensor();
    int64_t groups = tensor.numel();
    if (!tensor.is_cuda() || tensor.scalar_type() != at::kInt || tensor.dim() != 1 || !tensor.is_contiguous()) continue;
    if (groups < 1 || groups > kMostGroups) continue;
    const auto* ends = static_cast<const int32_t*>(tensor.const_data_ptr());
    uint8_t origin = origin_of(ends, size_t(groups) * sizeof(int32_t));
    if (origin != kComputed && origin != kRouting) continue;
    arena.push_back(Tag::Ends | groups << 24);
    arena.insert(arena.end(), ends, ends + groups);
    return;
  }
}

void append_head(std::string& text, int64_t word, bool first) {
  if (!first) text += ',';
  text += (word >> 16 & 1) ? "" : "cpu:";
  text += c10::toString(static_cast<c10::ScalarType>(word >> 8 & 0xff));
}

std::string describe_key(const char* name, const int64_t* key, size_t words) {
  std::string scalars, written, ends, text = std::string("op name=") + name + " in=";
  bool first = true;
  for (size_t i = 0; i < words;) {
    int64_t word = key[i++], count = word >> 24;
    switch (word & 0xff) {
      case Tag::Tensor:
        append_head(text, word, first);
        text += '[';
        for (int64_t d = 0; d < count; ++d) text += (d ? ";" : "") + std::to_string(key[i++]);
        text += ']';
        first = false;
        break;
      case Tag::List:
        append_head(text, word, first);
        text += '{' + std::to_string(count) + ';' + std::to_string(key[i++]) + '}';
        first = false;
        break;
      case Tag::WritesArgument:
        written = " writes=argument";
        break;
      case Tag::Writes:
      case Tag::Overwrites:
        written += (written.empty() ? " writes=" : ",") + std::to_string(count);
        written += (word & 0xff) == Tag::Overwrites ? "!" : "";
        break;
      case Tag::Ends:
        for (int64_t group = 0; group < count; ++group) ends += (group ? "," : " ends=") + std::to_string(key[i++]);
        break;
      case Tag::Scalar:
        scalars += (scalars.empty() ? "" : ",") + std::to_string(key[i++]);
        break;
      default:
        text += " out=";
        first = true;
    }
  }
  return text + " args=" + scalars + written + ends;
}

// Overloads that write into their last argument: add.out, cat.names_out …
bool writes_argument(const at::RecordFunction& fn) {
  std::string_view overload = fn.overload_name();
  return overload.ends_with("out");
}

// Extensions' operators mostly return nothing: marks which of the tensors described so far they write.
void describe_written(const at::RecordFunction& fn, Arena& arena) {
  auto values = fn.inputs();
  for (const Written& written : written_arguments(fn)) {
    auto described = [](const c10::IValue& value) {
      return (value.isTensor() && value.toTensor().defined()) || (value.isTensorList() && !value.toListRef().empty());
    };
    if (written.argument >= values.size() || !described(values[written.argument])) continue;
    int64_t tensor = std::count_if(values.begin(), values.begin() + written.argument, described);
    arena.push_back((written.overwritten ? Tag::Overwrites : Tag::Writes) | tensor << 24);
  }
}

uint64_t hash_words(const char* name, const int64_t* key, size_t words) {
  uint64_t hash = std::hash<std::string_view>{}(name);
  for (size_t i = 0; i < words; ++i) hash = (hash ^ uint64_t(key[i])) * 1099511628211ull, hash ^= hash >> 29;
  return hash;
}

}  // namespace

bool describe_inputs(const at::RecordFunction& fn, Arena& arena) {
  if (std::strcmp(fn.name(), at::kParamCommsCallName.c_str()) == 0) {
    int32_t group = collective_group();
    if (group >= 0) arena.insert(arena.end(), {Tag::Scalar, group});
    return false;
  }
  bool scalars = scalars_matter(fn.name()), differentiable = false;
  for (const c10::IValue& value : fn.inputs()) differentiable |= describe_value(value, arena, scalars);
  if (std::strstr(fn.name(), "grouped_mm") != nullptr) describe_groups(fn, arena);
  if (writes_argument(fn)) arena.push_back(Tag::WritesArgument);
  describe_written(fn, arena);
  return differentiable;
}

void describe_outputs(const at::RecordFunction& fn, Arena& arena) {
  arena.push_back(Tag::Outputs);
  for (const c10::IValue& value : fn.outputs()) describe_value(value, arena, false);
}

int32_t operator_id(const at::RecordFunction& fn, const int64_t* key, size_t words) {
  struct Known {
    std::string name;
    Arena key;
    int32_t id;
  };
  static auto* known = new std::unordered_map<uint64_t, Known>;
  static auto* mutex = new std::mutex;
  const char* name = fn.name();
  uint64_t hash = hash_words(name, key, words);
  std::lock_guard<std::mutex> lock(*mutex);
  auto found = known->find(hash);
  if (found != known->end() && found->second.name == name &&
      found->second.key.size() == words && std::equal(key, key + words, found->second.key.begin())) {
    return found->second.id;
  }
  int32_t id = intern(describe_key(name, key, words));
  (*known)[hash] = {name, Arena(key, key + words), id};
  return id;
}

std::string describe_range(const char* name) {
  std::string text = "range name=";
  for (const char* c = name; *c != 0 && text.size() < 200; ++c) text += (*c == ' ' || *c == '\t' || *c == '\n') ? '_' : *c;
  return text;
}

}  // namespace presim::hook
