// The capture log: requests of a process to its emulated device, in the order of the host's calls.
//
// The log is in memory-mapped files, so that it survives any end of the process (an uncaught exception, an abort,
// SIGKILL). Directory $PRESIM_LOG_DIR:
//
//   log.bin     64-byte Header, then Header.count fixed-size Records
//   work.tsv    one line per descriptor id: what a Record's `work` and `op` point to, and scope names
//   calls.tsv   "name<TAB>count": library functions that were called and have no semantics here
//   notes.tsv   facts beside the order of records: "stream index=3 device=0 priority=-1 nonblocking=1" ...
//
// Descriptors are interned text: "family key=value key=value", values without blanks, for example
//   kernel name=_ZN2at... grid=128,1,1 block=128,1,1 shared=0
//   gemm m=4096 n=4096 k=4096 batch=1 a=bf16 b=bf16 d=bf16 compute=f32 transa=T transb=N beta=0 epilogue=none
//   copy direction=h2d bytes=1024 pinned=1
//   memset bytes=512
//   collective kind=all_gather bytes=1048576 dtype=bf16 comm=3 peer=-1
//   op name=aten::mm in=bf16[4096,4096],bf16[4096,4096] out=bf16[4096,4096]
//   scope name=model.layers.0.self_attn
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#define PRESIM_API __attribute__((visibility("default")))

namespace presim {

enum class Kind : uint8_t {
  Work = 0,          // device work on `stream`, described by `work`; value = serial of the operator call, or 0
  Collective = 1,    // device work that waits for other ranks; object = NCCL launch group serial
  EventRecord = 2,   // object = serial of this recording (an event's version is its latest serial)
  StreamWait = 3,    // `stream` waits for the recording `object`
  EventSync = 4,     // the host waits for the recording `object`
  StreamSync = 5,    // the host waits for all earlier work on `stream`
  DeviceSync = 6,    // the host waits for all streams
  Alloc = 7,         // caching allocator: object = address, value = bytes of the block
  Free = 8,          // caching allocator: object = address, value = bytes of the block
  SegmentAlloc = 9,  // device memory taken (cudaMalloc, VMM map): object = address, value = bytes
  SegmentFree = 10,  // device memory given back
  Retag = 11,        // the block at object belongs to category `tag`
  Step = 12,         // an optimizer step ended: object = its number, from 0
  HostWait = 13,     // the host slept: value = ns beyond the CPU time that passed meanwhile
  Fetch = 14,        // the host asks a data loader's worker for a batch: object = worker and number of the request
  FetchWait = 15,    // the host waits for that batch: object as of its Fetch
  HostCall = 16,     // the host locks pages and the like: object = a HostCall, value = bytes
};

enum class HostCall : int64_t { Lock = 0, Unlock = 1, FirstTouch = 2 };

enum class Phase : uint8_t { Other = 0, Forward = 1, Backward = 2, Recompute = 3, Optimizer = 4 };

struct Header {
  char magic[8];                // "PRESIMLG"
  uint32_t version;             // 1
  uint32_t record_bytes;        // sizeof(Record)
  std::atomic<uint64_t> count;  // records written
  std::atomic<uint64_t> full;   // 1: the disk filled up and later records were dropped
  uint64_t pid;                 // the process that wrote it
  char reserved[24];
};
static_assert(sizeof(Header) == 64);

struct Record {
  int64_t cpu_ns;   // time of the reference host (pace.h) up to the call, without recording (own_time.h)
  int64_t object;   // see Kind
  int64_t value;    // see Kind
  int32_t work;     // descriptor id or -1
  int32_t op;       // descriptor id of the innermost operator, or -1; kUnclaimed until that operator has ended
  int32_t scope;    // descriptor id of the module scope, or -1
  uint16_t stream;  // 0: the default stream
  Kind kind;
  Phase phase;
  uint8_t tag;      // memory category (Retag), flags: 1 = replayed from a CUDA graph
  uint8_t pad[7];
};
static_assert(sizeof(Record) == 48);
constexpr int32_t kUnclaimed = -2;

// The operator hook's state of the current thread; read at every append.
struct Context {
  int32_t scope = -1;
  Phase phase = Phase::Other;
  int op_depth = 0;                    // operators open on this thread
  std::vector<uint64_t> op_records;    // records of the open operators
  std::vector<Record> held;            // launches that have not started (`hold`)
};
PRESIM_API Context& context();

// Descriptor id of a text; equal texts have equal ids. Thread-safe.
PRESIM_API int32_t intern(std::string_view text);
std::string_view interned_text(int32_t id);  // "" of -1; not with the log's mutex
PRESIM_API int32_t interned();  // number of ids; it grows when the program does something new

// Append one record and return its index; time, scope and phase are filled in. Thread-safe. No-op (returns
// UINT64_MAX) when no log is open.
PRESIM_API uint64_t append(Kind kind, uint16_t stream, int64_t object = 0, int64_t value = 0, int32_t work = -1,
                           uint8_t tag = 0);
PRESIM_API Record* record_at(uint64_t index);

// `stream` of records of memory: its device; 0 if the process is one of several ranks, each with a GPU of its own.
PRESIM_API uint16_t recorded_device(int device);

// How far the host has come.
struct Progress {
  uint64_t records = 0, launches = 0;
  uint64_t waits = 0;               // records by which its time advances without CPU time of its own
  int64_t cpu_ns = 0;               // as Record::cpu_ns
};
Progress progress();

// The same for work that a stream captures instead of running: the record is kept outside the log, and each replay of
// the graph logs a copy. Its index is valid for record_at, too.
uint64_t remember_captured();

// The same for several calls that form one launch later: this thread keeps their records until `append_held` appends
// all at one moment, so that readers of the log never see a part of them. `launches`: number of launches.
PRESIM_API void hold(Kind kind, uint16_t stream, int64_t object, int32_t work);
PRESIM_API void append_held(size_t launches);

// Append records at one moment, without host time between them. The caller fills in all but the time. Records without
// an operator belong to the current operator.
PRESIM_API void append_batch(const Record* records, size_t count);

// Open the log now if this process may have one (append and intern do so themselves). The first process that writes to
// $PRESIM_LOG_DIR owns the log. Child programs and forked children have none, except ranks (rank.cpp).
PRESIM_API bool log_open();
void expect_log();  // in a child that is a rank

// Device work and collectives as logged by the fake libraries: during stream capture they become nodes of the graph,
// otherwise records. `stream`: handle passed by the caller (nullptr: default stream).
PRESIM_API void log_work(void* stream, int32_t work);
// For a collective: whether it became a node of a graph. `held`: it is launched together with others of its group.
PRESIM_API bool log_collective(void* stream, int32_t work, int64_t launch_group, bool held);

// Counts a call of a library function without semantics, by name. The result lists them.
PRESIM_API void unmodelled(const char* name);

// Writes a fact that is not a record, as a line of notes.tsv: "communicator serial=1 size=8 rank=0 ..."
// (core/notes.cpp).
PRESIM_API void note(std::string_view text);

}  // namespace presim
