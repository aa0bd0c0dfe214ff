#include "operator_table.h"

#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "counts.h"

namespace presim::hook::values {
namespace {

bool one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  for (std::string_view candidate : names) {
    if (name == candidate) return true;
  }
  return false;
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// They change a tensor's shape or storage but no values.
bool moves_no_values(std::string_view name) {
  return name.starts_with("empty") || name.starts_with("new_empty") || name.starts_with("resize") ||
         name.starts_with("_resize") || one_of(name, {"set_", "record_stream", "_pin_memory", "is_pinned", "is_set_to"});
}

bool overwrites(std::string_view name) {
  return one_of(name, {"fill_", "zero_", "copy_", "normal_", "uniform_", "random_", "exponential_", "log_normal_",
                       "cauchy_", "geometric_", "bernoulli_"});
}

bool is_loss(std::string_view name) {
  return contains(name, "loss") || contains(name, "cross_entropy") || name == "kl_div";
}

Rule rule_of(std::string_view name) {
  if (contains(name, "backward")) return Rule::Number;
  if (contains(name, "dropout")) return Rule::Dropout;
  if (is_loss(name)) return Rule::Loss;
  if (contains(name, "non_finite")) return Rule::Finite;
  if (contains(name, "norm") && (contains(name, "vector_norm") || contains(name, "_foreach_norm") || name == "norm")) {
    return Rule::Norm;
  }
  if (one_of(name, {"topk", "sort", "argsort", "argmax", "argmin", "max", "min", "multinomial"})) return Rule::Indices;
  if (one_of(name, {"all", "isfinite"})) return Rule::True;
  return Rule::Number;
}

// Whether it returns an alias of an argument and writes nothing.
bool is_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

void find_written(Operator& op, const c10::FunctionSchema& schema, std::string_view name) {
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    bool writes = alias != nullptr && alias->isWrite();
    if (writes) op.written.push_back({uint8_t(i), arguments[i].kwarg_only() || overwrites(name)});
    // Its running statistics, which its schema does not declare.
    bool silently = !writes && op.training >= 0 && contains(name, "batch_norm") && !contains(name, "backward");
    if (silently && arguments[i].name().starts_with("running_")) op.written.push_back({uint8_t(i), false, op.training});
  }
}

Treatment treatment_of(const Operator& op, const c10::FunctionSchema& schema, std::string_view space,
                       std::string_view name) {
  const c10::OperatorHandle& handle = *op.handle;
  bool own_kernel = handle.hasKernelForDispatchKey(c10::DispatchKey::CUDA);
  if (space != "aten") return own_kernel && !is_view(schema) && space != "c10d" ? Treatment::Answer : Treatment::Ignore;
  if (name == "_local_scalar_dense") return Treatment::ReadScalar;
  if (coalesces(name)) return Treatment::Coalesce;
  if (moves_no_values(name) || is_view(schema) || handle.hasTag(at::Tag::inplace_view)) return Treatment::Ignore;
  if (name == "copy_") return Treatment::Copy;  // one kernel for all devices
  if (!own_kernel) return op.rule == Rule::Loss ? Treatment::Answer : Treatment::Ignore;  // a loss of several operators
  bool computed = op.stand_in != nullptr || handle.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU);
  return computed ? Treatment::Evaluate : Treatment::Answer;
}

std::unique_ptr<Operator> describe(const at::RecordFunction& fn) {
  auto op = std::make_unique<Operator>();
  op->name = fn.name();
  auto full = fn.operator_name();
  if (!full) return op;
  op->handle = c10::Dispatcher::singleton().findOp(*full);
  if (!op->handle || !op->handle->hasSchema()) return op;
  const c10::FunctionSchema& schema = op->handle->schema();
  std::string_view qualified = op->name;
  size_t colon = qualified.find("::");
  std::string_view space = qualified.substr(0, colon);
  std::string_view name = colon == std::string_view::npos ? qualified : qualified.substr(colon + 2);
  op->arguments = schema.arguments().size();
  op->stand_in = space == "aten" ? stand_in_for(name, schema.overload_name()) : nullptr;
  op->computed_by = op->stand_in != nullptr ? handle_of(*op->stand_in) : *op->handle;
  op->rule = rule_of(name);
  op->treatment = treatment_of(*op, schema, space, name);
  op->bounded = bounded(qualified);
  op->counts = one_of(name, {"equal", "nonzero", "_unique2", "_unique", "unique_dim", "unique_consecutive", "unique_dim_consecutive"});
  op->random = op->handle->hasTag(at::Tag::nondeterministic_seeded);
  for (size_t i = 0; i < op->arguments; ++i) {
    const std::string& argument = schema.arguments()[i].name();
    op->random |= argument == "generator";
    if (argument == "dim") op->dim = int(i);
    if (argument == "reduction") op->reduction = int(i);
    if (argument == "target") op->target = int(i);
    if (argument == "training") op->training = int(i);
  }
  find_written(*op, schema, name);
  return op;
}

// Keyed by the address of the name in the schema, so that no string is hashed for each operator.
struct Table {
  std::mutex mutex;
  std::unordered_map<const char*, std::unique_ptr<Operator>> operators;
};

struct Remembered {
  const char* name = nullptr;
  Operator* op = nullptr;
};
constexpr size_t kRemembered = 2048;

}  // namespace

Operator& operator_of(const at::RecordFunction& fn) {
  static auto* table = new Table;
  static thread_local auto* recent = new std::array<Remembered, kRemembered>{};
  const char* name = fn.name();
  Remembered& slot = (*recent)[(reinterpret_cast<uintptr_t>(name) * 0x9e3779b97f4a7c15ull) >> 53];
  if (slot.name == name && std::strcmp(slot.op->name.c_str(), name) == 0) return *slot.op;
  std::lock_guard lock(table->mutex);
  auto& known = table->operators[name];
  if (known == nullptr) known = describe(fn);
  if (known->name != name) known.release(), known = describe(fn);  // the address was reused; old slots may point to it
  slot = {name, known.get()};
  return *known;
}

}  // namespace presim::hook::values
