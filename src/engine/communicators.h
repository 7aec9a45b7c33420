// communicators: those between the processes of a run, each made once and kept until the end, so that a plan that
// changes in the run connects nothing twice.
// Threads: one. Every process asks for the same ones in the same order. Errors: those of
// Processes::make_communicator().
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "comm/processes.h"

namespace sluice::engine {

class Communicators {
 public:
  using Made = std::shared_ptr<comm::Communicator>;

  explicit Communicators(comm::Processes& processes, comm::Collectives collectives = comm::Collectives::kAuto)
      : processes_(processes), collectives_(collectives) {}

  [[nodiscard]] bool has_peers() const { return processes_.size() > 1; }
  // For small tensors on the CPU.
  [[nodiscard]] Made get(const std::string& name);
  // For tensors on `device`, by what the configuration says.
  [[nodiscard]] Made get(const std::string& name, device::Device device);

 private:
  // `make` makes it where it is asked for the first time.
  template <typename Make>
  Made get(const std::string& name, const std::string& place, Make make);

  comm::Processes& processes_;
  comm::Collectives collectives_;
  // By name, and the GPU that it was made for.
  std::map<std::pair<std::string, std::string>, Made> made_;
};

}  // namespace sluice::engine
