#include "written.h"

#include <ATen/core/function_schema.h>

#include <cstring>
#include <string>
#include <unordered_map>

namespace presim::hook {
namespace {

std::vector<Written> find_written(const at::RecordFunction& fn) {
  std::vector<Written> result;
  auto schema = fn.operator_schema();
  if (!schema.has_value() || !schema->returns().empty()) return result;
  const auto& arguments = schema->arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias == nullptr || !alias->isWrite()) continue;
    const std::string& name = arguments[i].name();
    result.push_back({i, name.starts_with("out") || name.starts_with("result")});
  }
  return result;
}

}  // namespace

const std::vector<Written>& written_arguments(const at::RecordFunction& fn) {
  static const std::vector<Written> none;
  if (std::strncmp(fn.name(), "aten::", 6) == 0) return none;
  thread_local auto* known = new std::unordered_map<std::string, std::vector<Written>>;  // outlives the thread
  std::string key = std::string(fn.name()) + '.' + fn.overload_name();
  auto found = known->find(key);
  return found != known->end() ? found->second : known->emplace(std::move(key), find_written(fn)).first->second;
}

}  // namespace presim::hook
