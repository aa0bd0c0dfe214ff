#include "tensors.h"

#include <ATen/ops/from_blob.h>
#include <c10/core/DispatchKeySet.h>

#include <algorithm>

#include "values.h"

namespace presim::hook::values {
namespace {

constexpr size_t kMostRuns = 8192;  // contiguous ranges of one tensor that are checked one by one

struct Dim {
  int64_t size, bytes;
};

// Calls visit(address, bytes) for each contiguous range; false, without a call, if there are too many.
template <class Visit>
bool each_run(const at::Tensor& tensor, Visit visit) {
  auto* data = static_cast<char*>(tensor.unsafeGetTensorImpl()->mutable_data());
  int64_t run = int64_t(tensor.element_size());
  c10::SmallVector<Dim, 8> dims;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1 && tensor.stride(d) > 0) dims.push_back({tensor.size(d), tensor.stride(d) * run});
  }
  std::sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.bytes < b.bytes; });
  size_t inner = 0;
  for (; inner < dims.size() && dims[inner].bytes == run; ++inner) run *= dims[inner].size;
  size_t runs = 1;
  for (size_t d = inner; d < dims.size() && runs <= kMostRuns; ++d) runs *= size_t(dims[d].size);
  if (runs > kMostRuns) return false;
  for (size_t i = 0; i < runs; ++i) {
    size_t rest = i;
    int64_t offset = 0;
    for (size_t d = inner; d < dims.size(); ++d) {
      offset += int64_t(rest % size_t(dims[d].size)) * dims[d].bytes;
      rest /= size_t(dims[d].size);
    }
    if (!visit(data + offset, size_t(run))) break;
  }
  return true;
}

// Bytes from the first to the last.
size_t extent(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return size_t(last + 1) * tensor.element_size();
}

char* begin_of(const at::Tensor& tensor) { return static_cast<char*>(tensor.unsafeGetTensorImpl()->mutable_data()); }

}  // namespace

bool plain(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  auto* impl = tensor.unsafeGetTensorImpl();
  if (impl->is_python_dispatch() || impl->has_symbolic_sizes_strides() || !impl->has_storage()) return false;
  if (impl->layout() != c10::kStrided || tensor.is_quantized() || tensor.is_nested()) return false;
  constexpr c10::DispatchKeySet wrappers({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper,
                                          c10::DispatchKey::BatchedNestedTensor, c10::DispatchKey::Functionalize,
                                          c10::DispatchKey::Conjugate, c10::DispatchKey::Negative,
                                          c10::DispatchKey::ZeroTensor});
  return !impl->key_set().has_any(wrappers) && (tensor.is_cuda() || tensor.is_cpu());
}

bool small(bool integral, int64_t elements, int64_t element_bytes) {
  return integral ? elements <= kIntegerElements : elements * element_bytes <= kFloatBytes;
}

bool small(const at::Tensor& tensor) {
  bool integral = c10::isIntegralType(tensor.scalar_type(), true);
  return small(integral, tensor.numel(), int64_t(tensor.element_size()));
}

uint8_t origin(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return kComputed;
  if (uint8_t whole = origin_of(begin_of(tensor), extent(tensor)); whole != kNobody) return whole;
  if (tensor.is_contiguous()) return kNobody;
  uint8_t greatest = kNobody;
  bool looked = each_run(tensor, [&greatest](const char* address, size_t bytes) {
    uint8_t found = origin_of(address, bytes);
    greatest = found == kNobody ? kNobody : std::max(greatest, found);
    return found != kNobody;
  });
  return looked ? greatest : uint8_t(kNobody);
}

void know(const at::Tensor& tensor, uint8_t origin) {
  if (tensor.numel() == 0) return;
  if (tensor.is_non_overlapping_and_dense()) {
    return presim::know(begin_of(tensor), size_t(tensor.numel()) * tensor.element_size(), origin);
  }
  bool done = each_run(tensor, [origin](const char* address, size_t bytes) {
    presim::know(address, bytes, origin);
    return true;
  });
  if (done) return;
  uint8_t around = origin_of(begin_of(tensor), extent(tensor));
  presim::know(begin_of(tensor), extent(tensor), around == kNobody ? uint8_t(kNobody) : std::max(around, origin));
}

void forget(const at::Tensor& tensor) {
  if (tensor.numel() > 0) presim::forget(begin_of(tensor), extent(tensor));
}

bool exists(const at::Tensor& tensor) { return tensor.numel() == 0 || mapped(begin_of(tensor), extent(tensor)); }

at::Tensor host_view(const at::Tensor& tensor) {
  return at::from_blob(begin_of(tensor), tensor.sizes(), tensor.strides(),
                       at::TensorOptions().dtype(tensor.dtype()).device(at::kCPU));
}

}  // namespace presim::hook::values
