#include "bounds.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <optional>
#include <string>

#include "misuse.h"
#include "own_time.h"
#include "tensors.h"
#include "values.h"

namespace presim::hook::values {
namespace {

struct Limits {
  int64_t least, most;  // allowed range of an index
  std::optional<int64_t> ignored;
};

template <class T>
std::optional<int64_t> outside(const at::Tensor& view, Limits limits) {
  for (const T *at = view.const_data_ptr<T>(), *end = at + view.numel(); at != end; ++at) {
    if ((*at < limits.least || *at > limits.most) && (!limits.ignored || *at != *limits.ignored)) return *at;
  }
  return std::nullopt;
}

// Without the repetitions of an expanded tensor: `index[:, None].expand(-1, hidden)` has the values of `index`.
at::Tensor without_repeats(at::Tensor view) {
  for (int64_t d = 0; d < view.dim(); ++d) {
    if (view.stride(d) == 0 && view.size(d) > 1) view = view.narrow(d, 0, 1);
  }
  return view;
}

// The first index outside the limits; none if the values are not the program's own.
std::optional<int64_t> find_outside(const at::Tensor& index, Limits limits) {
  if (!plain(index) || !index.is_cuda() || index.numel() == 0) return {};
  if (index.scalar_type() != at::kLong && index.scalar_type() != at::kInt) return {};
  at::RecordFunctionGuard unobserved(false);
  at::Tensor view = without_repeats(host_view(index));
  if (!small(view) || origin(view) != kComputed) return {};
  view = view.contiguous();
  return view.scalar_type() == at::kLong ? outside<int64_t>(view, limits) : outside<int32_t>(view, limits);
}

struct Dimension {
  int64_t size;
  bool from_end;  // whether negative indices count from the end
};

void check(std::string_view name, Dimension dimension, const at::Tensor& index, std::optional<int64_t> ignored = {}) {
  if (!index.defined()) return;
  int64_t size = dimension.size;
  auto found = find_outside(index, {dimension.from_end ? -size : 0, size - 1, ignored});
  if (!found) return;
  report_misuse(std::string(name) + " is given index " + std::to_string(*found) + " for a dimension of " +
                std::to_string(size) + ", which a GPU answers with a device-side assert");
}

void check_along(std::string_view name, const at::Tensor& table, int64_t dim, const at::Tensor& index, bool from_end) {
  dim = dim < 0 ? dim + table.dim() : dim;
  if (dim >= 0 && dim < table.dim()) check(name, {table.size(dim), from_end}, index);
}

// A mask covers as many dimensions as it has.
void check_list(std::string_view name, const at::Tensor& table, c10::ArrayRef<c10::IValue> indices) {
  int64_t dim = 0;
  for (const c10::IValue& item : indices) {
    bool given = item.isTensor() && item.toTensor().defined();
    bool masks = given && (item.toTensor().scalar_type() == at::kBool || item.toTensor().scalar_type() == at::kByte);
    if (given && !masks) check_along(name, table, dim, item.toTensor(), true);
    dim += masks ? item.toTensor().dim() : 1;
  }
}

bool is_among(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Bounded bounded(std::string_view name) {
  if (is_among(name, {"aten::_embedding_bag", "aten::_embedding_bag_forward_only"})) return Bounded::Rows;
  if (is_among(name, {"aten::index_select", "aten::gather", "aten::scatter", "aten::scatter_", "aten::scatter_add",
                    "aten::scatter_add_", "aten::scatter_reduce", "aten::scatter_reduce_", "aten::index_add",
                    "aten::index_add_", "aten::index_copy", "aten::index_copy_", "aten::index_reduce",
                    "aten::index_reduce_"})) {
    return Bounded::Along;
  }
  if (name == "aten::index_fill_") return Bounded::AlongFromEnd;
  if (is_among(name, {"aten::nll_loss_forward", "aten::nll_loss2d_forward"})) return Bounded::Classes;
  if (is_among(name, {"aten::take", "aten::put_"})) return Bounded::Elements;
  return is_among(name, {"aten::index", "aten::_index_put_impl_"}) ? Bounded::Anywhere : Bounded::No;
}

void check_bounds(Bounded kind, std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  OwnWork working;
  if (inputs.size() < 2 || !inputs[0].isTensor() || !inputs[0].toTensor().defined()) return;
  const at::Tensor& table = inputs[0].toTensor();
  bool pair = inputs[1].isTensor(), triple = inputs.size() > 2 && inputs[1].isInt() && inputs[2].isTensor();
  bool from_end = kind == Bounded::AlongFromEnd;
  switch (kind) {
    case Bounded::No: return;
    case Bounded::Rows: return pair ? check_along(name, table, 0, inputs[1].toTensor(), false) : void();
    case Bounded::Along:
    case Bounded::AlongFromEnd:
      return triple ? check_along(name, table, inputs[1].toInt(), inputs[2].toTensor(), from_end) : void();
    case Bounded::Classes:
      if (!pair || inputs.size() < 5 || !inputs[4].isInt() || table.dim() == 0) return;
      return check(name, {table.size(table.dim() > 1 ? 1 : 0), false}, inputs[1].toTensor(), inputs[4].toInt());
    case Bounded::Elements: return pair ? check(name, {table.numel(), true}, inputs[1].toTensor()) : void();
    case Bounded::Anywhere: return inputs[1].isList() ? check_list(name, table, inputs[1].toListRef()) : void();
  }
}

}  // namespace presim::hook::values
