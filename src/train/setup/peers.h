// peers: finds and watches the other processes of a run, and turns a failure among them into one sentence that names
// the lost process. Threads: one, besides its own. Errors: those of comm/processes.h and comm/liveness.h.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "comm/door.h"
#include "comm/liveness.h"
#include "comm/membership.h"
#include "comm/own_connections.h"
#include "comm/processes.h"
#include "config/config.h"
#include "core/error.h"
#include "train/setup/setup.h"
#include "train/setup/stop_before_training.h"

namespace sluice::train {

// Ends this process with an error, from any thread; does not return.
using EndProcess = std::function<void(const Error&)>;

struct Launch {
  comm::World world;
  std::string version;
  EndProcess end_process;
};

void log_how_started(const comm::World& world);

[[nodiscard]] ProcessRank process_rank(const comm::World& world);

[[nodiscard]] comm::LivenessOptions liveness_options(const config::Config& config);

// Sends a failure that happens before Peers exists, such as an unreadable configuration, to the waiting processes.
void send_failure_to_peers(const comm::World& world, const Error& why);

// With replicas.elastic: a process of the group is lost, or one joins. All members stop training and call
// Peers::regroup().
struct GroupChanged : PeerError {
  using PeerError::PeerError;
};

class Peers {
 public:
  // Returns when all processes have connected and agree, or when this one has found a run that goes on (is_guest()).
  // prepare: as in comm::Processes, before the first wait. rank_0: whether this process can become rank 0.
  Peers(Launch launch, const config::Config& config, const std::function<void(bool rank_0)>& prepare);
  ~Peers();
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // Its configuration is that of the run. It is alone until join().
  [[nodiscard]] bool is_guest() const { return door_note_.has_value() && !membership_; }
  [[nodiscard]] const comm::DoorNote& door_note() const { return *door_note_; }
  // Waits until the run takes this guest in, between two steps. PeerError if the run ends before.
  void join();
  // With replicas.elastic: from now on guests may join. data: that a guest must have, too.
  void open_door(const comm::Agreement& data);

  [[nodiscard]] bool is_alone() const { return process_.processes == 1; }
  [[nodiscard]] const ProcessRank& process() const { return process_; }
  [[nodiscard]] bool keeps_records() const { return process_.rank == 0; }
  [[nodiscard]] comm::Processes* processes() { return is_alone() ? nullptr : &*processes_; }
  [[nodiscard]] const comm::Communicator& communicator() const { return *communicator_; }
  [[nodiscard]] const comm::Communicator* others() const { return communicator_.get(); }  // null if alone

  // Runs an action that communicates. A failure other than InterruptedError ends the process without destructors, which
  // might wait for operations that peers never complete.
  void together(const std::function<void()>& action);

  // Turns a communication failure into the loss behind it; sends other failures to the peers. Requires: not alone.
  [[nodiscard]] Error explain(const Error& failure);
  // The loss behind a communication failure, if any; the first call waits briefly. Requires: not alone; on the thread
  // of together().
  [[nodiscard]] std::optional<comm::LostProcess> loss_behind(const Error& failure);

  // Forms the next group, which may be this process alone. Requires: nothing uses processes() or communicator().
  // steps_done: as in comm/membership.h. PeerError if this process cannot go on.
  void regroup(std::int64_t steps_done);
  // Since the last call.
  [[nodiscard]] comm::GroupNews take_news() { return std::exchange(news_, {}); }
  // With replicas.elastic, whether a failure is GroupChanged or comes from the loss of a process; the first call waits
  // briefly. InterruptedError if that process was stopped before training.
  [[nodiscard]] bool changes_group(const Error& failure);
  // A guest waits. True in one process.
  [[nodiscard]] bool has_guests() const { return membership_ && membership_->has_guests(); }
  // All members call it together after a step, once has_guests() was true in one of them. Throws GroupChanged.
  [[noreturn]] void admit_guests();

  // Hold it while state changes or files are written: the loss of a peer then ends this process only after a while.
  [[nodiscard]] std::unique_lock<std::timed_mutex> hold();

  // Called on the thread that ends this process after a failure. lost: the loss, if this thread could take hold(); else
  // null. An empty function removes the callback. The call returns once a running callback has finished.
  using BeforeEnd = std::function<void(const comm::LostProcess* lost)>;
  void before_end(BeforeEnd act);

  // Until training begins, a StopSignal ends all processes at once, including one that is still preparing.
  [[nodiscard]] StopBeforeTraining& before_training() { return before_training_; }

  // Runs this process's part. A planned or interrupted end waits for all peers; a failure ends the process at once, and
  // its error names the failed peer.
  nlohmann::ordered_json run(const std::function<nlohmann::ordered_json()>& body);

 private:
  void connect(bool is_elastic, const std::function<void(bool rank_0)>& prepare);
  [[nodiscard]] comm::NoticeBoard board();
  void watch_lost_process(const comm::LivenessOptions& options);
  void join_group(const comm::Group& group);
  void shut_connections_down();
  void renew_door(bool in_store = false);
  void check_settings() const;
  [[nodiscard]] int control_port() const;
  void part();
  void stop(const InterruptedError& why);
  void end(const Error& error, const comm::LostProcess* lost = nullptr);
  void end_when_lost(const std::stop_token& stop);

  Launch launch_;
  double connect_timeout_s_;
  comm::Agreement agreement_;
  comm::LivenessOptions liveness_options_;
  StopBeforeTraining before_training_;
  ProcessRank process_;
  int member_ = 0;  // number of this process in its membership
  std::string own_address_;
  comm::GroupNews news_;
  comm::Agreement data_;  // open_door()
  std::optional<comm::DoorNote> door_note_;
  std::optional<comm::Processes> processes_;
  std::shared_ptr<comm::Communicator> communicator_;
  std::timed_mutex held_;
  std::mutex before_end_mutex_;
  BeforeEnd before_end_;  // guarded by before_end_mutex_
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<comm::LostProcess> lost_;              // guarded by mutex_
  bool has_parted_ = false;                            // guarded by mutex_; set when processes may end freely
  bool has_inquired_ = false;                          // loss_behind() has waited
  std::unique_ptr<comm::Liveness> liveness_;           // without replicas.elastic
  std::unique_ptr<comm::Membership> membership_;       // with it
  std::shared_ptr<comm::OwnConnections> connections_;  // of the group; guarded by mutex_
  std::unique_ptr<comm::Door> door_;
  std::jthread watch_;
  std::jthread stopper_;
};

}  // namespace sluice::train
