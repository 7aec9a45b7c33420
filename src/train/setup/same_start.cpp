#include "train/setup/same_start.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "comm/compare.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "device/graph.h"
#include "train/setup/machine_fit.h"
#include "train/setup/run_state.h"

namespace sluice::train {
namespace {

std::int64_t as_number(const SplitIdentity& split) {
  return std::bit_cast<std::int64_t>(std::uint64_t{std::stoull(split.digest.substr(0, 16), nullptr, 16)});
}

std::int64_t count_gpus(const Setup& setup) {
  return std::ranges::count(setup.devices, device::DeviceKind::kCuda, &device::Device::kind);
}

void check_same_setup(const comm::Communicator& communicator, const Setup& setup) {
  const std::array names{"number of training samples", "number of test samples", "training samples", "test samples"};
  const auto difference =
      comm::find_difference(communicator, {count_gpus(setup), setup.data.train.samples, setup.data.test.samples,
                                           as_number(setup.data.train), as_number(setup.data.test)});
  if (!difference) return;
  if (difference->position == 0) {
    throw ConfigError(difference->describe_ranks(), " would train on another kind of device (GPU, CPU) than rank 0; ",
                      "set device.list so that all ranks use one kind");
  }
  throw DataError("the ", names.at(difference->position - 1), " of data set ", setup.train_set->info().name, " in ",
                  difference->describe_ranks(), " ", difference->position < 3 ? "differs" : "differ",
                  " from rank 0's; give every rank the same files (data.path)");
}

std::string device_kind(const Setup& setup) { return count_gpus(setup) > 0 ? "GPU" : "CPU"; }

std::string other_device(const Setup& setup, const std::string& theirs) {
  return concat("this process would train on a ", device_kind(setup), ", but the run trains on a ", theirs,
                "; set device.list to devices that no other process uses");
}

void warn_of_arithmetic(const std::string& one, const std::string& own, const std::string& other,
                        const std::string& theirs) {
  log_warning(one, " uses ", own, ", but ", other, " uses ", theirs,
              ": results may depend on the layout in their last bits (train.reproducible)");
}

void warn_of_different_arithmetic(const comm::Communicator& communicator, const Setup& setup) {
  if (!setup.config.train.is_reproducible_by_layout()) return;
  const std::vector<std::string> of_ranks = comm::gather_texts(communicator, arithmetic_of(setup.devices), /*root=*/0);
  for (std::size_t rank = 1; rank < of_ranks.size(); ++rank) {
    if (of_ranks[rank] == of_ranks[0]) continue;
    return warn_of_arithmetic(concat("rank ", rank), of_ranks[rank], "rank 0", of_ranks[0]);
  }
}

// Sends the text, because the processes may share no disk.
void share_schedule(const Peers& peers, Setup& setup) {
  const std::string schedule_text = comm::broadcast_text(peers.communicator(), setup.schedule_text, /*root=*/0);
  if (peers.process().rank != 0) settle_schedule(setup, schedule_text);
}

constexpr auto kArithmetic = "arithmetic", kDevices = "the kind of device", kSchedule = "the content of pipeline.order";

}  // namespace

comm::Agreement data_agreement(const Setup& setup) {
  return {{kDevices, device_kind(setup)},
          {"the number of training samples", std::to_string(setup.data.train.samples)},
          {"the number of test samples", std::to_string(setup.data.test.samples)},
          {"the digest of the training samples", setup.data.train.digest},
          {"the digest of the test samples", setup.data.test.digest},
          {kSchedule, setup.schedule_text},
          {kArithmetic, arithmetic_of(setup.devices)}};
}

void settle_as_guest(Peers& peers, Setup& setup) {
  comm::Agreement theirs = peers.door_note().data;
  if (!setup.config.pipeline.order.empty()) settle_schedule(setup, theirs[kSchedule]);
  settle_together(peers, setup);
  Setup as_member = setup;
  as_member.process.processes = peers.door_note().processes + 1;
  static_cast<void>(with_settings(as_member, setup.config));  // checks that the run can have one more process
  const comm::Agreement own = data_agreement(setup);
  const std::string kind = theirs[kDevices], own_arithmetic = own.at(kArithmetic);
  const std::string arithmetic = std::exchange(theirs[kArithmetic], own_arithmetic);
  if (own_arithmetic != arithmetic && setup.config.train.is_reproducible_by_layout())
    warn_of_arithmetic("this process", own_arithmetic, "the run", arithmetic);
  if (device_kind(setup) != kind) throw ConfigError(other_device(setup, kind));
  if (const auto found = comm::first_disagreement(own, theirs)) {
    throw DataError(found->key,
                    " differs from that of the run, which goes on without this process; give it the same "
                    "files (data.path)");
  }
  peers.join();
  settle_process(setup, peers.process());  // now that the other processes of this machine are known
  if (device_kind(setup) != kind) throw PeerError(other_device(setup, kind));
}

void settle_together(const Peers& peers, Setup& setup) {
  if (!peers.is_alone() && !setup.config.pipeline.order.empty()) share_schedule(peers, setup);
  settle_process(setup, peers.process());
  refuse_too_many_threads(setup);
  log_own_cores(setup);
  if (setup.config.device.cuda_graphs) device::require_graphs(setup.devices);
  refuse_too_large_batch(setup);
  warn_of_unusual_settings(setup);
  identify_data(setup);
  if (peers.is_alone()) return;
  check_same_setup(peers.communicator(), setup);
  warn_of_different_arithmetic(peers.communicator(), setup);
}

}  // namespace sluice::train
