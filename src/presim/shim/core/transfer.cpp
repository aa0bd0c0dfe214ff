#include "transfer.h"

#include <cstring>
#include <string>
#include <unordered_map>

#include "arrivals.h"
#include "capture.h"
#include "enqueue.h"
#include "memory.h"
#include "misuse.h"
#include "values.h"

namespace presim {
namespace {

struct Side {
  bool device = false;
  bool pinned = false;  // host memory that the device can access directly
};

struct Shape {
  size_t width, height;
  size_t bytes() const { return width * height; }
};

struct Pitched {
  char* begin;
  size_t pitch;
  size_t span(Shape shape) const { return shape.height == 0 ? 0 : pitch * (shape.height - 1) + shape.width; }
};

Side side_of(const void* address) {
  Range range;
  if (!find_range(address, &range)) return {};
  return {range.on_device(), range.on_host()};
}

// Pinned host memory has a device address; pageable memory has none.
bool lacks_target(Side to, int asked) {
  bool to_device = asked == int(Direction::HostToDevice) || asked == int(Direction::DeviceToDevice);
  return to_device && !to.device && !to.pinned;
}

bool lacks_source(Side from, int asked) {
  bool from_device = asked == int(Direction::DeviceToHost) || asked == int(Direction::DeviceToDevice);
  return from_device && !from.device && !from.pinned;
}

// The direction in the descriptor ("h2d" and so on); nullptr if the addresses contradict the requested direction.
const char* direction_name(Side to, Side from, int asked) {
  if (lacks_target(to, asked) || lacks_source(from, asked)) return nullptr;
  if (from.device) return to.device ? "d2d" : "d2h";
  return to.device ? "h2d" : "h2h";
}

void report_direction(Pitched to, Side target, Pitched from, Side source, Shape shape, int asked) {
  if (lacks_target(target, asked)) report_not_on_device({"copy", to.begin, shape.bytes(), true});
  if (lacks_source(source, asked)) report_not_on_device({"copy", from.begin, shape.bytes(), false});
}

int32_t describe(const char* direction, size_t bytes, bool pinned) {
  static thread_local auto* known = new std::unordered_map<uint64_t, int32_t>;  // never freed, as work comes to the end
  uint64_t key = uint64_t(bytes) << 12 | uint64_t(direction[0] == 'p') << 3 | uint64_t(direction[0] == 'd') << 2 |
                 uint64_t(direction[2] == 'd') << 1 | pinned;
  auto [found, added] = known->try_emplace(key, -1);
  if (added) {
    found->second = intern("copy direction=" + std::string(direction) + " bytes=" + std::to_string(bytes) +
                           " pinned=" + (pinned ? "1" : "0"));
  }
  return found->second;
}

void move_rows(Pitched to, Pitched from, Shape shape) {
  for (size_t row = 0; row < shape.height; ++row) {
    std::memmove(to.begin + row * to.pitch, from.begin + row * from.pitch, shape.width);
  }
}

void zero_rows(Pitched to, Shape shape) {
  if (to.pitch == shape.width) return make_zero(to.begin, shape.bytes());
  for (size_t row = 0; row < shape.height; ++row) {
    forget(to.begin + row * to.pitch, shape.width);
    std::memset(to.begin + row * to.pitch, 0, shape.width);
  }
}

void know_rows(Pitched to, Pitched from, Shape shape, bool from_device) {
  for (size_t row = 0; row < shape.height; ++row) {
    char* begin = to.begin + row * to.pitch;
    know(begin, shape.width, from_device ? origin_of(from.begin + row * from.pitch, shape.width) : uint8_t(kComputed));
  }
}

// A count that the operator's kernels would write here and that its host code reads back.
void supply_count(Pitched from, Shape shape) {
  int64_t count = expected_count();
  if (count < 0 || shape.height != 1 || (shape.width != 4 && shape.width != 8)) return;
  if (origin_of(from.begin, shape.width) == kNobody) std::memcpy(from.begin, &count, shape.width);
}

void perform(Pitched to, Pitched from, Shape shape, Side target, Side source) {
  if (source.device && !target.device) supply_count(from, shape);
  bool on_host = !target.device && !source.device;
  // Further integers may be known; resize_ copies them within the tensor's allocation.
  bool between_device = target.device && source.device && shape.height == 1;
  bool moves = on_host || shape.bytes() <= kRealBytes || (between_device && known(from.begin, shape.width));
  if (!moves) {
    bool pageable = !target.device && !target.pinned;
    if (!pageable || shape.height > 1) return zero_rows(to, shape);
    if (!overwrite_pages(to.begin, shape.width)) return;
    append(Kind::HostCall, 0, int64_t(HostCall::FirstTouch), int64_t(shape.width));
    return;
  }
  if (source.device) before_read(from.begin, from.span(shape));
  move_rows(to, from, shape);
  if (target.device) know_rows(to, from, shape, source.device);
}

// A replay repeats a small copy if its memory still exists.
std::function<void()> replayed(Pitched to, Pitched from, Shape shape, Side to_side, Side from_side) {
  return [=] {
    if (to_side.device && !covered(to.begin, to.span(shape))) return;
    if (from_side.device && !covered(from.begin, from.span(shape))) return;
    perform(to, from, shape, to_side, from_side);
  };
}

int copy_rows(Pitched to, Pitched from, Shape shape, int direction, void* handle, bool wait, bool to_peer = false) {
  if (direction < 0 || direction > 4) return kInvalidCopyDirection;
  if (int status = device_ready()) return status;
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (shape.bytes() == 0) return kSuccess;
  if (to.begin == nullptr || from.begin == nullptr) return kInvalidValue;
  if (to.pitch < shape.width || from.pitch < shape.width) return kInvalidPitch;
  Side target = side_of(to.begin), source = side_of(from.begin);
  const char* name = direction_name(target, source, direction);
  if (name == nullptr) return report_direction(to, target, from, source, shape, direction), kInvalidValue;
  if (to_peer && target.device && source.device) name = "peer";
  if (target.device && !check_access({"copy", to.begin, to.span(shape), true})) return kInvalidValue;
  if (source.device && !check_access({"copy", from.begin, from.span(shape), false})) return kInvalidValue;
  bool pageable = (!target.device && !target.pinned) || (!source.device && !source.pinned);
  int32_t work = describe(name, shape.bytes(), !pageable && !(target.device && source.device));
  if (stream->capture.load(std::memory_order_acquire) != nullptr) {
    if (wait) return invalidate_capture(*stream, kCaptureUnsupported);
    enqueue(*stream, work, NodeType::Copy, replayed(to, from, shape, target, source));
    return kSuccess;
  }
  if (wait) {
    if (int status = refuse_unsafe_call()) return status;
  }
  perform(to, from, shape, target, source);
  enqueue(*stream, work, NodeType::Copy);
  // A copy to pageable memory, or of more than a staging buffer from it, is synchronous. Within the device, even
  // cudaMemcpy does not wait.
  bool staged = pageable && (!target.device || shape.bytes() > kRealBytes);
  bool between_device = target.device && source.device;
  if ((wait && !between_device) || staged) await_stream(*stream);
  return kSuccess;
}

void fill_row(char* to, unsigned value, unsigned width, size_t count) {
  if (width == 1) {
    std::memset(to, int(value), count);
    return;
  }
  for (size_t i = 0; i < count; ++i) std::memcpy(to + i * width, &value, width);
}

void perform_fill(Pitched to, Shape shape, unsigned value, unsigned width) {
  if (shape.bytes() > kRealBytes) return zero_rows(to, shape);
  for (size_t row = 0; row < shape.height; ++row) {
    fill_row(to.begin + row * to.pitch, value, width, shape.width / width);
    know(to.begin + row * to.pitch, shape.width, kComputed);
  }
}

int32_t describe_fill(size_t bytes) {
  static thread_local auto* known = new std::unordered_map<size_t, int32_t>;
  auto [found, added] = known->try_emplace(bytes, -1);
  if (added) found->second = intern("memset bytes=" + std::to_string(bytes));
  return found->second;
}

}  // namespace

int copy(void* to, const void* from, size_t bytes, int direction, void* stream, bool wait) {
  return copy_rows({static_cast<char*>(to), bytes}, {static_cast<char*>(const_cast<void*>(from)), bytes}, {bytes, 1},
                   direction, stream, wait);
}

int copy_between(void* to, int to_device, const void* from, int from_device, size_t bytes, void* stream, bool wait) {
  if (!valid_device(to_device) || !valid_device(from_device)) return kInvalidDevice;
  return copy_rows({static_cast<char*>(to), bytes}, {static_cast<char*>(const_cast<void*>(from)), bytes}, {bytes, 1},
                   int(Direction::DeviceToDevice), stream, wait, to_device != from_device);
}

int copy_2d(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int direction,
            void* stream, bool wait) {
  return copy_rows({static_cast<char*>(to), to_pitch}, {static_cast<char*>(const_cast<void*>(from)), from_pitch},
                   {width, height}, direction, stream, wait);
}

int fill(void* to, unsigned value, unsigned width, size_t count, void* stream, bool wait) {
  return fill_2d(to, width * count, value, width, count, 1, stream, wait);
}

int fill_2d(void* address, size_t pitch, unsigned value, unsigned width, size_t count, size_t height, void* handle,
            bool wait) {
  if (int status = device_ready()) return status;
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return kInvalidHandle;
  Pitched to{static_cast<char*>(address), pitch};
  Shape shape{width * count, height};
  if (shape.bytes() == 0) return kSuccess;
  if (address == nullptr || !check_access({"fill", address, to.span(shape), true})) return kInvalidValue;
  int32_t work = describe_fill(shape.bytes());
  if (stream->capture.load(std::memory_order_acquire) != nullptr) {
    if (wait) return invalidate_capture(*stream, kCaptureUnsupported);
    enqueue(*stream, work, NodeType::Memset, [=] {
      if (covered(to.begin, to.span(shape))) perform_fill(to, shape, value, width);
    });
    return kSuccess;
  }
  perform_fill(to, shape, value, width);
  enqueue(*stream, work, NodeType::Memset);
  return kSuccess;
}

}  // namespace presim
