// simulate_workers: `sluice simulate --sync POLICY`: uneven workers of a parameter server in virtual time.
#pragma once

#include <optional>
#include <vector>

#include <CLI/CLI.hpp>

#include "app/options.h"
#include "ps/policy/uneven_workers.h"

namespace sluice::app {

struct SimulateWorkersArguments {
  ps::UnevenRequest request;
  std::optional<int> workers;
  std::optional<std::int64_t> base_batch;

  void add_to(CLI::App& command);
  [[nodiscard]] bool are_given() const { return !request.sync.empty(); }
  void run(const OutputArguments& output) const;
};

}  // namespace sluice::app
