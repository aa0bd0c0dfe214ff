// One exchange of this rank: what it contributes, who else does, and what comes of it.
#pragma once
#include <string>
#include <vector>

#include "core/values.h"
#include "libs/nccl_exchange.h"
#include "libs/nccl_mail.h"

namespace presim::libs::nccl {

struct Operation;

// Bytes of a result that are to be put somewhere.
struct Output {
  char* to;
  size_t bytes, from;  // from: offset in the result
};

struct Dependent {
  Operation* operation;
  size_t to, bytes, from;  // to: offset in its input
};

// Where a contribution comes from: a process that runs beside us.
struct Source {
  int32_t rank;     // of the communicator
  int64_t process;  // global rank
  bool arrived = false;
  std::string payload = {};
  uint8_t origin = kNobody;  // who says what that is
};

struct Operation {
  Exchange call;
  mail::Key key;
  std::string input;    // what we contribute
  uint8_t origin = kComputed;  // who says what that is
  int missing = 0;      // parts of it that are results of earlier operations, not there yet
  bool posts = false;   // others need it
  bool ready = false;   // the input is whole
  std::vector<Source> sources;
  std::vector<Output> outputs;  // made void where that memory was written since
  std::vector<Dependent> dependents;
};

// Bytes of one slice: as many elements as NCCL's count says.
size_t slice_bytes(const Exchange& call);
// What we contribute, and what we get, in slices; 0: nothing.
size_t slices_in(const Exchange& call);
size_t slices_out(const Exchange& call);
// What another rank contributes.
size_t payload_bytes(const Exchange& call);

// The processes beside us that contribute.
std::vector<Source> sources_of(const Exchange& call);
bool is_needed_elsewhere(const Exchange& call);

// Of the operation's result, once all its sources have arrived; its bytes, and who says what they are.
std::string result_of(const Operation& operation);
uint8_t origin_of_result(const Operation& operation);

// Of what comes of several, the greatest names it; nobody, where nobody knows one of them.
uint8_t joined(uint8_t one, uint8_t other);

}  // namespace presim::libs::nccl
