// libFuzzer target: a parameter server to which five strangers send bytes, messages with any fields, and messages of a
// worker, in any order. Only documented errors may occur, each push counts once, and no sample is in two leases. The
// socket has no network.
#include <fuzzer/FuzzedDataProvider.h>

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "core/error.h"
#include "fuzz_socket.h"
#include "ps/net/network_server.h"

namespace {

using namespace sluice;
using namespace sluice::ps;
using fuzz::require;

constexpr std::size_t kPeers = 5;
constexpr std::int64_t kSamples = 12;

// What a stranger has learnt from the answers.
struct Known {
  std::int64_t incarnation = 1, server_epoch = 0, version = 0, lease = 0, sequence = 0, samples = 0;
};

struct Wire {
  std::array<Known, kPeers> known;
  Nanoseconds time = 1'000'000'000;
  std::int64_t taken = 0;
};
Wire* wire = nullptr;

Layout fuzz_layout() { return make_layout({{"a", {3}, {1}}, {"b", {2}, {1}}}, {{"mean", 1}}, {.shards = 2}); }

void learn(Known& known, const FromServer& message, const Frames& frames) {
  if (const auto* const welcome = std::get_if<Welcome>(&message))
    known = {.incarnation = welcome->incarnation.number, .server_epoch = welcome->incarnation.server_epoch};
  if (const auto* const weights = std::get_if<WeightsGiven>(&message)) {
    known.version = weights->version;
    require(tensors_after_header(frames, shape_of(fuzz_layout(), {0, fuzz_layout().shards.size()})).has_value());
  }
  if (const auto* const lease = std::get_if<LeaseGiven>(&message)) {
    known.lease = lease->id;
    known.samples = std::ssize(samples_after_header(frames).value());
  }
  if (const auto* const answer = std::get_if<PushAnswered>(&message);
      answer && answer->answer == PushAnswer::kCommitted) {
    known.sequence = answer->sequence;
    ++wire->taken;
  }
}

// A push, sometimes with some or all of it sent ahead.
std::vector<Frames> push_of(FuzzedDataProvider& input, const Known& known, WorkerId worker) {
  const auto nearly = [&](std::int64_t right) {
    const auto draw = input.ConsumeIntegralInRange(0, 15);
    return draw == 0 ? input.ConsumeIntegral<std::int64_t>() : draw == 1 ? right + 1 : right;
  };
  PushMade push{.record = {.worker = worker,
                           .incarnation = static_cast<int>(nearly(known.incarnation)),
                           .sequence = nearly(known.sequence + 1),
                           .base_version = nearly(known.version),
                           .examples = nearly(known.samples),
                           .targets = nearly(known.samples)},
                .lease = nearly(known.lease)};
  push.scores.sums = {static_cast<double>(nearly(0))};
  Tensors tensors{.statistics = at::ones({1})};
  for (const Shard& shard : fuzz_layout().shards) tensors.shards.push_back(at::ones({shard.elements}));
  if (input.ConsumeIntegralInRange(0, 40) == 0) tensors.shards[0][0] = input.ConsumeFloatingPoint<float>();
  if (input.ConsumeIntegralInRange(0, 2) > 0) return {with_tensors(header_of(push), tensors)};
  std::vector<Frames> messages;
  for (auto count = input.ConsumeIntegralInRange(1, 4); count > 0; --count) {
    const auto shard = input.ConsumeIntegralInRange<std::int64_t>(0, 2);
    const auto offset = nearly(input.ConsumeIntegralInRange(0, 1)), elements = nearly(3 - shard);
    const PushAhead ahead{.push = push.record.key(),
                          .lease = nearly(known.lease),
                          .shard = shard,
                          .spans = {{offset, elements}, {nearly(1), 1}}};
    messages.push_back({header_of(FromWorker{ahead}), frame_of(at::ones({input.ConsumeIntegralInRange(0, 4)}))});
    if (input.ConsumeBool()) continue;
    const PushAhead whole{ahead.push, ahead.lease, shard, {{0, 3 - shard}}};
    messages.push_back({header_of(FromWorker{whole}), frame_of(at::ones({3 - shard}))});
  }
  push.is_ahead = true;
  messages.push_back({header_of(push), frame_of(tensors.statistics)});
  return messages;
}

FromWorker word_of(FuzzedDataProvider& input, const Known& known, WorkerId worker, const std::string& peer) {
  const auto number = [&] {
    return input.ConsumeBool() ? input.ConsumeIntegralInRange(-2, 3) : input.ConsumeIntegral<std::int64_t>();
  };
  switch (input.ConsumeIntegralInRange(0, 6)) {
    case 0: return PushSent{number(), input.ConsumeFloatingPoint<double>()};
    case 1: return WorkerHeartbeat{number()};
    case 2: return WorkerAgain{number(), number()};
    case 3: return Leaving{};
    case 4: return Failed{number(), input.ConsumeRandomLengthString(20)};
    default:
      return Hello{.protocol = kProtocol + (input.ConsumeIntegralInRange(0, 20) == 0 ? 1 : 0),
                   .worker = worker,
                   .process_id = input.ConsumeBool() ? peer : "same",
                   .where = input.ConsumeRandomLengthString(5),
                   .batch = input.ConsumeBool() ? 4 : number(),
                   .abandons = input.ConsumeBool() ? Incarnation{known.incarnation, known.server_epoch}
                                                   : Incarnation{number(), 0}};
  }
}

void receive(FuzzedDataProvider& input) {
  const std::size_t peer = input.ConsumeIntegralInRange<std::size_t>(0, kPeers - 1);
  const std::string name(1, static_cast<char>('a' + peer));
  const WorkerId worker{
      static_cast<int>(input.ConsumeIntegralInRange(0, 9) == 0 ? input.ConsumeIntegral<std::uint8_t>() : peer % 3)};
  Frames frames;
  switch (input.ConsumeIntegralInRange(0, 7)) {
    case 0: frames.push_back(frame_of(input.ConsumeRandomLengthString(200))); break;
    case 1:
    case 2: frames.push_back(header_of(word_of(input, wire->known[peer], worker, name))); break;
    case 3: frames.push_back(header_of(Hello{.worker = worker, .process_id = name, .where = name, .batch = 4})); break;
    default: {
      std::vector<Frames> messages = push_of(input, wire->known[peer], worker);
      frames = std::move(messages.back());
      messages.pop_back();
      for (Frames& ahead : messages) fuzz::incoming.push_back({name, std::move(ahead)});
    }
  }
  if (input.ConsumeIntegralInRange(0, 30) == 0) frames.push_back(frame_of(std::string("more")));
  fuzz::incoming.push_back({name, std::move(frames)});
}

void check_ledger(const data::Ledger& ledger, const std::vector<NetworkUpdate>& updates) {
  std::int64_t pushed = ledger.epochs_over() * kSamples, counted = 0, pushes = 0;
  for (std::int64_t epoch = ledger.epochs_over(); epoch < ledger.epochs_over() + 100; ++epoch) {
    const data::LedgerCounts counts = ledger.counts(epoch);
    require(counts.waiting >= 0 && counts.leased >= 0 && counts.pushed >= 0);
    require(counts.waiting + counts.leased + counts.pushed + counts.lost == kSamples);
    pushed += counts.pushed;
  }
  std::set<std::tuple<WorkerId, int, std::int64_t>> all;
  for (const NetworkUpdate& update : updates) {
    for (const PushDone& push : update.pushes) {
      require(all.emplace(push.record.worker, push.record.incarnation, push.record.sequence).second);
      counted += push.record.examples;
      ++pushes;
    }
  }
  require(counted <= pushed && pushes <= wire->taken);  // some updates have not been told yet
}

SyncPolicy policy_of(FuzzedDataProvider& input) {
  constexpr std::array kPolicies{"bsp", "asp", "ssp", "quorum"};
  return preset_policy(input.PickValueInArray(kPolicies), input.ConsumeIntegralInRange(1, 3));
}

void serve(FuzzedDataProvider& input) {
  Server server(
      fuzz_layout(), {at::zeros({3}), at::zeros({2})}, at::zeros({1}),
      {.policy = policy_of(input), .optimizer = {.kind = "sgd"}, .lr = [](const ServerProgress&) { return 0.1; }});
  data::Ledger ledger({.seed = 1, .samples = kSamples});
  NetworkServer network(server, ledger, {.most_workers = 64, .last_version = 30, .clock = [] { return wire->time; }});
  std::vector<NetworkUpdate> updates;
  try {
    while (input.remaining_bytes() > 0 && !network.is_over()) {
      for (auto count = input.ConsumeIntegralInRange(1, 4); count > 0; --count) receive(input);
      constexpr std::array<Nanoseconds, 6> kPauses{0, 0, 1'000'000, 600'000'000, 3'000'000'000, 70'000'000'000};
      wire->time += input.PickValueInArray(kPauses);
      while (auto update = network.next(1)) updates.push_back(std::move(*update));
    }
  } catch (const PeerError&) {
  } catch (const DivergedError&) {
  }
  check_ledger(ledger, updates);
  network.end({});
}

}  // namespace

void sluice::ps::fuzz::look_at(const std::string& peer, const Frames& frames) {
  require(peer.size() == 1);
  const auto message = from_server(frames.front());
  require(message.has_value());
  learn(wire->known.at(static_cast<std::size_t>(peer[0] - 'a')), *message, frames);
}

void sluice::ps::fuzz::let_pass(std::chrono::nanoseconds limit) { wire->time += limit.count(); }

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
