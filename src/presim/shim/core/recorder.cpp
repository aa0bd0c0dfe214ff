// Appending to the capture log.
#include "recorder.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <mutex>

#include "clock.h"
#include "fork.h"
#include "host_waits.h"
#include "live.h"
#include "log_file.h"
#include "own_time.h"
#include "pace.h"

namespace presim {
namespace {

enum class State : int { Unopened, Open, None };

struct Recorder {
  std::mutex mutex;  // guards file and clocks; records are in the order in which it was acquired
  std::atomic<State> state{State::Unopened};
  LogFile file;
  CpuClock clock;
  LiveClock live;
  std::mutex asking;    // one query at a time; acquired before `mutex`
  Pace pace;
  int64_t program_ns = 0;  // CPU time without our own; never goes back
  int64_t forgiven_ns = 0;
  double reference_ns = 0;  // its time on the reference host
  uint64_t launches = 0, waits = 0;

  // Time of the reference host for the program so far.
  int64_t now() {
    int64_t before_ns = program_ns;
    advance();
    reference_ns += pace.reference_ns(program_ns - before_ns);
    return int64_t(reference_ns);
  }

  // Our own time is known only afterwards, so the difference can decrease by one piece of it. It is also an estimate:
  // if we were interrupted, it may include time in which the process did not run. A larger decrease is such time and
  // is ignored; otherwise the clock would stop until the program had made up for it.
  void advance() {
    constexpr int64_t kOff_ns = 500000;
    int64_t behind = program_ns - (clock.now() - own_time() + forgiven_ns);
    if (behind > kOff_ns) forgiven_ns += behind - kOff_ns;
    if (behind < 0) program_ns -= behind;
  }

  // Space after the last record, filled with records of the current moment; nullptr: the disk is full. Readers do not
  // see them yet.
  Record* begin_batch(const Record* records, size_t count) {
    if (!file.reserve(count)) return nullptr;
    Record* written = file.record(file.header().count.load(std::memory_order_relaxed));
    std::copy_n(records, count, written);
    int64_t cpu_ns = now();
    for (size_t i = 0; i < count; ++i) written[i].cpu_ns = cpu_ns;
    return written;
  }

  void end_batch(size_t count) { file.header().count.fetch_add(count, std::memory_order_release); }

  Moment moment() {
    int64_t cpu_ns = now();
    return {file.header().count.load(std::memory_order_relaxed), cpu_ns, live.extra_ns()};
  }
};

// Never destroyed: threads and exit handlers append until the end of the process.
Recorder& recorder() {
  static auto* instance = new Recorder;
  return *instance;
}

// A forked child (a DataLoader worker) shares the mapping and must not write to it.
[[gnu::constructor]] void forget_log_in_children() {
  hold_across_fork(recorder().mutex, ForkOrder::Log);
  pthread_atfork(nullptr, nullptr, [] { recorder().state = State::None; });
}

bool open_once(Recorder& log) {
  std::lock_guard lock(log.mutex);
  if (log.state == State::Unopened) {
    const char* directory = std::getenv("PRESIM_LOG_DIR");
    bool opened = directory != nullptr && *directory != '\0' && log.file.create(directory);
    log.state.store(opened ? State::Open : State::None, std::memory_order_release);
  }
  return log.state == State::Open;
}

bool is_open(Recorder& log) {
  State state = log.state.load(std::memory_order_acquire);
  return state == State::Open || (state == State::Unopened && open_once(log));
}

constexpr uint64_t kCaptured = uint64_t(1) << 63;  // marks an index of captured records
constexpr uint64_t kHeld = uint64_t(1) << 62;      // marks an index of held records

struct Captured {
  std::mutex mutex;
  std::deque<Record> records;  // addresses never change
};

Captured& captured() {
  static auto* instance = [] {
    auto* made = new Captured;
    hold_across_fork(made->mutex, ForkOrder::Log);
    return made;
  }();
  return *instance;
}

void claim_later(Context& here, uint64_t index) {
  if (here.op_depth > 0) here.op_records.push_back(index);
}

bool is_launch(Kind kind) { return kind <= Kind::StreamWait; }

bool takes_long(Kind kind) {
  return kind == Kind::HostWait || kind == Kind::HostCall || kind == Kind::SegmentAlloc || kind == Kind::SegmentFree;
}

bool waits(Kind kind) { return kind == Kind::EventSync || kind == Kind::StreamSync || kind == Kind::DeviceSync; }

// The clock continues from the answer before the next query. A process without a log, such as a program that the script
// starts, has no moment to ask about.
Answer ask(Recorder& log, Ask what, int64_t first, int64_t second, const Moment* when) {
  if (log.state.load(std::memory_order_acquire) != State::Open) {
    Answer answer{};
    answer.status = kNobody;
    return answer;
  }
  OwnWork observing;
  own_moment_ns() = -1;
  std::lock_guard turn(log.asking);
  Moment moment;
  {
    std::lock_guard lock(log.mutex);
    moment = when != nullptr ? *when : log.moment();
  }
  Answer answer = ask_simulator({what, moment.count, moment.cpu_ns, first, second});
  std::lock_guard lock(log.mutex);
  log.pace.waited();
  if (answer.status != kNobody && log.live.begun()) log.live.answered(moment, answer);
  return answer;
}

}  // namespace

Answer ask_now(Ask what, int64_t first, int64_t second) { return ask(recorder(), what, first, second, nullptr); }

int64_t live_ns() {
  if (!live() || own_time_depth() > 0) return -1;
  Recorder& log = recorder();
  if (log.state.load(std::memory_order_acquire) != State::Open) return -1;
  {
    std::lock_guard lock(log.mutex);
    if (!log.live.begun()) return -1;
    if (log.live.certain()) return log.live.show(log.now());
  }
  ask_now(Ask::Now);
  std::lock_guard lock(log.mutex);
  return log.live.show(log.now());
}

void host_waited() {
  Recorder& log = recorder();
  std::lock_guard lock(log.mutex);
  log.pace.waited();
}

bool log_open() { return is_open(recorder()); }
void expect_log() { recorder().state = State::Unopened; }

uint64_t append(Kind kind, uint16_t stream, int64_t object, int64_t value, int32_t work, uint8_t tag) {
  Recorder& log = recorder();
  if (!is_open(log)) return UINT64_MAX;
  Context& here = context();
  uint64_t index;
  Moment moment;
  int64_t cost_ns = 0;
  if (log.live.on()) {
    OwnTime observing;
    cost_ns = log.live.cost_ns(kind, work, object, value);
  }
  {
    std::lock_guard lock(log.mutex);
    OwnTime observing;  // excludes the wait for the lock, in which other threads run
    if (!log.file.reserve(1)) return UINT64_MAX;
    Header& header = log.file.header();
    index = header.count.load(std::memory_order_relaxed);
    Record& record = *log.file.record(index);
    record = Record{log.now(), object, value, work, here.op_depth > 0 ? kUnclaimed : -1, here.scope, stream, kind, here.phase, tag, {}};
    header.count.store(index + 1, std::memory_order_release);
    log.pace.look(log.program_ns);
    log.live.appended(kind, record.cpu_ns, value, cost_ns);
    log.launches += is_launch(kind);
    log.waits += waits(kind) || takes_long(kind);
    moment = {index + 1, record.cpu_ns, log.live.extra_ns()};
  }
  if (log.live.on() && index == 0) simulator_answers();  // tells the launcher that this rank is running
  if (log.live.on() && waits(kind)) ask(log, Ask::Sync, int64_t(index), 0, &moment);
  claim_later(here, index);
  return index;
}

uint64_t remember_captured() {
  Context& here = context();
  Captured& all = captured();
  std::lock_guard lock(all.mutex);
  uint64_t index = kCaptured | all.records.size();
  all.records.push_back(Record{0, 0, 0, -1, -1, here.scope, 0, Kind::Work, here.phase, 0, {}});
  claim_later(here, index);
  return index;
}

void append_batch(const Record* records, size_t count) {
  Recorder& log = recorder();
  if (count == 0 || !is_open(log)) return;
  Context& here = context();
  std::lock_guard lock(log.mutex);
  Record* written = log.begin_batch(records, count);
  if (written == nullptr) return;
  uint64_t first = log.file.header().count.load(std::memory_order_relaxed);
  for (size_t i = 0; i < count && here.op_depth > 0; ++i) {
    if (records[i].op >= 0) continue;
    written[i].op = kUnclaimed;
    claim_later(here, first + i);
  }
  log.end_batch(count);
  log.launches += count;
  log.live.appended(records[0].kind, written->cpu_ns, 0, log.live.cost_ns(Kind::Work, -1), int64_t(count));
}

void hold(Kind kind, uint16_t stream, int64_t object, int32_t work) {
  if (!is_open(recorder())) return;
  Context& here = context();
  claim_later(here, kHeld | here.held.size());
  int32_t op = here.op_depth > 0 ? kUnclaimed : -1;
  here.held.push_back(Record{0, object, 0, work, op, here.scope, stream, kind, here.phase, 0, {}});
}

void append_held(size_t launches) {
  Recorder& log = recorder();
  Context& here = context();
  std::vector<Record> held = std::move(here.held);
  here.held.clear();
  if (held.empty()) return;
  std::lock_guard lock(log.mutex);
  Record* written = log.begin_batch(held.data(), held.size());
  uint64_t first = written != nullptr ? log.file.header().count.load(std::memory_order_relaxed) : 0;
  for (uint64_t& index : here.op_records) {
    if ((index & kHeld) != 0) index = written != nullptr ? first + (index & ~kHeld) : UINT64_MAX;
  }
  if (written == nullptr) return;
  log.end_batch(held.size());
  log.launches += held.size();
  for (size_t i = 0; i < launches; ++i) log.live.appended(Kind::Collective, written->cpu_ns, 0, log.live.cost_ns(Kind::Collective, -1));
}

Progress progress() {
  Recorder& log = recorder();
  if (log.state.load(std::memory_order_acquire) != State::Open) return {};
  std::lock_guard lock(log.mutex);
  OwnTime observing;
  return {log.file.header().count.load(std::memory_order_relaxed), log.launches, log.waits, log.now()};
}

Record* record_at(uint64_t index) {
  if (index != UINT64_MAX && (index & kCaptured) != 0) {
    Captured& all = captured();
    std::lock_guard lock(all.mutex);
    size_t place = index & ~kCaptured;
    return place < all.records.size() ? &all.records[place] : nullptr;
  }
  if (index != UINT64_MAX && (index & kHeld) != 0) {
    std::vector<Record>& held = context().held;
    return (index & ~kHeld) < held.size() ? &held[index & ~kHeld] : nullptr;
  }
  Recorder& log = recorder();
  if (log.state.load(std::memory_order_acquire) != State::Open) return nullptr;
  return index < log.file.header().count.load(std::memory_order_acquire) ? log.file.record(index) : nullptr;
}

}  // namespace presim
