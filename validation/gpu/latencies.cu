// Latencies of the CUDA runtime on one GPU and its host, one JSON line each: {"case": ..., "ns": ..., ...}.
//
//     nvcc -O2 -arch=native latencies.cu -o latencies && ./latencies
//
// `ns` is the median of BATCHES batches; `low` is their tenth percentile. Host times are wall-clock times of one thread.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr int BATCHES = 31, CALLS = 100;
using Clock = std::chrono::steady_clock;
double now_ns() { return double(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count()); }

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::printf("{\"case\": \"stopped\", \"error\": \"%s\"}\n", cudaGetErrorString(error));
  std::fflush(stdout);
  std::exit(1);
}

__global__ void empty() {}
__global__ void one_argument(float*) {}
struct Large { char bytes[512]; };
__global__ void large_arguments(Large) {}
__global__ void spin(long long ns) {
  unsigned long long began, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(began));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while ((long long)(now - began) < ns);
}
__global__ void raise(volatile int* flag, int value) {
  *flag = value;
  __threadfence_system();
}
__global__ void answer(volatile int* asked, volatile int* given, int rounds) {
  for (int round = 1; round <= rounds; ++round) {
    for (long long tries = 0; *asked < round && tries < 1000000; ++tries) {}
    *given = round;
    __threadfence_system();
  }
}

void write(const std::string& name, std::vector<double> times, const std::string& more = "") {
  std::sort(times.begin(), times.end());
  std::printf("{\"case\": \"%s\", \"ns\": %.1f, \"low\": %.1f, \"high\": %.1f%s}\n", name.c_str(), times[times.size() / 2],
              times[times.size() / 10], times[times.size() * 9 / 10], more.c_str());
  std::fflush(stdout);
}

// Host time of one call; the device has nothing left to do before each batch.
void host(const std::string& name, const std::function<void()>& call, int calls = CALLS, int batches = BATCHES) {
  std::vector<double> times;
  call();
  for (int batch = 0; batch < batches; ++batch) {
    check(cudaDeviceSynchronize());
    double began = now_ns();
    for (int i = 0; i < calls; ++i) call();
    times.push_back((now_ns() - began) / calls);
    check(cudaGetLastError());
  }
  check(cudaDeviceSynchronize());
  write(name, times);
}

// Device time of one call of many that are all queued before the first begins.
void device(const std::string& name, const std::function<void()>& call, int calls = 200, int batches = 11, long long hold_ns = 4000000) {
  cudaEvent_t start, end;
  check(cudaEventCreate(&start));
  check(cudaEventCreate(&end));
  std::vector<double> times;
  call();
  for (int batch = 0; batch < batches; ++batch) {
    spin<<<1, 1>>>(hold_ns);
    check(cudaEventRecord(start));
    for (int i = 0; i < calls; ++i) call();
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    float ms = 0;
    check(cudaEventElapsedTime(&ms, start, end));
    times.push_back(double(ms) * 1e6 / calls);
  }
  write(name, times);
}

// From before the call to what `until` waits for, without a batch: the device is idle before each.
void round_trip(const std::string& name, const std::function<void(int)>& call, const std::function<void(int)>& until,
                int rounds = 300) {
  std::vector<double> times;
  for (int i = 1; i <= rounds; ++i) {
    check(cudaDeviceSynchronize());
    double began = now_ns();
    call(i);
    until(i);
    times.push_back(now_ns() - began);
  }
  write(name, times);
}

void launches() {
  float* pointer = nullptr;
  check(cudaMalloc(&pointer, 1024));
  host("launch, no argument", [] { empty<<<1, 32>>>(); });
  host("launch, one argument", [=] { one_argument<<<1, 32>>>(pointer); });
  host("launch, 512 bytes of arguments", [] { large_arguments<<<1, 32>>>(Large{}); });
  host("launch, 132 blocks of 1024", [] { empty<<<132, 1024>>>(); });
  device("kernel after kernel", [] { empty<<<1, 32>>>(); });
  device("kernel after kernel, 132 blocks of 1024", [] { empty<<<132, 1024>>>(); });
  device("kernel after kernel, 1056 blocks of 256", [] { empty<<<1056, 256>>>(); });
  for (long long ns : {2000LL, 10000LL, 50000LL})
    device("kernel of " + std::to_string(ns) + " ns after kernel", [=] { spin<<<1, 32>>>(ns); }, 100);
}

void flags() {
  int *flags = nullptr, *seen = nullptr;
  check(cudaHostAlloc(&flags, 4096, cudaHostAllocMapped));
  check(cudaHostGetDevicePointer(&seen, flags, 0));
  volatile int* watched = flags;
  flags[0] = flags[512] = 0;
  auto raised = [=](int i) { for (double began = now_ns(); *watched != i && now_ns() - began < 1e7;) {} };
  round_trip("launch until a flag is seen", [=](int i) { raise<<<1, 1>>>(seen, i); }, raised);
  round_trip("launch and synchronise the stream", [=](int i) { raise<<<1, 1>>>(seen, i); }, [](int) { check(cudaStreamSynchronize(0)); });
  round_trip("launch and synchronise the device", [=](int i) { raise<<<1, 1>>>(seen, i); }, [](int) { check(cudaDeviceSynchronize()); });
  cudaEvent_t event;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  round_trip("launch, record and synchronise the event", [=](int i) { raise<<<1, 1>>>(seen, i); check(cudaEventRecord(event)); },
             [=](int) { check(cudaEventSynchronize(event)); });
  for (long long us : {20LL, 200LL, 2000LL})
    round_trip("launch of " + std::to_string(us) + " us and synchronise the stream", [=](int) { spin<<<1, 1>>>(us * 1000); },
               [](int) { check(cudaStreamSynchronize(0)); });
  int* asked = flags + 512;
  *(volatile int*)asked = 0;
  flags[0] = 0;
  constexpr int ROUNDS = 200;
  answer<<<1, 1>>>(seen + 512, seen, ROUNDS);
  std::vector<double> times;
  for (int i = 1; i <= ROUNDS; ++i) {
    double began = now_ns();
    *(volatile int*)asked = i;
    raised(i);
    times.push_back(now_ns() - began);
  }
  check(cudaDeviceSynchronize());
  write("question to a running kernel and its answer", times);
}

// The launch at which the host waits: a kernel that spins holds the stream.
void queue_depth() {
  cudaStream_t other;
  check(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  for (bool second : {false, true}) {
    check(cudaDeviceSynchronize());
    spin<<<1, 1>>>(150000000LL);
    double began = now_ns();
    int count = 0, elsewhere = 0;
    for (; count < 20000; ++count) {
      double before = now_ns();
      empty<<<1, 32>>>();
      if (now_ns() - before > 2e6 || now_ns() - began > 1.4e8) break;
      if (second && count % 2 == 0) empty<<<1, 32, 0, other>>>(), ++elsewhere;
    }
    std::printf("{\"case\": \"launches until the host waits%s\", \"launches\": %d, \"elsewhere\": %d}\n",
                second ? ", with as many on a stream that runs" : "", count, elsewhere);
    std::fflush(stdout);
    check(cudaDeviceSynchronize());
  }
}

void graphs() {
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (int nodes : {1, 10, 100, 1000}) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < nodes; ++i) empty<<<1, 32, 0, stream>>>();
    check(cudaStreamEndCapture(stream, &graph));
    double began = now_ns();
    check(cudaGraphInstantiate(&exec, graph, 0));
    double took = now_ns() - began;
    std::string name = "graph of " + std::to_string(nodes);
    write(name + ": instantiate", {took});
    check(cudaGraphLaunch(exec, stream));
    check(cudaStreamSynchronize(stream));
    host(name + ": launch", [=] { check(cudaGraphLaunch(exec, stream)); }, 5);
    round_trip(name + ": launch and synchronise", [=](int) { check(cudaGraphLaunch(exec, stream)); }, [=](int) { check(cudaStreamSynchronize(stream)); });
    cudaEvent_t start, end;
    check(cudaEventCreate(&start));
    check(cudaEventCreate(&end));
    std::vector<double> times;
    for (int i = 0; i < 21; ++i) {
      spin<<<1, 1, 0, stream>>>(500000);
      check(cudaEventRecord(start, stream));
      check(cudaGraphLaunch(exec, stream));
      check(cudaEventRecord(end, stream));
      check(cudaEventSynchronize(end));
      float ms = 0;
      check(cudaEventElapsedTime(&ms, start, end));
      times.push_back(double(ms) * 1e6);
    }
    write(name + ": on the device", times);
    check(cudaGraphExecDestroy(exec));
    check(cudaGraphDestroy(graph));
  }
}

void events() {
  cudaEvent_t timed, untimed;
  check(cudaEventCreate(&timed));
  check(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  cudaStream_t other;
  check(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  host("event record, with timing", [=] { check(cudaEventRecord(timed)); });
  host("event record, without timing", [=] { check(cudaEventRecord(untimed)); });
  host("stream waits for an event", [=] { check(cudaStreamWaitEvent(other, untimed, 0)); });
  host("event query", [=] { cudaEventQuery(untimed); });
  host("event synchronise, nothing to wait for", [=] { check(cudaEventSynchronize(untimed)); });
  host("stream synchronise, nothing to wait for", [] { check(cudaStreamSynchronize(0)); });
  host("device synchronise, nothing to wait for", [] { check(cudaDeviceSynchronize()); });
  host("event create and destroy", [] {
    cudaEvent_t made;
    check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming));
    check(cudaEventDestroy(made));
  });
  device("event between kernels", [=] { empty<<<1, 32>>>(); check(cudaEventRecord(timed)); });
  device("two streams by turns", [=] {
    empty<<<1, 32>>>();
    check(cudaEventRecord(untimed));
    check(cudaStreamWaitEvent(other, untimed, 0));
    empty<<<1, 32, 0, other>>>();
    check(cudaEventRecord(timed, other));
    check(cudaStreamWaitEvent(0, timed, 0));
  }, 100);
}

void copies() {
  constexpr size_t MOST = size_t(1) << 28;
  char *pinned = nullptr, *here = nullptr, *there = nullptr, *pageable = static_cast<char*>(std::malloc(MOST));
  check(cudaHostAlloc(&pinned, MOST, cudaHostAllocDefault));
  check(cudaMalloc(&here, MOST));
  check(cudaMalloc(&there, MOST));
  std::fill(pageable, pageable + MOST, char(1));
  std::fill(pinned, pinned + MOST, char(1));
  struct { const char* name; char *to, *from; cudaMemcpyKind kind; } kinds[] = {
      {"h2d pinned", here, pinned, cudaMemcpyHostToDevice}, {"d2h pinned", pinned, here, cudaMemcpyDeviceToHost},
      {"h2d pageable", here, pageable, cudaMemcpyHostToDevice}, {"d2h pageable", pageable, here, cudaMemcpyDeviceToHost},
      {"d2d", there, here, cudaMemcpyDeviceToDevice}};
  for (auto& each : kinds) {
    bool waits = std::string(each.name).find("pageable") != std::string::npos;
    for (size_t bytes : {size_t(4), size_t(4096), size_t(65536), size_t(1) << 20, size_t(1) << 24, MOST}) {
      std::string name = std::string(each.name) + " of " + std::to_string(bytes) + " bytes: ";
      auto copy = [=] { check(cudaMemcpyAsync(each.to, each.from, bytes, each.kind, 0)); };
      int calls = bytes > 1 << 22 ? 2 : bytes > 1 << 17 ? 8 : 50;
      host(name + "call", copy, calls, bytes > 1 << 22 ? 3 : 11);
      if (!waits) device(name + "device", copy, calls, bytes > 1 << 22 ? 3 : 11, 1000000);
      else round_trip(name + "call and synchronise", [=](int) { copy(); }, [](int) { check(cudaStreamSynchronize(0)); },
                      bytes > 1 << 22 ? 5 : 50);
    }
  }
  for (size_t bytes : {size_t(4096), size_t(1) << 20, size_t(1) << 24, MOST}) {
    std::string name = "memset of " + std::to_string(bytes) + " bytes: ";
    auto fill = [=] { check(cudaMemsetAsync(here, 0, bytes, 0)); };
    host(name + "call", fill, 20, 11);
    device(name + "device", fill, 20, 5, 1000000);
  }
  check(cudaFree(here));
  check(cudaFree(there));
  check(cudaFreeHost(pinned));
  std::free(pageable);
}

void allocations() {
  for (size_t bytes : {size_t(2) << 20, size_t(20) << 20, size_t(1) << 30}) {
    std::vector<double> made, freed;
    for (int i = 0; i < 15; ++i) {
      void* pointer = nullptr;
      double began = now_ns();
      check(cudaMalloc(&pointer, bytes));
      double middle = now_ns();
      check(cudaFree(pointer));
      made.push_back(middle - began);
      freed.push_back(now_ns() - middle);
    }
    std::string size = std::to_string(bytes >> 20) + " MiB";
    write("cudaMalloc of " + size, made);
    write("cudaFree of " + size, freed);
  }
  host("cudaMallocAsync and cudaFreeAsync of 20 MiB", [] {
    void* pointer = nullptr;
    check(cudaMallocAsync(&pointer, 20 << 20, 0));
    check(cudaFreeAsync(pointer, 0));
  }, 20);
  for (size_t bytes : {size_t(1) << 20, size_t(2) << 20, size_t(4) << 20, size_t(64) << 20, size_t(256) << 20}) {
    std::vector<double> made, freed;
    for (int i = 0; i < 3; ++i) {
      void* pointer = nullptr;
      double began = now_ns();
      check(cudaHostAlloc(&pointer, bytes, cudaHostAllocDefault));
      double middle = now_ns();
      check(cudaFreeHost(pointer));
      made.push_back(middle - began);
      freed.push_back(now_ns() - middle);
    }
    write("cudaHostAlloc of " + std::to_string(bytes >> 20) + " MiB", made);
    write("cudaFreeHost of " + std::to_string(bytes >> 20) + " MiB", freed);
  }
  cudaPointerAttributes attributes;
  int number = 0;
  host("cudaGetDevice", [&] { check(cudaGetDevice(&number)); });
  host("cudaPointerGetAttributes", [&] { check(cudaPointerGetAttributes(&attributes, &number)); });
  host("occupancy query", [&] { check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&number, empty, 128, 0)); });
}

}  // namespace

int main(int count, char** names) {
  double began = now_ns();
  check(cudaFree(nullptr));
  write("context", {now_ns() - began});
  size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes));
  std::printf("{\"case\": \"memory that a context takes\", \"bytes\": %zu, \"total\": %zu}\n", total_bytes - free_bytes, total_bytes);
  struct { const char* name; void (*run)(); } parts[] = {{"launches", launches}, {"flags", flags}, {"events", events}, {"graphs", graphs},
      {"copies", copies}, {"allocations", allocations}, {"queue", queue_depth}};
  for (auto& part : parts)
    if (count < 2 || part.name == std::string(names[1])) part.run();
  return 0;
}
