// Each thread's Context. It is on the heap and freed by a pthread key, because thread_local objects with destructors
// are gone when the main thread's exit handlers still append.
#include <pthread.h>

#include "recorder.h"

namespace presim {
namespace {

thread_local Context* current = nullptr;

Context& make_context() {
  static pthread_key_t key = [] {
    pthread_key_t made;
    pthread_key_create(&made, [](void* context) {
      current = nullptr;
      delete static_cast<Context*>(context);
    });
    return made;
  }();
  current = new Context;
  pthread_setspecific(key, current);
  return *current;
}

}  // namespace

Context& context() { return current != nullptr ? *current : make_context(); }

}  // namespace presim
