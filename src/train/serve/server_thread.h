// server_thread: the thread in which a parameter server serves its workers (ps/net/network_server.h), with a queue of
// updates for the loop, so that workers never wait for evaluations or checkpoints. An early end takes the state at
// once, because shard servers cannot wait for the loop. Threads: hand_over(), on_event() and wants_state() belong to
// the loop until start(), then to the server; all others to the loop. Errors: none; failure() returns what ended the
// thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "ps/net/network_server.h"
#include "train/setup/setup.h"

namespace sluice::train {

class ServerThread {
 public:
  struct MadeUpdate {
    ps::NetworkUpdate update;
    std::vector<ps::WorkerEvent> events;
  };
  // Takes the servers' state after an early end; nullopt if it must not be saved. Called in the thread.
  using TakeState = std::function<std::optional<ps::ServerState>(const std::optional<Error>& failure)>;

  explicit ServerThread(const Setup& setup) : setup_(setup) {}  // requires: `setup` outlives it
  ~ServerThread() { stop(); }
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;

  void start(ps::NetworkServer& network, TakeState take_state);
  [[nodiscard]] bool has_started() const { return network_ != nullptr; }
  // Waits for the thread's end. If the run has not ended otherwise, the workers get a server failure.
  void stop();

  void hand_over(std::optional<ps::NetworkUpdate> update);
  void on_event(const ps::WorkerEvent& event);
  [[nodiscard]] bool wants_state(const ps::ServerProgress& before, const ps::ServerProgress& after);

  // In order; nullopt once the queue is empty and the thread has ended.
  [[nodiscard]] std::optional<MadeUpdate> wait_for_update();
  void want_state() { wants_state_ = true; }
  // Adds to the newest queued update, if any, what was unknown when it was queued.
  void complete_newest(const std::function<void(ps::NetworkUpdate&)>& complete);
  [[nodiscard]] std::vector<ps::WorkerEvent> take_events();
  // nullopt: not ended, asked to stop, or the run is done.
  [[nodiscard]] std::optional<Error> failure() const;
  [[nodiscard]] std::optional<ps::ServerState> take_last_state() { return std::exchange(last_state_, std::nullopt); }

 private:
  void serve();
  void keep_alive_for_others();
  [[nodiscard]] ps::Over serve_until_over();

  const Setup& setup_;
  ps::NetworkServer* network_ = nullptr;
  TakeState take_state_;
  std::atomic<bool> wants_state_ = false;
  std::atomic<bool> must_stop_ = false;
  std::optional<ps::ServerState> last_state_;  // the thread's until its end
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<MadeUpdate> made_;  // guarded by mutex_, like the members below
  int states_ = 0;
  std::vector<ps::WorkerEvent> events_;
  bool has_ended_ = false;
  std::optional<Error> failure_;
  std::thread thread_;
};

}  // namespace sluice::train
