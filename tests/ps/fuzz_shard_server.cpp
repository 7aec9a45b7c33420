// libFuzzer target: a shard server to which a lead server, workers and strangers send bytes, messages with any fields,
// and nearly valid messages, in any order. Only documented errors may occur, every answer can be read, and only steps
// of the lead run, in order. The socket has no network.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "core/error.h"
#include "fuzz_socket.h"
#include "ps/net/shard_server.h"

namespace {

using namespace sluice;
using namespace sluice::ps;
using fuzz::require;

constexpr std::int64_t kWorkers = 3;
const std::vector<std::string> kPeers{"lead", "0", "1", "2", "stranger"};

struct Wire {
  std::int64_t greeting = 0, workers_sent = 0;
  std::vector<std::int64_t> pushed = std::vector<std::int64_t>(kWorkers);
};
Wire* wire = nullptr;

Assignment fuzz_assignment() {
  return {make_layout({{"a", {6}, {1}}, {"b", {5}, {1}}}, {{"mean", 1}}, {.shards = 4, .split_bound = 3}), {2, 4}};
}

std::int64_t nearly(FuzzedDataProvider& input, std::int64_t right) {
  const auto draw = input.ConsumeIntegralInRange(0, 20);
  return draw == 0 ? input.ConsumeIntegral<std::int64_t>() : draw == 1 ? right + 1 : draw == 2 ? right - 1 : right;
}

PushKey key_of(FuzzedDataProvider& input, std::int64_t worker, std::int64_t sequence) {
  return {WorkerId{static_cast<int>(nearly(input, worker))}, static_cast<int>(nearly(input, 1)),
          nearly(input, sequence)};
}

at::Tensor numbers(FuzzedDataProvider& input, std::int64_t elements) {
  const at::Tensor values = at::ones({elements});
  if (elements > 0 && input.ConsumeIntegralInRange(0, 30) == 0) values[0] = input.ConsumeFloatingPoint<float>();
  return values;
}

Frames loaded(FuzzedDataProvider& input, std::int64_t version) {
  ShardsLoaded load{.run = input.ConsumeIntegralInRange(0, 9) == 0 ? "another" : "run",
                    .version = version,
                    .assignment = fuzz_assignment(),
                    .states = {"momentum"}};
  ShardsState state{.optimizer = {{"momentum", {}}}};
  for (const std::int64_t elements : load.assignment.shape().shards) {
    state.values.push_back(numbers(input, nearly(input, 0) == 0 ? elements : 1));
    state.optimizer[0].second.push_back(at::zeros({elements}));
  }
  load.steps_done = nearly(input, 0);
  return with_state(header_of(FromLead{load}), state);
}

FromLead step_of(FuzzedDataProvider& input, std::int64_t version) {
  StepAsked asked{.commits = input.ConsumeBool(),
                  .step = {.version = nearly(input, version + 1),
                           .index = static_cast<int>(nearly(input, 0)),
                           .count = static_cast<int>(nearly(input, 1))},
                  .update = {.lr = 0.1, .divisor = static_cast<double>(nearly(input, 2))}};
  for (auto count = input.ConsumeIntegralInRange<std::size_t>(1, 3); count > 0; --count) {
    const auto worker = input.ConsumeIntegralInRange<std::int64_t>(0, kWorkers - 1);
    asked.step.mix.parts.push_back({static_cast<std::size_t>(nearly(input, std::ssize(asked.step.pushes))), 1});
    asked.step.pushes.push_back(key_of(input, worker, wire->pushed[worker]));
  }
  asked.step.mixes_weights = input.ConsumeIntegralInRange(0, 9) == 0;
  asked.step.wants_norm = input.ConsumeBool();
  return asked;
}

Frames of_lead(FuzzedDataProvider& input, std::int64_t version) {
  const auto worker = input.ConsumeIntegralInRange<std::int64_t>(0, kWorkers - 1);
  const auto header = [](const FromLead& message) { return Frames{header_of(message)}; };
  switch (input.ConsumeIntegralInRange(0, 9)) {
    case 0:
      return header(LeadHello{.protocol = nearly(input, kProtocol),
                              .greeting = ++wire->greeting,
                              .process_id = "lead",
                              .where = input.ConsumeRandomLengthString(5),
                              .assignment = fuzz_assignment()});
    case 1: return loaded(input, nearly(input, version));
    case 2:
    case 3:
      ++wire->workers_sent;
      return header(WorkerThere{.worker = WorkerId{static_cast<int>(worker)},
                                .incarnation = {nearly(input, 1), nearly(input, 0)},
                                .routing_id = input.ConsumeIntegralInRange(0, 9) == 0 ? "" : std::to_string(worker),
                                .version = nearly(input, version),
                                .is_again = input.ConsumeBool()});
    case 4: return header(PartAsked{key_of(input, worker, wire->pushed[worker])});
    case 5: return header(StateAsked{nearly(input, version), input.ConsumeBool()});
    case 6: return header(LeadHeartbeat{nearly(input, wire->greeting), nearly(input, wire->workers_sent)});
    case 7:
      if (input.ConsumeIntegralInRange(0, 30) == 0) return header(ShardsOver{nearly(input, 0), "over"});
      [[fallthrough]];
    default: return header(step_of(input, version));
  }
}

Frames of_worker(FuzzedDataProvider& input, std::int64_t worker) {
  const TensorsShape shape = fuzz_assignment().shape();
  const auto next = wire->pushed[worker] + 1;
  switch (input.ConsumeIntegralInRange(0, 4)) {
    case 0:
      return {header_of(PartFromWorker{PartHeartbeat{key_of(input, worker, wire->pushed[worker]), nearly(input, 0)}})};
    case 1: {
      const auto shard = input.ConsumeIntegralInRange<std::int64_t>(0, 1);
      const std::int64_t elements = shape.shards[shard];
      const PushAhead ahead{.push = key_of(input, worker, next),
                            .lease = nearly(input, next),
                            .shard = nearly(input, shard),
                            .spans = {{nearly(input, 0), nearly(input, elements)}},
                            .server_epoch = nearly(input, 0)};
      return {header_of(PartFromWorker{ahead}), frame_of(numbers(input, elements))};
    }
    default: {
      const bool is_ahead = input.ConsumeIntegralInRange(0, 2) == 0;
      const PartMade made{key_of(input, worker, next), nearly(input, 2), is_ahead, nearly(input, 0)};
      if (made.push.sequence == next) wire->pushed[worker] = next;
      Tensors tensors{.statistics = at::empty({0})};
      for (const std::int64_t elements : shape.shards) {
        if (!is_ahead) tensors.shards.push_back(numbers(input, nearly(input, 0) == 0 ? elements : 1));
      }
      return with_tensors(header_of(PartFromWorker{made}), tensors);
    }
  }
}

void receive(FuzzedDataProvider& input, std::int64_t version) {
  const auto any = [&](const std::string& peer) {
    return input.ConsumeIntegralInRange(0, 15) == 0 ? input.PickValueInArray({"lead", "0", "1", "2", "stranger"})
                                                    : peer;
  };
  const auto draw = input.ConsumeIntegralInRange(0, 12);
  const auto worker = input.ConsumeIntegralInRange<std::int64_t>(0, kWorkers - 1);
  if (draw == 0)
    fuzz::incoming.push_back({any("stranger"), {frame_of(input.ConsumeRandomLengthString(200))}});
  else if (draw < 7)
    fuzz::incoming.push_back({any("lead"), of_lead(input, version)});
  else
    fuzz::incoming.push_back({any(std::to_string(worker)), of_worker(input, worker)});
}

// The start of a run; without it all other messages are ignored.
void begin(ShardServer& server, FuzzedDataProvider& input) {
  const LeadHello hello{.process_id = "lead", .assignment = fuzz_assignment()};
  for (int times = 0; times < 2; ++times) {  // the first makes the server listen anew
    fuzz::incoming.push_back({"lead", {header_of(FromLead{hello})}});
    server.next(1);
  }
  fuzz::incoming.push_back({"lead", loaded(input, 0)});
  for (std::int64_t worker = 0; worker < kWorkers; ++worker) {
    const WorkerThere there{WorkerId{static_cast<int>(worker)}, {1}, std::to_string(worker), 0};
    fuzz::incoming.push_back({"lead", {header_of(FromLead{there})}});
  }
  server.next(1);
}

void serve(FuzzedDataProvider& input) {
  ShardServer server({.optimizer = {.kind = "momentum", .momentum = 0.9}});
  try {
    if (input.ConsumeIntegralInRange(0, 9) > 0) begin(server, input);
    while (input.remaining_bytes() > 0 && !server.over()) {
      const std::int64_t version = server.keeper() != nullptr ? server.keeper()->version() : 0;
      for (auto count = input.ConsumeIntegralInRange(1, 4); count > 0; --count) receive(input, version);
      server.next(1);
    }
  } catch (const PeerError&) {
  }
  if (const ShardKeeper* const keeper = server.keeper()) {
    require(keeper->version() >= 0 && keeper->steps_done() >= 0);
    for (const at::Tensor& shard : keeper->weights().shards) require(shard.numel() > 0);
  }
}

}  // namespace

void sluice::ps::fuzz::look_at(const std::string& peer, const Frames& frames) {
  const bool is_read = peer == "lead" || shards_to_lead(frames.front()) ? shards_to_lead(frames.front()).has_value()
                                                                        : shards_to_worker(frames.front()).has_value();
  require(is_read);
  if (peer == "lead" || !shards_to_worker(frames.front())) return;
  if (std::holds_alternative<WeightsPart>(*shards_to_worker(frames.front())))
    require(frames.size() == fuzz_assignment().shape().shards.size() + 2);
}

void sluice::ps::fuzz::let_pass(std::chrono::nanoseconds) {}  // by the real clock

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  at::set_num_threads(1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Wire own;
  wire = &own;
  fuzz::incoming.clear();
  FuzzedDataProvider input(data, size);
  serve(input);
  return 0;
}
