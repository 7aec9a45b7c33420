// processes: the processes of a run, connected: they have found each other, agree on what they run, and can make
// communicators. Rank 0 listens on World::address alone, unless the launcher does (World::is_hosted); tensors go over
// the interface that leads there, or the one that is given. Nothing is encrypted.
// Not here: who is alive (liveness); what the processes train.
// Requires: SIGPIPE is ignored; LibTorch writes to connections whose other end may have gone.
// Threads: one. Errors, each within about the time limit, for which a pause of this process does not count: ConfigError
// (the address is not ours or not known, the port is in use, another world size, version or configuration in some rank,
// a rank twice), those of meeting_file.h, PeerError (rank 0 does not answer; ranks that did not come, by number; one
// that fails by itself).
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "comm/meeting_file.h"
#include "comm/start.h"
#include "comm/world.h"
#include "device/device.h"

namespace c10d {
class Store;
}
namespace gloo::transport {
class Device;
}

namespace sluice::comm {

struct TimeLimits {
  std::chrono::milliseconds connect;    // until all processes are there
  std::chrono::milliseconds operation;  // the longest wait in a communicator
};

// What carries tensors: NCCL those of GPUs, Gloo any.
enum class Collectives { kAuto, kGloo, kNccl };  // kAuto: NCCL for a GPU, else Gloo

class Processes {
 public:
  // prepare: what this process does by itself before it waits for the others; rank 0 already listens. Where it throws,
  // the others hear why at once, if they are there, and end with a PeerError that names this rank.
  Processes(
      World world, const Agreement& agreement, TimeLimits limits, const std::function<void()>& prepare = [] {});
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // With what the launcher left open: which processes share this machine's devices, and its cores.
  [[nodiscard]] const World& world() const { return world_; }
  [[nodiscard]] int rank() const { return world_.rank; }
  [[nodiscard]] int size() const { return world_.size; }

  // A communicator of all processes for tensors on `device`. Every process makes the same ones in the same order.
  [[nodiscard]] std::shared_ptr<Communicator> make_communicator(const std::string& name, device::Device device = {},
                                                                Collectives collectives = Collectives::kAuto);

  // A text that one process leaves for the others, who wait for it.
  void publish(const std::string& key, const std::string& text);
  [[nodiscard]] std::string look_up(const std::string& key);

 private:
  void listen();
  void connect_to_rank_0();
  [[nodiscard]] bool connect_by_file(std::chrono::milliseconds limit);
  [[nodiscard]] bool connect_to(const MeetingNote& meeting);
  [[nodiscard]] std::vector<std::string> reach_store(std::chrono::milliseconds limit);
  void open(int listener, std::chrono::milliseconds limit);
  void report_failure(const std::string& why);
  [[nodiscard]] c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store);
  void agree(const Agreement& agreement);
  void count_neighbours();
  template <typename Action>
  auto over_store(const Action& action);

  World world_;
  TimeLimits limits_;
  std::optional<MeetingFile> meeting_file_;  // rank 0's, while the others come
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<gloo::transport::Device> device_;  // shared by all communicators
  int communicators_ = 0;                            // made so far: the same number in all processes
};

}  // namespace sluice::comm
