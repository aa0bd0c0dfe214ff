#include "policies.h"

#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <sstream>
#include <vector>

#include "recorder.h"
#include "tensors.h"
#include "values.h"

namespace presim::hook::values {
namespace {

constexpr int64_t kMostExperts = 1024;  // a choice among more is a choice of tokens

struct Policies {
  double number = 0.5;  // a probability with finite logarithm, root, reciprocal and complement
  double gradient_norm = 1.0;
  std::vector<double> loss{2.0};  // one after the other; the last one repeats
  std::string routing = "balanced";
  double zipf = 1.0;
  uint64_t seed = 0;
  std::vector<double> loads;  // per expert
  int64_t token = -1;         // -1: the middle of the vocabulary
  int64_t eos = -1;           // -1: never
  std::vector<double> eos_after{0};  // tokens sampled before it: one number, or one for each sequence in turn
  double acceptance = 1;             // probability that a sampled token is the one that a draft model sampled
  uint64_t acceptance_seed = 0;
  bool by_rank = false;       // values differ between ranks that have tokens of their own
  uint64_t lowest = 0;        // the rank whose losses and numbers are then low; the others' are high
};

Policies& policies() {
  static auto* chosen = new Policies;
  return *chosen;
}

std::vector<double> numbers(const std::string& text) {
  std::vector<double> read;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) read.push_back(std::atof(part.c_str()));
  return read;
}

uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// A number in (0, 1) that depends only on its arguments and the seed, so that recomputation routes as the forward pass.
double uniform(uint64_t source, uint64_t row, uint64_t choice) {
  uint64_t x = policies().seed * 0x9e3779b97f4a7c15ull + row * 0xbf58476d1ce4e5b9ull + choice * 0x94d049bb133111ebull;
  return (double(mixed(x + source) >> 11) + 0.5) * 0x1p-53;
}

// The rank whose tokens these are, and whether anything has been drawn for them, which must be drawn again.
std::atomic<uint64_t> tokens_of{0};
std::atomic<bool> drawn{false};

// A number in (0, 1) that differs between ranks; the tokens' rank, so that ranks with the same tokens agree.
double of_rank(uint64_t purpose, uint64_t choice = 0) {
  uint64_t x = mixed(tokens_of + 1) + purpose * 0x9e3779b97f4a7c15ull + choice * 0xbf58476d1ce4e5b9ull;
  return (double(mixed(x) >> 11) + 0.5) * 0x1p-53;
}
enum Purpose : uint64_t { kLossOfRank = 1, kNumberOfRank, kTokenOfRank, kEndOfRank, kExpertsOfRank };

double next_loss() {
  static std::atomic<size_t> given{0};
  const auto& losses = policies().loss;
  double loss = losses[std::min(given++, losses.size() - 1)];
  if (!policies().by_rank) return loss;
  return loss * (tokens_of == policies().lowest ? 0.01 : 4 + of_rank(kLossOfRank));
}

double number() {
  if (!policies().by_rank) return policies().number;
  return tokens_of == policies().lowest ? 0.01 : 0.9 + 0.09 * of_rank(kNumberOfRank);
}

// The layer of the call: its module's name up to the first number, 0 without one. The rest does not count, because a
// recomputed layer may run the same operator in another of its modules.
uint64_t layer() {
  std::string_view scope = interned_text(presim::context().scope);
  for (size_t begin = scope.find('.'); begin != std::string_view::npos; begin = scope.find('.', begin + 1)) {
    size_t end = std::min(scope.find('.', begin + 1), scope.size());
    std::string_view part = scope.substr(begin + 1, end - begin - 1);
    if (part.empty() || part.find_first_not_of("0123456789") != std::string_view::npos) continue;
    uint64_t hash = 14695981039346656037ull;
    for (char letter : scope.substr(0, end)) hash = (hash ^ uint8_t(letter)) * 1099511628211ull;
    return mixed(hash);
  }
  return 0;
}

// The popular experts differ between layers, but are the same for all ranks.
void shuffle(std::vector<double>& weight, uint64_t layer) {
  for (size_t left = weight.size(); layer != 0 && left > 1; --left) {
    auto picked = size_t(uniform(layer, left, ~uint64_t(0)) * double(left));
    std::swap(weight[left - 1], weight[picked]);
  }
}

std::vector<double> weights(int64_t choices, uint64_t layer) {
  const Policies& chosen = policies();
  std::vector<double> result(size_t(choices), 1.0);
  if (chosen.routing == "zipf") {
    for (size_t i = 0; i < result.size(); ++i) result[i] = std::pow(double(i + 1), -chosen.zipf);
    shuffle(result, layer);
  }
  if (chosen.routing == "loads" && int64_t(chosen.loads.size()) == choices) result = chosen.loads;
  if (chosen.by_rank) {  // about half of the experts get no token, as where a batch is small or a router prefers some
    for (size_t i = 0; i < result.size(); ++i) {
      if (of_rank(kExpertsOfRank + layer, i) < 0.5) result[i] *= 1e-30;
    }
  }
  return result;
}

bool balanced(int64_t choices) {
  const Policies& chosen = policies();
  if (chosen.by_rank) return false;
  return chosen.routing == "balanced" || (chosen.routing == "loads" && int64_t(chosen.loads.size()) != choices);
}

// Loads for another number of experts do not apply; the user gets a note.
void note_loads(int64_t choices) {
  static std::atomic<bool> noted{false};
  if (policies().routing != "loads" || int64_t(policies().loads.size()) == choices || noted.exchange(true)) return;
  note("remark Routing over " + std::to_string(choices) + " experts is balanced: the file of --values routing has " +
       std::to_string(policies().loads.size()) + " loads.");
}

// One choice per row, by the inverse of the cumulated weights: a greatest value of a row may be asked of a million rows.
void draw_single(int64_t* out, int64_t rows, const std::vector<double>& weight, uint64_t source) {
  std::vector<double> cumulated(weight.size());
  std::partial_sum(weight.begin(), weight.end(), cumulated.begin());
  for (int64_t row = 0; row < rows; ++row) {
    double mark = uniform(source, uint64_t(row), 0) * cumulated.back();
    auto after = std::upper_bound(cumulated.begin(), cumulated.end() - 1, mark);
    out[row] = after - cumulated.begin();
  }
}

// `taken` distinct choices per row, drawn without replacement by the Gumbel trick: the greatest of log(weight) + noise.
void draw(int64_t* out, int64_t rows, int64_t taken, int64_t choices) {
  uint64_t in = layer(), source = in + tokens_of * 0xd6e8feb86659fd93ull;
  drawn = true;
  std::vector<double> weight = weights(choices, in), key(static_cast<size_t>(choices));
  if (taken == 1) return draw_single(out, rows, weight, source);
  std::vector<int64_t> order(static_cast<size_t>(choices));
  for (int64_t row = 0; row < rows; ++row) {
    for (size_t i = 0; i < key.size(); ++i) {
      key[i] = std::log(std::max(weight[i], 1e-300)) - std::log(-std::log(uniform(source, uint64_t(row), i)));
    }
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + taken, order.end(),
                      [&key](int64_t a, int64_t b) { return key[size_t(a)] > key[size_t(b)]; });
    std::copy_n(order.begin(), taken, out + row * taken);
  }
}

// The experts of each row, [rows, taken].
std::vector<int64_t> pick_experts(int64_t rows, int64_t taken, int64_t choices) {
  std::vector<int64_t> picked(static_cast<size_t>(rows * taken));
  note_loads(choices);
  if (balanced(choices)) {
    for (size_t i = 0; i < picked.size(); ++i) {
      int64_t row = int64_t(i) / taken, place = int64_t(i) % taken;
      picked[i] = (row * (taken < choices ? taken : 1) + place) % choices;
    }
  } else {
    draw(picked.data(), rows, taken, choices);
  }
  return picked;
}

// The experts of each row, as indices.
void route(const at::Tensor& tensor, int64_t choices) {
  int64_t taken = tensor.dim() > 0 && tensor.size(-1) <= choices ? tensor.size(-1) : 1;
  std::vector<int64_t> picked = pick_experts(tensor.numel() / taken, taken, choices);
  at::Tensor source = at::from_blob(picked.data(), tensor.sizes(), at::TensorOptions().dtype(at::kLong));
  host_view(tensor).copy_(source);
}

// The sequences that are being generated: how many came before them, and how many tokens they have.
struct Generation {
  size_t before = 0;
  int64_t sampled = 0;
};

// Whether a sequence ends with the next token. Lengths that differ start again once all sequences of a batch have ended.
bool ends(const Generation& generation, int64_t row) {
  const Policies& chosen = policies();
  if (chosen.eos < 0) return false;
  size_t first = chosen.by_rank ? size_t(mixed(tokens_of + 1) % chosen.eos_after.size()) : 0;
  double after = chosen.eos_after[(first + generation.before + size_t(row)) % chosen.eos_after.size()];
  if (chosen.eos_after.size() == 1 && chosen.by_rank) after = std::floor(after * of_rank(kEndOfRank));
  return double(generation.sampled) >= after;
}

// Tokens of several positions at once are a target model's answer to a draft: each agrees with a probability.
bool agrees(uint64_t call, int64_t position) {
  const Policies& chosen = policies();
  uint64_t x = mixed(chosen.acceptance_seed + 1) + call * 0x9e3779b97f4a7c15ull + tokens_of;
  return (double(mixed(mixed(x) + uint64_t(position)) >> 11) + 0.5) * 0x1p-53 < chosen.acceptance;
}

void sample(const at::Tensor& tensor, int64_t choices) {
  static Generation generation;
  static std::mutex guard;
  static uint64_t calls = 0;
  std::lock_guard lock(guard);
  const Policies& chosen = policies();
  int64_t middle = chosen.by_rank ? int64_t(double(choices) * of_rank(kTokenOfRank)) : choices / 2;
  int64_t usual = chosen.token >= 0 ? chosen.token : middle, rows = tensor.dim() > 0 ? tensor.size(0) : 1;
  bool verifies = tensor.dim() > 1 && tensor.size(-1) > 1;
  std::vector<int64_t> tokens(size_t(tensor.numel()), usual);
  bool all_end = true;
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    bool last = ends(generation, i / std::max<int64_t>(1, tensor.numel() / rows));
    all_end &= last;
    if (last) tokens[size_t(i)] = chosen.eos;
    else if (verifies && !agrees(calls, i)) tokens[size_t(i)] = (usual + 1) % choices;
  }
  ++calls;
  ++generation.sampled;
  if (all_end && chosen.eos_after.size() > 1) generation = {generation.before + size_t(rows), 0};
  host_view(tensor).copy_(at::from_blob(tokens.data(), tensor.sizes(), at::TensorOptions().dtype(at::kLong)));
}

uint8_t answer_indices(const at::Tensor& tensor, int64_t choices) {
  if (choices < 1) return host_view(tensor).zero_(), kZero;
  if (choices <= kMostExperts) return route(tensor, choices), kRouting;
  return sample(tensor, choices), kSampling;
}

uint8_t answer_float(const at::Tensor& tensor, Rule rule, const Call& call) {
  at::Tensor view = host_view(tensor);
  switch (rule) {
    case Rule::Loss: return view.fill_(next_loss() * call.terms), kLoss;
    case Rule::Norm: return view.fill_(policies().gradient_norm / std::sqrt(call.terms)), kGradientNorm;
    case Rule::Finite: return view.zero_(), kFinite;
    default: return view.fill_(number()), kNumber;
  }
}

}  // namespace

void configure(const std::string& lines) {
  Policies& chosen = policies();
  std::stringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    std::string key = line.substr(0, equals), value = line.substr(equals + 1);
    if (key == "number") chosen.number = std::atof(value.c_str());
    if (key == "gradient_norm") chosen.gradient_norm = std::atof(value.c_str());
    if (key == "loss") chosen.loss = numbers(value);
    if (key == "routing") chosen.routing = value;
    if (key == "zipf") chosen.zipf = std::atof(value.c_str());
    if (key == "seed") chosen.seed = std::strtoull(value.c_str(), nullptr, 10);
    if (key == "loads") chosen.loads = numbers(value);
    if (key == "token") chosen.token = std::atoll(value.c_str());
    if (key == "eos") chosen.eos = std::atoll(value.c_str());
    if (key == "lowest_rank") chosen.by_rank = true, chosen.lowest = std::strtoull(value.c_str(), nullptr, 10);
    if (key == "eos_after") chosen.eos_after = numbers(value);
    if (key == "acceptance") chosen.acceptance = std::atof(value.c_str());
    if (key == "acceptance_seed") chosen.acceptance_seed = std::strtoull(value.c_str(), nullptr, 10);
  }
}

void route_as(uint64_t rank) {
  if (!drawn) tokens_of = rank;
}

void answer(const at::Tensor& tensor, Rule rule, const Call& call) {
  bool integral = c10::isIntegralType(tensor.scalar_type(), false);
  uint8_t origin = kZero;
  if (tensor.scalar_type() == at::kBool) {
    if (rule == Rule::Dropout) return;
    host_view(tensor).fill_(rule == Rule::True);
    origin = rule == Rule::True ? kFinite : kZero;
  } else if (!integral) {
    origin = answer_float(tensor, rule, call);
  } else if (rule == Rule::Indices) {
    origin = answer_indices(tensor, call.choices);
  } else {
    host_view(tensor).zero_();
  }
  know(tensor, origin);
}

void answer_written(void* address, int64_t elements, c10::ScalarType type, Rule rule) {
  at::RecordFunctionGuard unobserved(false);
  at::Tensor view = at::from_blob(address, {elements}, at::TensorOptions().dtype(type));
  forget(view);
  if (small(view) && exists(view)) answer(view, rule, {});
}

void answer_route_map(void* address, int64_t rows, int64_t choices, int64_t taken) {
  at::RecordFunctionGuard unobserved(false);
  at::Tensor map = at::from_blob(address, {rows, choices}, at::TensorOptions().dtype(at::kBool));
  forget(map);
  if (!small(map) || !exists(map) || taken < 1 || taken > choices) return;
  std::vector<int64_t> picked = pick_experts(rows, taken, choices);
  at::Tensor indices = at::from_blob(picked.data(), {rows, taken}, at::TensorOptions().dtype(at::kLong));
  host_view(map).zero_().scatter_(1, indices, true);
  know(map, kRouting);
}

}  // namespace presim::hook::values
