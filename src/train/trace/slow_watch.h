// slow_watch: detects what has become slower and stays slower (tune/slowness.h): a device, the wait for data, or the
// sum over the processes. Each process watches its own devices and its wait, and rank 0 the sum. Once a process has
// events, all send theirs to rank 0 after the next step, which logs them and writes `slow` lines. If the sum is slow,
// they first measure the links of all pairs. Threads: one; all processes make the same calls.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/link_rates.h"
#include "train/setup/setup.h"
#include "train/trace/step_observer.h"
#include "tune/slowness.h"

namespace sluice::train {

class SlowWatch final : public StepObserver {
 public:
  using Report = std::function<void(const std::string& line, const nlohmann::ordered_json& fields)>;
  // [device]: predicted computing time with the plan / with the plan before it; empty if they cannot be compared.
  using WorkRatios = std::function<std::vector<double>(const Plan& plan)>;
  // others: null if there are no other processes. Requires: setup outlives it.
  SlowWatch(const Setup& setup, const comm::Communicator* others, Report report, WorkRatios work_ratios)
      : setup_(setup), others_(others), report_(std::move(report)), work_ratios_(std::move(work_ratios)) {}

  [[nodiscard]] bool has_events() const override { return !unsent_.empty(); }
  void after_step(const SeenStep& step) override;

 private:
  enum class What { kDevice, kData, kSum };
  struct Watched {
    What what = What::kDevice;
    ReplicaId replica{0};  // of a device
    DeviceId device{0};

    auto operator<=>(const Watched&) const = default;
  };
  struct Changed {
    Watched watched;
    double beside_s = 0;  // added to the time before the comparison, so that a short time that doubles is not reported
    tune::Slowness::Change change;
  };

  void begin_plan(const Plan& plan);
  void send_events();
  void watch(const SeenStep& step);
  void shift_waits(double beside_s);
  void add_event(const Changed& changed, std::int64_t step);
  [[nodiscard]] nlohmann::ordered_json location_of(const Watched& watched) const;
  [[nodiscard]] std::string others_as_before() const;

  const Setup& setup_;
  const comm::Communicator* others_;
  Report report_;
  WorkRatios work_ratios_;
  Plan plan_;
  tune::Slowness computing_;    // of the device that takes longest
  double beside_before_s_ = 0;  // computing_'s normal time with the plan before, until that of this plan is known
  std::map<Watched, tune::Slowness> watched_;
  nlohmann::ordered_json unsent_ = nlohmann::ordered_json::array();
};

}  // namespace sluice::train
