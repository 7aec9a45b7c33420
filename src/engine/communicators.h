// communicators: those between the processes of a run, each kept until the end, so that a plan that changes in the run
// connects nothing twice. One for tensors on a GPU is made again when its stage moves to another GPU in some process.
// Threads: one. Every process asks for the same names in the same order. Errors: those of
// Processes::make_communicator().
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/processes.h"

namespace sluice::engine {

// The communicator of all processes, on the CPU.
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
  // For small tensors on the CPU.
  [[nodiscard]] Made get(const std::string& name);
  // For tensors on `device`, by what the configuration says. Requires: all processes have it there, or none has.
  [[nodiscard]] Made get(const std::string& name, device::Device device);
  // Makes each of them that some process does not have on the device that it names, in all processes. Blocks.
  void connect(const std::vector<Wanted>& wanted);

 private:
  struct Kept {
    std::string gpu;  // the GPU that it was made for; empty: the memory of the CPU
    Made made;
  };
  [[nodiscard]] bool has(const Wanted& wanted) const;
  Made make(const Wanted& wanted, comm::Collectives collectives);

  comm::Processes& processes_;
  comm::Collectives collectives_;
  std::map<std::string, Kept> kept_;  // by name
};

}  // namespace sluice::engine
