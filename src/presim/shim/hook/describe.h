// The shapes of an operator's tensors: first as a compact key, then as text once per distinct key.
//
// The key is a row of 64-bit words, one value after the other:
//
//   tensor   [Tag::Tensor | dtype << 8 | on_device << 16 | dims << 24] size...
//   list     [Tag::List | dtype << 8 | on_device << 16 | tensors << 24] elements
//   scalar   [Tag::Scalar] bits             (only if the operator's work depends on it)
//   ends     [Tag::Ends | groups << 24] end...   (of the groups of a grouped product, if known)
//   outputs  [Tag::Outputs]                 (inputs come before, outputs after)
#pragma once
#include <ATen/record_function.h>

#include <cstdint>
#include <string>
#include <vector>

namespace presim::hook {

using Arena = std::vector<int64_t>;

// Appends the key of the inputs; returns whether one of them requires a gradient.
bool describe_inputs(const at::RecordFunction& fn, Arena& arena);
void describe_outputs(const at::RecordFunction& fn, Arena& arena);

// Descriptor id of "op name=… in=… out=… args=…".
int32_t operator_id(const at::RecordFunction& fn, const int64_t* key, size_t words);

// "range name=…", with blanks replaced by underscores.
std::string describe_range(const char* name);

}  // namespace presim::hook
