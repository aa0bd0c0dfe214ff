// cuFFT: plans are small integers; executing one logs its transform.
#include <mutex>
#include <vector>

#include "libs/common.h"

namespace {
using namespace presim::libs;

constexpr int kInvalidPlan = 1, kInvalidValue = 4;
enum Type : int { kR2C = 0x2a, kC2R = 0x2c, kC2C = 0x29, kD2Z = 0x6a, kZ2D = 0x6c, kZ2Z = 0x69 };

struct Plan {
  bool alive = false;
  void* stream = nullptr;
  int32_t work = -1;
  int64_t property = 0;
};

std::mutex& plans_lock() {
  static auto* lock = new std::mutex;
  return *lock;
}

std::vector<Plan>& plans() {
  static auto* all = new std::vector<Plan>;
  return *all;
}

// Calls `use` with the plan while holding the lock.
template <class Use>
int with_plan(int handle, Use use) {
  std::lock_guard lock(plans_lock());
  if (handle < 0 || size_t(handle) >= plans().size() || !plans()[size_t(handle)].alive) return kInvalidPlan;
  return use(plans()[size_t(handle)]);
}

struct Transform {
  const char* kind;
  int real_type;  // cudaDataType of one real number
};

Transform transform_of(int input, int output) {
  bool from_complex = input >= 4 && input <= 6, to_complex = output >= 4 && output <= 6;
  int complex = from_complex ? input : output;
  int real = complex == 5 ? 1 : complex == 6 ? 2 : 0;
  return {from_complex && to_complex ? "c2c" : from_complex ? "c2r" : "r2c", real};
}

template <class Size>
int make(int handle, int rank, const Size* sizes, int64_t batch, int input, int output, size_t* workspace) {
  if (rank < 1 || rank > 3 || sizes == nullptr || batch < 1) return kInvalidValue;
  if (workspace != nullptr) *workspace = 0;
  Transform transform = transform_of(input, output);
  int64_t points = batch, half = batch;
  for (int i = 0; i < rank; ++i) {
    points *= int64_t(sizes[i]);
    half *= i + 1 < rank ? int64_t(sizes[i]) : int64_t(sizes[i]) / 2 + 1;
  }
  int64_t real_bytes = data_type(transform.real_type).bits / 8;
  bool whole = transform.kind[0] == 'c' && transform.kind[2] == 'c';
  Text text("fft");
  text.add("kind", transform.kind).add("sizes", sizes, rank).add("batch", batch);
  text.add("dtype", data_type(transform.real_type).name);
  text.add("bytes", whole ? 4 * real_bytes * points : real_bytes * (points + 2 * half));
  return with_plan(handle, [&](Plan& plan) {
    plan.work = presim::intern(std::string(text));
    return 0;
  });
}

struct Types {
  int input, output;
};

Types types_of(int type) {
  switch (type) {
    case kR2C: return {0, 4};
    case kC2R: return {4, 0};
    case kD2Z: return {1, 5};
    case kZ2D: return {5, 1};
    case kZ2Z: return {5, 5};
    default: return {4, 4};
  }
}

template <class Size>
int make_typed(int handle, int rank, const Size* sizes, int64_t batch, int type, size_t* workspace) {
  Types types = types_of(type);
  return make(handle, rank, sizes, batch, types.input, types.output, workspace);
}

int execute(int handle) {
  return with_plan(handle, [](Plan& plan) {
    if (plan.work < 0) return kInvalidPlan;
    presim::log_work(plan.stream, plan.work);
    return 0;
  });
}

}  // namespace

PRESIM_EXPORT int cufftCreate(int* handle) {
  if (handle == nullptr) return kInvalidValue;
  std::lock_guard lock(plans_lock());
  *handle = int(plans().size());
  plans().push_back({true, nullptr, -1, 0});
  return 0;
}
PRESIM_EXPORT int cufftDestroy(int handle) {
  return with_plan(handle, [](Plan& plan) {
    plan.alive = false;
    return 0;
  });
}
PRESIM_EXPORT int cufftSetStream(int handle, void* stream) {
  return with_plan(handle, [stream](Plan& plan) {
    plan.stream = stream;
    return 0;
  });
}
PRESIM_EXPORT int cufftSetAutoAllocation(int handle, int) {
  return with_plan(handle, [](Plan&) { return 0; });
}
PRESIM_EXPORT int cufftSetWorkArea(int handle, void*) {
  return with_plan(handle, [](Plan&) { return 0; });
}

PRESIM_EXPORT int cufftXtMakePlanMany(int handle, int rank, long long* n, long long*, long long, long long, int input,
                                      long long*, long long, long long, int output, long long batch, size_t* workspace,
                                      int) {
  return make(handle, rank, n, batch, input, output, workspace);
}
PRESIM_EXPORT int cufftMakePlanMany64(int handle, int rank, long long* n, long long*, long long, long long, long long*,
                                      long long, long long, int type, long long batch, size_t* workspace) {
  return make_typed(handle, rank, n, batch, type, workspace);
}
PRESIM_EXPORT int cufftMakePlanMany(int handle, int rank, int* n, int*, int, int, int*, int, int, int type, int batch,
                                    size_t* workspace) {
  return make_typed(handle, rank, n, batch, type, workspace);
}
PRESIM_EXPORT int cufftMakePlan1d(int handle, int nx, int type, int batch, size_t* workspace) {
  return make_typed(handle, 1, &nx, batch, type, workspace);
}
PRESIM_EXPORT int cufftPlanMany(int* handle, int rank, int* n, int*, int, int, int*, int, int, int type, int batch) {
  int status = cufftCreate(handle);
  return status != 0 ? status : make_typed(*handle, rank, n, batch, type, nullptr);
}
PRESIM_EXPORT int cufftPlan1d(int* handle, int nx, int type, int batch) {
  return cufftPlanMany(handle, 1, &nx, nullptr, 1, nx, nullptr, 1, nx, type, batch);
}
PRESIM_EXPORT int cufftPlan2d(int* handle, int nx, int ny, int type) {
  int n[] = {nx, ny};
  return cufftPlanMany(handle, 2, n, nullptr, 1, 0, nullptr, 1, 0, type, 1);
}
PRESIM_EXPORT int cufftPlan3d(int* handle, int nx, int ny, int nz, int type) {
  int n[] = {nx, ny, nz};
  return cufftPlanMany(handle, 3, n, nullptr, 1, 0, nullptr, 1, 0, type, 1);
}

PRESIM_EXPORT int cufftXtExec(int handle, void*, void*, int) { return execute(handle); }
PRESIM_EXPORT int cufftExecC2C(int handle, void*, void*, int) { return execute(handle); }
PRESIM_EXPORT int cufftExecZ2Z(int handle, void*, void*, int) { return execute(handle); }
PRESIM_EXPORT int cufftExecR2C(int handle, void*, void*) { return execute(handle); }
PRESIM_EXPORT int cufftExecC2R(int handle, void*, void*) { return execute(handle); }
PRESIM_EXPORT int cufftExecD2Z(int handle, void*, void*) { return execute(handle); }
PRESIM_EXPORT int cufftExecZ2D(int handle, void*, void*) { return execute(handle); }

PRESIM_EXPORT int cufftGetVersion(int* version) {
  if (version == nullptr) return kInvalidValue;
  *version = 12000;
  return 0;
}
