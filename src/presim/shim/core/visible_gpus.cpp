#include "visible_gpus.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "attributes.h"
#include "config.h"
#include "device.h"
#include "fork.h"

namespace presim {
namespace {

using Gpus = std::vector<int>;

int described_count() { return std::min(device_config().count, kMaxDevices); }

// -1: there is no such GPU.
int gpu_named(const std::string& name) {
  if (name.rfind("GPU-", 0) == 0) {
    for (int gpu = 0; gpu < described_count(); ++gpu) {
      if (device_uuid_text(gpu).rfind(name, 0) == 0) return gpu;
    }
    return -1;
  }
  char* end = nullptr;
  long gpu = std::strtol(name.c_str(), &end, 10);
  return end != name.c_str() && gpu >= 0 && gpu < kMaxDevices ? int(gpu) : -1;
}

Gpus read_list() {
  Gpus gpus;
  const char* text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int gpu = 0; gpu < described_count(); ++gpu) gpus.push_back(gpu);
    return gpus;
  }
  std::stringstream names(text);
  for (std::string name; described_count() > 0 && std::getline(names, name, ',');) {
    int gpu = gpu_named(name.substr(std::min(name.find_first_not_of(' '), name.size())));
    if (gpu < 0 || std::count(gpus.begin(), gpus.end(), gpu) > 0) break;  // as in CUDA, the rest is invisible
    gpus.push_back(gpu);
  }
  return gpus;
}

template <class Answer>
int with_list(Answer answer) {
  static std::atomic<const Gpus*> final_list{nullptr};
  if (const Gpus* list = final_list.load(std::memory_order_acquire)) return answer(*list);
  auto* list = new Gpus(read_list());
  int result = answer(*list);
  const Gpus* unset = nullptr;
  if (!is_used() || !final_list.compare_exchange_strong(unset, list)) delete list;
  return result;
}

}  // namespace

int gpu_of(int device) {
  return with_list([=](const Gpus& list) { return device >= 0 && device < int(list.size()) ? list[size_t(device)] : -1; });
}

int device_of_gpu(int gpu) {
  return with_list([=](const Gpus& list) {
    auto found = std::find(list.begin(), list.end(), gpu);
    return found != list.end() ? int(found - list.begin()) : -1;
  });
}

int visible_count() {
  return with_list([](const Gpus& list) { return int(list.size()); });
}

int gpu_count() {
  return with_list([](const Gpus& list) {
    int last = list.empty() ? -1 : *std::max_element(list.begin(), list.end());
    return std::max(described_count(), last + 1);
  });
}

}  // namespace presim
