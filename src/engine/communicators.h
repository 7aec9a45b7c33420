// communicators: the communicators between the processes of a run, kept over changes of plan. One for GPU tensors is
// made again if its stage moves to another GPU in some process. Threads: one; every process asks for the same names in
// order. Errors: those of Processes::make_communicator().
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/processes.h"

namespace sluice::engine {

inline constexpr const char* kSmallSums = "small sums";

class Communicators {
 public:
  using Made = std::shared_ptr<comm::Communicator>;

  explicit Communicators(comm::Processes& processes, comm::Collectives collectives = comm::Collectives::kAuto)
      : processes_(processes), collectives_(collectives) {}

  struct Wanted {
    std::string name;
    device::Device device;
  };

  [[nodiscard]] bool has_peers() const { return processes_.size() > 1; }
  [[nodiscard]] Made get(const std::string& name);
  // For tensors on `device`, made as configured. Requires: all processes have it on that device, or none has.
  [[nodiscard]] Made get(const std::string& name, device::Device device);
  // Makes, in all processes, each communicator that some process does not have on the wanted device. Blocks.
  void connect(const std::vector<Wanted>& wanted);

 private:
  struct Kept {
    // The GPU that it was made for; empty: CPU memory.
    std::string gpu;
    Made made;
  };
  [[nodiscard]] bool has(const Wanted& wanted) const;
  Made make(const Wanted& wanted, comm::Collectives collectives);

  comm::Processes& processes_;
  comm::Collectives collectives_;
  std::map<std::string, Kept> kept_;
};

}  // namespace sluice::engine
