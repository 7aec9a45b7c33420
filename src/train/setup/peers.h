// peers: the other processes of a run, as training sees them: finds them, watches over them, and turns whatever goes
// wrong among them into one sentence that names who was lost. With one process there is nobody, and nothing happens.
// Not here: what is exchanged in a step (ddp/), what all begin with (same_start.h).
// Threads: one, besides the one that watches. Errors: those of comm/processes.h and comm/liveness.h.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "comm/liveness.h"
#include "comm/processes.h"
#include "config/config.h"
#include "core/error.h"
#include "train/setup/setup.h"
#include "train/setup/stop_before_training.h"

namespace sluice::train {

// Ends this process with an error, from any thread; does not return.
using EndProcess = std::function<void(const Error&)>;

// How this process was started.
struct Launch {
  comm::World world;
  std::string version;  // of Sluice: the same in all
  EndProcess end_process;
};

// Rank 0 says who started the run; and each what looks like a mistake in that.
void log_how_started(const comm::World& world);

[[nodiscard]] ProcessRank process_rank(const comm::World& world);

// How patient a run of this configuration is with its processes.
[[nodiscard]] comm::LivenessOptions liveness_options(const config::Config& config);

// Of a process that cannot even read its configuration: those that wait for it hear why.
void send_failure_to_peers(const comm::World& world, const Error& why);

class Peers {
 public:
  // Returns when all processes are there and agree on what they run. prepare: as comm::Processes has it; it runs before
  // anybody is waited for.
  Peers(Launch launch, const config::Config& config, const std::function<void()>& prepare);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  [[nodiscard]] bool is_alone() const { return process_.processes == 1; }
  [[nodiscard]] const ProcessRank& process() const { return process_; }
  // One process of the run writes its records and checkpoints.
  [[nodiscard]] bool keeps_records() const { return process_.rank == 0; }
  [[nodiscard]] comm::Processes* processes() { return is_alone() ? nullptr : &*processes_; }
  // Of all processes, for what is not part of a step. Requires: not alone.
  [[nodiscard]] const comm::Communicator& communicator() const { return *communicator_; }

  // Runs what needs the others. A failure (but not InterruptedError) ends the process at once, before what the caller
  // has made is destroyed: operations that the others will not complete may hold it.
  void together(const std::function<void()>& action);

  // A failure of communication as the loss of the process behind it, where there was one; waits a little to learn it.
  // The others are told of any other failure. Requires: not alone.
  [[nodiscard]] Error explain(const Error& failure);
  // The loss behind a failure of communication, if there is one; the first call waits a little to learn it. Requires:
  // not alone. Threads: that of together().
  [[nodiscard]] std::optional<comm::LostProcess> loss_behind(const Error& failure);

  // While it lives, the loss of another process ends this one only after a while: something is being changed or
  // written.
  [[nodiscard]] std::unique_lock<std::timed_mutex> hold();

  // Called before a failure ends this process, on the thread that ends it. lost: the loss, if this thread could take
  // hold(); else null. An empty function removes it; the call returns once a running one has finished.
  using BeforeEnd = std::function<void(const comm::LostProcess* lost)>;
  void before_end(BeforeEnd act);

  // Until training begins a StopSignal ends all processes of the run at once, and this one while it prepares.
  [[nodiscard]] StopBeforeTraining& before_training() { return before_training_; }

  // Runs this process's part. When it ends as planned, or interrupted, waits until the others' has ended too. When it
  // fails, tells them why; when it fails because of another, the error names that one. Both end the process.
  nlohmann::ordered_json run(const std::function<nlohmann::ordered_json()>& body);

 private:
  void part();
  void stop(const InterruptedError& why);
  void end(const Error& error, const comm::LostProcess* lost = nullptr);
  void end_when_lost(const std::stop_token& stop);

  Launch launch_;
  StopBeforeTraining before_training_;
  ProcessRank process_;
  std::optional<comm::Processes> processes_;
  std::shared_ptr<comm::Communicator> communicator_;
  std::timed_mutex held_;
  std::mutex before_end_mutex_;
  BeforeEnd before_end_;  // guarded by before_end_mutex_
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<comm::LostProcess> lost_;  // guarded by mutex_
  bool has_parted_ = false;                // guarded by mutex_; from here on everybody may go
  bool has_inquired_ = false;              // loss_behind() has waited
  std::unique_ptr<comm::Liveness> liveness_;
  std::jthread watch_;
  std::jthread stopper_;
};

}  // namespace sluice::train
