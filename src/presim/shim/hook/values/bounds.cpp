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
  int64_t least, most;  // that an index may be
  std::optional<int64_t> ignored;
};

template <class T>
std::optional<int64_t> outside(const at::Tensor& view, Limits limits) {
  for (const T *at = view.const_data_ptr<T>(), *end = at + view.numel(); at != end; ++at) {
    if ((*at < limits.least || *at > limits.most) && (!limits.ignored || *at != *limits.ignored)) return *at;
  }
  return std::nullopt;
}

// The first index outside; none where the values are not the program's own, or lie apart from each other.
std::optional<int64_t> find_outside(const at::Tensor& index, Limits limits) {
  if (!plain(index) || !index.is_cuda() || !small(index) || !index.is_contiguous() || index.numel() == 0) return {};
  if (origin(index) != kComputed) return {};
  at::RecordFunctionGuard unobserved(false);
  at::Tensor view = host_view(index);
  if (index.scalar_type() == at::kLong) return outside<int64_t>(view, limits);
  return index.scalar_type() == at::kInt ? outside<int32_t>(view, limits) : std::nullopt;
}

void check(std::string_view name, const at::Tensor& table, int64_t dim, const at::Tensor& index, bool from_end,
           std::optional<int64_t> ignored = {}) {
  if (!table.defined() || !index.defined() || table.dim() == 0) return;
  dim = dim < 0 ? dim + table.dim() : dim;
  if (dim < 0 || dim >= table.dim()) return;
  int64_t size = table.size(dim);
  auto found = find_outside(index, {from_end ? -size : 0, size - 1, ignored});
  if (!found) return;
  report_misuse(std::string(name) + " is given index " + std::to_string(*found) + " for a dimension of " +
                std::to_string(size) + ", which a GPU answers with a device-side assert");
}

}  // namespace

Bounded bounded(std::string_view name) {
  if (name == "aten::embedding") return Bounded::Rows;
  for (std::string_view one : {"aten::index_select", "aten::gather", "aten::scatter", "aten::scatter_", "aten::scatter_add",
                               "aten::scatter_add_", "aten::index_add", "aten::index_add_", "aten::index_copy",
                               "aten::index_copy_", "aten::index_fill_"}) {
    if (name == one) return Bounded::Along;
  }
  if (name == "aten::nll_loss_forward") return Bounded::Classes;
  bool anywhere = name == "aten::index" || name == "aten::index_put_" || name == "aten::_index_put_impl_";
  return anywhere ? Bounded::Anywhere : Bounded::No;
}

void check_bounds(Bounded kind, std::string_view name, c10::ArrayRef<const c10::IValue> inputs) {
  OwnWork working;
  if (inputs.size() < 2 || !inputs[0].isTensor()) return;
  const at::Tensor& table = inputs[0].toTensor();
  if (kind == Bounded::Rows && inputs[1].isTensor()) return check(name, table, 0, inputs[1].toTensor(), false);
  if (kind == Bounded::Along && inputs.size() > 2 && inputs[1].isInt() && inputs[2].isTensor()) {
    return check(name, table, inputs[1].toInt(), inputs[2].toTensor(), false);
  }
  if (kind == Bounded::Classes && inputs.size() > 4 && inputs[1].isTensor() && inputs[4].isInt()) {
    return check(name, table, table.dim() > 1 ? 1 : 0, inputs[1].toTensor(), false, inputs[4].toInt());
  }
  if (kind != Bounded::Anywhere || !inputs[1].isList()) return;
  auto indices = inputs[1].toListRef();
  for (size_t dim = 0; dim < indices.size() && dim < size_t(table.dim()); ++dim) {
    if (indices[dim].isTensor()) check(name, table, int64_t(dim), indices[dim].toTensor(), true);
  }
}

}  // namespace presim::hook::values
