// Libraries opened by absolute path. Programs find their linked libraries among the preloaded fakes by name, but
// PyTorch and others also open those of the nvidia-* packages by absolute path, which would run on top of the fakes.
// dlopen returns the fake instead, if there is one with that name and major version.
#include <dirent.h>
#include <dlfcn.h>

#include <cstring>
#include <string>
#include <vector>

namespace presim {
namespace {

struct Fake {
  std::string soname;  // libcublas.so.13
  std::string path;
};

std::vector<Fake> find_fakes() {
  std::vector<Fake> found;
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&find_fakes), &self) == 0) return found;
  std::string directory(self.dli_fname);
  directory.resize(directory.rfind('/') == std::string::npos ? 0 : directory.rfind('/'));
  DIR* listing = directory.empty() ? nullptr : opendir(directory.c_str());
  if (listing == nullptr) return found;
  while (dirent* entry = readdir(listing)) {
    std::string name = entry->d_name;
    if (name.find(".so.") != std::string::npos) found.push_back({name, directory + "/" + name});
  }
  closedir(listing);
  return found;
}

// libcublas.so, libcublas.so.13 and libcublas.so.13.1.0 are libcublas.so.13; libcublas.so.12 is not.
bool means(const char* name, const std::string& soname) {
  size_t stem = soname.find(".so.") + 3;
  if (std::strncmp(name, soname.c_str(), stem) != 0) return false;
  if (name[stem] == '\0') return true;
  bool same_major = std::strncmp(name, soname.c_str(), soname.size()) == 0;
  return same_major && (name[soname.size()] == '\0' || name[soname.size()] == '.');
}

}  // namespace
}  // namespace presim

extern "C" {

void* (*presim_real_dlopen)(const char*, int) = nullptr;

// The library to open in place of `path`: a fake, or `path` itself.
const char* presim_redirected(const char* path) {
  static auto* fakes = new std::vector<presim::Fake>(presim::find_fakes());
  if (presim_real_dlopen == nullptr) {
    presim_real_dlopen = reinterpret_cast<void* (*)(const char*, int)>(dlsym(RTLD_NEXT, "dlopen"));
  }
  if (path == nullptr) return path;
  const char* slash = std::strrchr(path, '/');
  const char* name = slash != nullptr ? slash + 1 : path;
  for (const presim::Fake& fake : *fakes) {
    if (presim::means(name, fake.soname)) return fake.path.c_str();
  }
  return path;
}

// A jump in place of a call: dlopen inspects its caller's RUNPATH for the search.
__attribute__((naked, visibility("default"))) void* dlopen(const char*, int) {
  __asm__(
      "push %rsi\n\t"
      "call presim_redirected@PLT\n\t"
      "pop %rsi\n\t"
      "mov %rax, %rdi\n\t"
      "mov presim_real_dlopen@GOTPCREL(%rip), %rax\n\t"
      "jmp *(%rax)");
}

}  // extern "C"
