// communicators: those between the processes of a run, each made once and kept until the end, so that a plan that
// changes in the run connects nothing twice. Null objects stand for a run of one process.
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
  // processes: null where there is one.
  explicit Communicators(comm::Processes* processes = nullptr, comm::Collectives collectives = comm::Collectives::kAuto)
      : processes_(processes), collectives_(collectives) {}

  [[nodiscard]] bool has_peers() const { return processes_ != nullptr && processes_->size() > 1; }
  // For small tensors on the CPU.
  [[nodiscard]] std::shared_ptr<comm::Communicator> get(const std::string& name);
  // For tensors on `device`, by what the configuration says.
  [[nodiscard]] std::shared_ptr<comm::Communicator> get(const std::string& name, device::Device device);

 private:
  comm::Processes* processes_;
  comm::Collectives collectives_;
  // By name, and the GPU that it was made for.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<comm::Communicator>> made_;
};

}  // namespace sluice::engine
