#include "counts.h"

#include <ATen/ops/_unique2.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "own_time.h"
#include "reads.h"
#include "tensors.h"
#include "values.h"

namespace presim::hook::values {
namespace {

void expect(Plan& plan, int64_t count, uint8_t origin) {
  if (!plan.expects) plan.outer_count = expected_count();
  plan.expects = true;
  expected_count() = count;
  if (origin != kNobody) report(*plan.op, origin, &count, sizeof count);
}

int64_t count_of(const Plan& plan) {
  if (plan.arguments[0].isBool()) return plan.arguments[0].toBool();  // equal
  const at::Tensor& first = plan.arguments[0].toTensor();
  return first.dim() > plan.call.count_along ? first.size(plan.call.count_along) : first.numel();
}

struct Unobserved {
  at::RecordFunctionGuard unobserved{false};
  c10::impl::ForceDispatchKeyGuard plain_kernels{
      c10::default_included_set, c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView};
};

// The different columns of [dimensions, entries] in order, each as one number.
at::Tensor distinct_columns(const at::Tensor& indices, at::IntArrayRef sizes) {
  at::Tensor flat = indices.select(0, 0).clone();
  for (int64_t dim = 1; dim < indices.size(0); ++dim) flat.mul_(sizes[size_t(dim)]).add_(indices.select(0, dim));
  return std::get<0>(at::_unique2(flat));
}

}  // namespace

bool coalesces(std::string_view name) { return name == "_coalesce"; }

void expect_computed(Plan& plan) { expect(plan, count_of(plan), plan.origin); }

// The policies answer 0 for integers and booleans, another number for floats, and the same for all elements.
void expect_assumed(Plan& plan, Inputs inputs) {
  if (plan.op->name == "aten::equal" || !inputs[0].isTensor()) return;
  const at::Tensor& counted = inputs[0].toTensor();
  bool is_number = counted.is_floating_point() || counted.is_complex();
  int64_t elements = counted.numel();
  int64_t count = plan.op->name != "aten::nonzero" ? std::min<int64_t>(elements, 1) : is_number ? elements : 0;
  if (elements > 0) expect(plan, count, is_number ? kNumber : kZero);
}

void expect_distinct(Plan& plan, const at::Tensor& sparse) {
  if (sparse.layout() != at::kSparse || !sparse.is_cuda() || sparse._nnz() == 0) return;
  OwnWork working;
  Unobserved unobserved;
  at::Tensor indices = sparse._indices();
  bool is_known = indices.size(0) > 0 && plain(indices) && small(indices);
  plan.origin = is_known ? origin(indices) : uint8_t(kNobody);
  if (plan.origin == kNobody) return expect(plan, sparse._nnz(), kNobody);
  plan.inputs = {distinct_columns(host_view(indices), sparse.sizes())};
  expect(plan, plan.inputs[0].numel(), plan.origin);
}

void write_distinct(Plan& plan, const at::Tensor& merged) {
  if (!plan.expects || merged.layout() != at::kSparse) return;
  OwnWork working;
  Unobserved unobserved;
  at::Tensor indices = merged._indices();
  if (plan.inputs.empty() || plan.inputs[0].numel() != indices.size(1)) return forget(indices);
  at::Tensor flat = plan.inputs[0], view = host_view(indices);
  for (int64_t dim = indices.size(0) - 1; dim >= 0; --dim) {
    view.select(0, dim).copy_(dim > 0 ? flat.remainder(merged.size(dim)) : flat);
    if (dim > 0) flat = flat.floor_divide(merged.size(dim));
  }
  know(indices, plan.origin);
}

void stop_expecting(Plan& plan) {
  if (plan.expects) expected_count() = plan.outer_count;
}

}  // namespace presim::hook::values
