// One exchange of this rank: its contribution, the other contributors, and the result.
#pragma once
#include <string>
#include <vector>

#include "core/values.h"
#include "libs/nccl_exchange.h"
#include "libs/nccl_mail.h"

namespace presim::libs::nccl {

struct Operation;

// Bytes of a result and their destination.
struct Output {
  char* to;
  size_t bytes, from;  // from: offset in the result
};

struct Dependent {
  Operation* operation;
  size_t to, bytes, from;  // to: offset in its input
};

// Source of a contribution: a concurrent process.
struct Source {
  int32_t rank;     // of the communicator
  int64_t process;  // global rank
  bool arrived = false;
  std::string payload = {};
  uint8_t origin = kNobody;  // origin of its values
};

struct Operation {
  Exchange call;
  mail::Key key;
  std::string input;    // our contribution
  uint8_t origin = kComputed;  // origin of its values
  int missing = 0;      // number of its parts that are pending results of earlier operations
  bool posts = false;   // other ranks need it
  bool ready = false;   // the input is complete
  std::vector<Source> sources;
  std::vector<Output> outputs;  // removed if that memory was written since
  std::vector<Dependent> dependents;
};

// Bytes of one slice: NCCL's count of elements.
size_t slice_bytes(const Exchange& call);
// Number of slices of our contribution and of our result; 0: none.
size_t slices_in(const Exchange& call);
size_t slices_out(const Exchange& call);
// Contribution of another rank.
size_t payload_bytes(const Exchange& call);

// The concurrent processes that contribute.
std::vector<Source> sources_of(const Exchange& call);
bool is_needed_elsewhere(const Exchange& call);

// Result of the operation once all sources have arrived: its bytes and their origin.
std::string result_of(const Operation& operation);
uint8_t origin_of_result(const Operation& operation);

// Origin of a result of several values: the greatest; unknown if one is unknown.
uint8_t joined(uint8_t one, uint8_t other);

}  // namespace presim::libs::nccl
