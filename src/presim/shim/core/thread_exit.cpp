// The abort at exit. Before 3.14, CPython ends a thread that wants the interpreter's lock during finalisation by
// pthread_exit, which unwinds through PyTorch's noexcept functions: std::terminate, exit status 134 after all output.
// An autograd thread that still drops what a backward pass held does so. A GPU makes the program wait long enough that it is
// seldom seen there; a device that takes no time showed it in one of five programs that end with a backward pass.
//
// Such a thread sleeps here until the process has ended, as from CPython 3.14 on.
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

// PyTorch waits 10 s for its autograd threads when the process ends, and a sleeping one does not answer.
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
