// NVRTC: compilation "succeeds" with a PTX text that names the requested kernels. They are not emulated; launches are
// logged like any other kernel's.
#include <cstring>
#include <map>
#include <string>

#include "libs/common.h"

namespace {

constexpr int kInvalidInput = 3, kInvalidProgram = 4;

struct Program {
  static constexpr uint64_t kMagic = 0x6e76727463707273;
  uint64_t magic = kMagic;
  std::string source, ptx;
  std::map<std::string, std::string> lowered;
};

Program* checked(void* program) {
  auto* found = static_cast<Program*>(program);
  return found != nullptr && found->magic == Program::kMagic ? found : nullptr;
}

// A C identifier for "&my::kernel<float, 3>": unique, and readable in a trace.
std::string lower(const std::string& expression) {
  std::string name;
  for (char c : expression) {
    if (c == ' ' || c == '&') continue;
    name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  }
  return name;
}

constexpr int kArchitectures[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
constexpr int kArchitectureCount = sizeof(kArchitectures) / sizeof(kArchitectures[0]);

int give_size(void* program, size_t* bytes) {
  if (checked(program) == nullptr || bytes == nullptr) return kInvalidInput;
  *bytes = checked(program)->ptx.size() + 1;
  return 0;
}

int give_text(void* program, char* out) {
  if (checked(program) == nullptr || out == nullptr) return kInvalidInput;
  std::memcpy(out, checked(program)->ptx.c_str(), checked(program)->ptx.size() + 1);
  return 0;
}

}  // namespace

PRESIM_EXPORT const char* nvrtcGetErrorString(int result) { return result == 0 ? "NVRTC_SUCCESS" : "NVRTC_ERROR"; }
PRESIM_EXPORT int nvrtcVersion(int* major, int* minor) {
  if (major == nullptr || minor == nullptr) return kInvalidInput;
  *major = 13;
  *minor = 0;
  return 0;
}
PRESIM_EXPORT int nvrtcGetNumSupportedArchs(int* count) {
  if (count == nullptr) return kInvalidInput;
  *count = kArchitectureCount;
  return 0;
}
PRESIM_EXPORT int nvrtcGetSupportedArchs(int* out) {
  if (out == nullptr) return kInvalidInput;
  std::memcpy(out, kArchitectures, sizeof kArchitectures);
  return 0;
}

PRESIM_EXPORT int nvrtcCreateProgram(void** out, const char* source, const char*, int, const char* const*,
                                     const char* const*) {
  if (out == nullptr || source == nullptr) return kInvalidInput;
  auto* program = new Program;
  program->source = source;
  *out = program;
  return 0;
}
PRESIM_EXPORT int nvrtcDestroyProgram(void** program) {
  if (program == nullptr || checked(*program) == nullptr) return kInvalidProgram;
  checked(*program)->magic = 0;
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return 0;
}
PRESIM_EXPORT int nvrtcAddNameExpression(void* program, const char* expression) {
  if (checked(program) == nullptr || expression == nullptr) return kInvalidInput;
  checked(program)->lowered[expression] = lower(expression);
  return 0;
}
PRESIM_EXPORT int nvrtcCompileProgram(void* handle, int, const char* const*) {
  Program* program = checked(handle);
  if (program == nullptr) return kInvalidProgram;
  program->ptx = ".version 8.0\n.target sm_90\n.address_size 64\n";
  for (auto& [expression, name] : program->lowered) program->ptx += ".visible .entry " + name + "() { ret; }\n";
  return 0;
}
PRESIM_EXPORT int nvrtcGetLoweredName(void* handle, const char* expression, const char** out) {
  Program* program = checked(handle);
  if (program == nullptr || expression == nullptr || out == nullptr) return kInvalidInput;
  auto found = program->lowered.find(expression);
  if (found == program->lowered.end()) return kInvalidInput;
  *out = found->second.c_str();
  return 0;
}

PRESIM_EXPORT int nvrtcGetPTXSize(void* program, size_t* bytes) { return give_size(program, bytes); }
PRESIM_EXPORT int nvrtcGetPTX(void* program, char* out) { return give_text(program, out); }
PRESIM_EXPORT int nvrtcGetCUBINSize(void* program, size_t* bytes) { return give_size(program, bytes); }
PRESIM_EXPORT int nvrtcGetCUBIN(void* program, char* out) { return give_text(program, out); }
PRESIM_EXPORT int nvrtcGetProgramLogSize(void*, size_t* bytes) {
  if (bytes == nullptr) return kInvalidInput;
  *bytes = 1;
  return 0;
}
PRESIM_EXPORT int nvrtcGetProgramLog(void*, char* out) {
  if (out == nullptr) return kInvalidInput;
  *out = '\0';
  return 0;
}
