// processes: connects the processes of a run, checks that they run the same configuration, and makes communicators.
// Rank 0 listens on World::address only, unless the launcher does (World::is_hosted). Nothing is encrypted. Threads:
// one.
// Requires: SIGPIPE is ignored, because LibTorch writes to connections whose other end may have closed.
// Errors: each within about the time limit. ConfigError: the address is unknown or not ours, the port is in use, a rank
// is duplicated, or ranks differ in world size, version or configuration. PeerError: rank 0 does not answer, ranks did
// not arrive (by number), or a rank failed by itself. The errors of meeting_file.h.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "comm/communicator.h"
#include "comm/liveness.h"
#include "comm/meeting_file.h"
#include "comm/own_connections.h"
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
  std::chrono::milliseconds connect;    // until all processes have arrived
  std::chrono::milliseconds operation;  // longest wait for one operation of a communicator
};

// Backend that carries tensors: NCCL for GPUs only, Gloo for any device.
enum class Collectives { kAuto, kGloo, kNccl };  // kAuto: NCCL for a GPU, else Gloo

// For replicas.elastic.
struct Regrouping {
  // In a group that forms while the run goes on: rank 0 listens on World::address and any port, which it publishes.
  MeetingPoint meeting;
  std::shared_ptr<OwnConnections> connections;  // its connections are added; shutting them down ends all waits
};

class Processes {
 public:
  // prepare: work before this process waits for the others; rank 0 already listens. If it throws, connected processes
  // end at once with a PeerError that names this rank and the reason.
  Processes(
      World world, const Agreement& agreement, TimeLimits limits, const std::function<void()>& prepare = [] {},
      Regrouping regrouping = {});
  ~Processes();
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  // Completed by what the launcher left open: the local rank, the local size and the cores of this process.
  [[nodiscard]] const World& world() const { return world_; }
  [[nodiscard]] int rank() const { return world_.rank; }
  [[nodiscard]] int size() const { return world_.size; }

  // A communicator of all processes for tensors on `device`. Every process makes the same ones in the same order.
  [[nodiscard]] std::shared_ptr<Communicator> make_communicator(const std::string& name, device::Device device = {},
                                                                Collectives collectives = Collectives::kAuto);

  // The note of a run that goes on at the meeting point (door.h). This object is then of no other use.
  [[nodiscard]] const std::optional<std::string>& door() const { return door_; }

  // look_up() blocks until another process has published the text.
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
  template <typename Make>
  auto noted(const Make& make);
  template <typename Action>
  auto over_store(const Action& action);

  World world_;
  TimeLimits limits_;
  Regrouping regrouping_;
  std::unique_ptr<MeetingFile> meeting_file_;  // rank 0's, until all ranks have arrived
  c10::intrusive_ptr<c10d::Store> store_;
  std::optional<std::string> door_;
  std::shared_ptr<gloo::transport::Device> device_;
  int communicators_ = 0;  // number made so far; the same in all processes
};

}  // namespace sluice::comm
