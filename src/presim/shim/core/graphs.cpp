#include "graphs.h"

#include <algorithm>

#include "capture.h"
#include "clock.h"
#include "slab.h"

namespace presim {
namespace {

constexpr size_t kMost = size_t(1) << 20;
constexpr uint8_t kReplayed = 1;

template <class T>
Slab<T, kMost>& all() {
  static auto* instance = new Slab<T, kMost>;
  return *instance;
}

std::atomic<int64_t> replays{0};

// Captured work keeps the names of its capture. Work added by hand has the current names.
Record record_of(const Entry& entry, uint16_t launch_stream, int64_t first_serial, int64_t replay) {
  Record record{0, 0, 0, -1, -1, context().scope, 0, entry.kind, context().phase, kReplayed, {}};
  if (const Record* named = record_at(entry.captured)) {
    record.op = named->op;
    record.scope = named->scope;
    if (named->phase != Phase::Other) record.phase = named->phase;
    if (named->value > 0) record.value = replay << 32 | named->value;  // each replay counts as a call
  }
  record.stream = entry.origin ? launch_stream : entry.stream;
  record.work = entry.work;
  bool event = entry.kind == Kind::EventRecord || entry.kind == Kind::StreamWait;
  // A replayed collective is a new launch: its group must differ from the captured one.
  record.object = event ? first_serial + entry.object : entry.kind == Kind::Collective ? (replay << 32 | entry.object) : 0;
  return record;
}

// An event that is visible outside has a new version at each launch. False: nothing to wait for.
bool external_serial(const Entry& entry, Record& record, Stream& stream) {
  if (entry.kind == Kind::EventRecord) {
    record_joint_calls(stream, *entry.external);
    record.object = take_serials(1);
    entry.external->host_ns = clock_ns(CLOCK_MONOTONIC);
    entry.external->stream = record.stream;
    entry.external->serial = record.object;
  } else {
    record.object = entry.external->serial;
    follow_joint_calls(stream, *entry.external);
  }
  return record.object != 0;
}

void share_objects(const std::vector<UserObject*>& objects) {
  for (UserObject* object : objects) add_references(object, 1);
}

void drop_objects(std::vector<UserObject*>& objects) {
  for (UserObject* object : objects) add_references(object, -1);
  objects.clear();
}

}  // namespace

int create_graph(Graph** out) {
  if (out == nullptr) return kInvalidValue;
  *out = all<Graph>().acquire();
  return *out != nullptr ? kSuccess : kOutOfMemory;
}

Graph* find_graph(void* handle) { return all<Graph>().find(handle); }
GraphExec* find_exec(void* handle) { return all<GraphExec>().find(handle); }

int destroy_graph(void* handle) {
  Graph* graph = find_graph(handle);
  if (graph == nullptr || !all<Graph>().release(graph)) return kInvalidHandle;
  drop_objects(graph->objects);
  graph->entries.clear();
  graph->nodes.clear();
  return kSuccess;
}

int clone_graph(Graph** out, void* handle) {
  Graph* original = find_graph(handle);
  if (original == nullptr) return kInvalidValue;
  if (int status = create_graph(out)) return status;
  for (const auto& node : original->nodes) {
    std::vector<Node*> dependencies;
    for (const Node* before : node->dependencies) {
      auto same = std::find_if(original->nodes.begin(), original->nodes.end(), [&](auto& n) { return n.get() == before; });
      dependencies.push_back((*out)->nodes[size_t(same - original->nodes.begin())].get());
    }
    add_node(**out, node->type, std::move(dependencies));
  }
  (*out)->entries = original->entries;
  (*out)->tokens = original->tokens;
  (*out)->objects = original->objects;
  share_objects((*out)->objects);
  return kSuccess;
}

Node* add_node(Graph& graph, NodeType type, std::vector<Node*> dependencies) {
  graph.nodes.push_back(std::make_unique<Node>(Node{&graph, type, std::move(dependencies)}));
  return graph.nodes.back().get();
}

bool owns(const Graph& graph, const Node* node) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [node](auto& n) { return n.get() == node; });
}

int add_explicit(void* handle, NodeType type, Node* const* dependencies, size_t count, Entry entry, Node** out) {
  Graph* graph = find_graph(handle);
  if (graph == nullptr || out == nullptr || (count > 0 && dependencies == nullptr)) return kInvalidValue;
  std::lock_guard lock(capture_mutex());
  *out = add_node(*graph, type, {dependencies, dependencies + count});
  entry.node = *out;
  bool logs = entry.work >= 0 || entry.external != nullptr || entry.effect != nullptr;
  if (logs) graph->entries.push_back(std::move(entry));
  return kSuccess;
}

int add_child(void* handle, void* child_handle, Node* const* dependencies, size_t count, Node** out) {
  Graph *graph = find_graph(handle), *child = find_graph(child_handle);
  if (child == nullptr) return kInvalidValue;
  if (int status = add_explicit(handle, NodeType::Graph, dependencies, count, {}, out)) return status;
  std::lock_guard lock(capture_mutex());
  for (Entry entry : child->entries) {
    bool inner = entry.external == nullptr && (entry.kind == Kind::EventRecord || entry.kind == Kind::StreamWait);
    if (inner) entry.object += graph->tokens;
    graph->entries.push_back(std::move(entry));
  }
  graph->tokens += child->tokens;
  return kSuccess;
}

int instantiate(GraphExec** out, void* handle, unsigned long long flags) {
  Graph* graph = find_graph(handle);
  if (graph == nullptr || out == nullptr) return kInvalidValue;
  *out = all<GraphExec>().acquire();
  if (*out == nullptr) return kOutOfMemory;
  (*out)->flags = flags;
  return update_exec(*out, graph);
}

int update_exec(void* exec_handle, void* handle) {
  GraphExec* exec = find_exec(exec_handle);
  Graph* graph = find_graph(handle);
  if (exec == nullptr || graph == nullptr) return kInvalidValue;
  std::lock_guard lock(capture_mutex());
  share_objects(graph->objects);
  drop_objects(exec->objects);
  exec->entries = graph->entries;
  exec->tokens = graph->tokens;
  exec->objects = graph->objects;
  return kSuccess;
}

int launch_graph(void* exec_handle, void* stream_handle) {
  if (int status = device_ready()) return status;
  GraphExec* exec = find_exec(exec_handle);
  if (exec == nullptr) return kInvalidValue;
  Stream* stream = find_stream(stream_handle);
  if (stream == nullptr) return kInvalidHandle;
  if (stream->capture.load(std::memory_order_acquire) != nullptr) return invalidate_capture(*stream, kCaptureUnsupported);
  int64_t serial = take_serials(exec->tokens), replay = ++replays;
  std::vector<Record> records;
  records.reserve(exec->entries.size());
  replaying_stream() = stream;
  for (const Entry& entry : exec->entries) {
    Record record = record_of(entry, stream->index, serial, replay);
    bool logged = entry.kind != Kind::Work || entry.work >= 0;
    if (entry.external != nullptr) logged = external_serial(entry, record, *stream);
    if (entry.effect) entry.effect();
    if (logged) records.push_back(record);
  }
  replaying_stream() = nullptr;
  if (!records.empty()) records.front().tag = 0;  // it stands for the launch, for which the host does something
  append_batch(records.data(), records.size());
  return kSuccess;
}

int destroy_exec(void* handle) {
  GraphExec* exec = find_exec(handle);
  if (exec == nullptr || !all<GraphExec>().release(exec)) return kInvalidValue;
  drop_objects(exec->objects);
  exec->entries.clear();
  return kSuccess;
}

int create_user_object(UserObject** out, void* data, void (*destroy)(void*), unsigned references) {
  if (out == nullptr || destroy == nullptr || references == 0) return kInvalidValue;
  *out = all<UserObject>().acquire();
  if (*out == nullptr) return kOutOfMemory;
  (*out)->data = data;
  (*out)->destroy = destroy;
  (*out)->references = references;
  return kSuccess;
}

int add_references(void* handle, int64_t count) {
  UserObject* object = all<UserObject>().find(handle);
  if (object == nullptr) return kInvalidValue;
  if (object->references.fetch_add(count) + count <= 0 && all<UserObject>().release(object)) object->destroy(object->data);
  return kSuccess;
}

int retain_in_graph(void* handle, void* object, unsigned count, bool move) {
  Graph* graph = find_graph(handle);
  if (graph == nullptr || all<UserObject>().find(object) == nullptr) return kInvalidValue;
  if (!move) add_references(object, count);
  graph->objects.insert(graph->objects.end(), count, static_cast<UserObject*>(object));
  return kSuccess;
}

int release_from_graph(void* handle, void* object, unsigned count) {
  Graph* graph = find_graph(handle);
  if (graph == nullptr) return kInvalidValue;
  for (; count > 0; --count) {
    auto found = std::find(graph->objects.begin(), graph->objects.end(), static_cast<UserObject*>(object));
    if (found == graph->objects.end()) return kInvalidValue;
    graph->objects.erase(found);
    add_references(object, -1);
  }
  return kSuccess;
}

}  // namespace presim
