// Prevents an abort at exit. Before 3.14, CPython ends a thread that requests the interpreter's lock during
// finalisation with pthread_exit, which unwinds through PyTorch's noexcept functions: std::terminate, exit status 134
// after all output. Autograd threads that still release a backward pass's objects do this. On a GPU the program waits
// long enough that it rarely occurs; on a device that takes no time it occurred in one of five programs that end with
// a backward pass.
//
// Such a thread sleeps here until the process ends, as in CPython 3.14.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <initializer_list>

namespace {

using Exit = void (*)(void*);
using Finalizing = int (*)();

bool interpreter_ends() {
  for (const char* name : {"_Py_IsFinalizing", "Py_IsFinalizing"}) {
    auto ask = reinterpret_cast<Finalizing>(dlsym(RTLD_DEFAULT, name));
    if (ask != nullptr) return ask() != 0;
  }
  return false;
}

// At exit, PyTorch waits up to 10 s for its autograd threads, and a sleeping one does not respond.
[[gnu::constructor]] void no_wait_for_autograd() {
  if (std::getenv("PRESIM_DEVICE") != nullptr) setenv("TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT", "0", 0);
}

}  // namespace

extern "C" [[noreturn]] __attribute__((visibility("default"))) void pthread_exit(void* result) {
  static auto real = reinterpret_cast<Exit>(dlsym(RTLD_NEXT, "pthread_exit"));
  bool main_thread = gettid() == getpid();
  while (!main_thread && interpreter_ends()) pause();
  real(result);
  std::abort();
}
