// server_thread: the thread in which a parameter server serves its workers (ps/net/network_server.h), so that they
// never wait for an evaluation or a checkpoint, and the queue of updates that it has made, for the loop. Where the run
// ends early it takes the servers' state at once: one that keeps shards only may not wait for the loop. Where it is
// done the thread stays until stop(), for servers that wait until all is saved. Not here: how the server begins, and
// what becomes of its updates (served_workers.h). Threads: hand_over(), on_event() and wants_state() are the server's,
// and until start() the loop's; the others are the loop's. Errors: none; failure() is what has ended the thread.
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
    std::vector<ps::WorkerEvent> events;  // since the one before
  };
  // Of the servers where the run has ended early; nothing: it is not to be saved. Called in the thread.
  using TakeState = std::function<std::optional<ps::ServerState>(const std::optional<Error>& failure)>;

  explicit ServerThread(const Setup& setup) : setup_(setup) {}  // `setup` outlives it
  ~ServerThread() { stop(); }
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;

  // Once. The server outlives the thread.
  void start(ps::NetworkServer& network, TakeState take_state);
  [[nodiscard]] bool has_started() const { return network_ != nullptr; }
  // Until it has ended; its workers are told that the server has failed where nothing else has ended the run.
  void stop();

  void hand_over(std::optional<ps::NetworkUpdate> update);
  void on_event(const ps::WorkerEvent& event);
  // The loop will evaluate or save after this update.
  [[nodiscard]] bool wants_state(const ps::ServerProgress& before, const ps::ServerProgress& after);

  // In order; nothing: there is none left, and the thread has ended.
  [[nodiscard]] std::optional<MadeUpdate> wait_for_update();
  // With the next update that can have it.
  void want_state() { wants_state_ = true; }
  // Of the newest update that waits for the loop, if any does: what it could not be handed over with.
  void complete_newest(const std::function<void(ps::NetworkUpdate&)>& complete);
  [[nodiscard]] std::vector<ps::WorkerEvent> take_events();
  // Nothing: it has not ended, it was asked to stop, or the run is done.
  [[nodiscard]] std::optional<Error> failure() const;
  // What TakeState gave, once the thread has ended; only once.
  [[nodiscard]] std::optional<ps::ServerState> take_last_state() { return std::exchange(last_state_, std::nullopt); }

 private:
  void serve();
  void keep_alive_for_others();
  [[nodiscard]] ps::Over serve_until_over();

  const Setup& setup_;
  ps::NetworkServer* network_ = nullptr;  // null: it has not started
  TakeState take_state_;
  std::atomic<bool> wants_state_ = false;
  std::atomic<bool> must_stop_ = false;
  std::optional<ps::ServerState> last_state_;  // the thread's until it has ended
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<MadeUpdate> made_;  // guarded by mutex_, as what follows
  int states_ = 0;               // among them
  std::vector<ps::WorkerEvent> events_;
  bool has_ended_ = false;
  std::optional<Error> failure_;
  std::thread thread_;
};

}  // namespace sluice::train
