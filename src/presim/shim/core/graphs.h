// Graphs: captured work, and the work that a launch replays.
//
// A Graph has two views. `nodes` is the DAG that the program can query. `entries` is what a launch logs: the same work
// in the order of capture, with the event records and waits that order its streams.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "events.h"
#include "recorder.h"
#include "streams.h"

namespace presim {

enum class NodeType : int {
  Kernel = 0, Copy = 1, Memset = 2, Host = 3, Graph = 4, Empty = 5, WaitEvent = 6, RecordEvent = 7, Alloc = 10,
  Free = 11, Conditional = 13,
};

struct Node {
  Graph* graph;
  NodeType type;
  std::vector<Node*> dependencies;
};

struct Entry {
  Kind kind = Kind::Work;
  bool origin = true;      // on the stream of the graph launch; otherwise on `stream`
  uint16_t stream = 0;
  int32_t work = -1;
  int64_t object = 0;      // event records and waits: token within the graph; collectives: launch group
  uint64_t captured = UINT64_MAX;  // work and collectives: record of the capture, with operator, scope and phase
  Event* external = nullptr;    // an event that is visible outside of the graph
  std::function<void()> effect; // action of a replay: a small copy, a host function
  Node* node = nullptr;
};

struct UserObject {
  std::atomic<bool> live{false};
  void* data = nullptr;
  void (*destroy)(void*) = nullptr;
  std::atomic<int64_t> references{0};
};

struct Graph {
  std::atomic<bool> live{false};
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<Entry> entries;
  int64_t tokens = 0;  // event recordings inside
  std::vector<UserObject*> objects;
};

struct GraphExec {
  std::atomic<bool> live{false};
  std::vector<Entry> entries;
  int64_t tokens = 0;
  unsigned long long flags = 0;
  std::vector<UserObject*> objects;
};

int create_graph(Graph** out);
int destroy_graph(void* handle);
int clone_graph(Graph** out, void* handle);
Graph* find_graph(void* handle);
GraphExec* find_exec(void* handle);

// `node` becomes the graph's last node. Nodes added explicitly run on the launch stream, in the order of addition.
Node* add_node(Graph& graph, NodeType type, std::vector<Node*> dependencies);
int add_explicit(void* graph, NodeType type, Node* const* dependencies, size_t count, Entry entry, Node** out);
int add_child(void* graph, void* child, Node* const* dependencies, size_t count, Node** out);
bool owns(const Graph& graph, const Node* node);

int instantiate(GraphExec** out, void* graph, unsigned long long flags);
int update_exec(void* exec, void* graph);
int launch_graph(void* exec, void* stream);
int destroy_exec(void* exec);

int create_user_object(UserObject** out, void* data, void (*destroy)(void*), unsigned references);
int add_references(void* object, int64_t count);  // negative: release; destroys at zero
int retain_in_graph(void* graph, void* object, unsigned count, bool move);
int release_from_graph(void* graph, void* object, unsigned count);

}  // namespace presim
