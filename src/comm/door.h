// door: where a process that starts while an elastic run goes on finds the run. The door is at the meeting point of the
// run's start (World::address or World::meeting_file), so that the same command joins. Nothing is encrypted.
// Threads: any. A Door has one of its own; its destructor waits for it, at most a few seconds. Errors: none; failures
// are logged at debug level, and tried again each second.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "comm/control_mesh.h"
#include "comm/start.h"
#include "comm/world.h"

namespace sluice::comm {

struct DoorNote {
  Invitation invitation;
  Agreement settings, data;  // that a guest must have, too
  int processes = 0;         // of the run

  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] static std::optional<DoorNote> from_text(const std::string& text);
};

// The note of a run that goes on at the meeting point of `world`, if one can be reached now.
[[nodiscard]] std::optional<DoorNote> find_door(const World& world);

class Door {
 public:
  // Keeps a note at the meeting point of `world`: serves it there if this machine has the address and no process
  // listens. If another one listens there, the leader gives it the note, because a process that has just started waits
  // there for others. With a meeting file, only the leader serves. own_address: of this machine.
  Door(const World& world, std::string own_address);
  ~Door();
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  // Replaces the note. leads: this process is rank 0.
  void renew(const DoorNote& note, bool leads);

 private:
  struct Wanted {
    std::string note;
    bool leads = false;
    int number = 0;  // of renewals
  };

  struct Served;

  void keep(const std::stop_token& stop);
  void put(const Wanted& wanted);
  void serve();
  void give_to_listener(const std::string& note);

  World world_;
  std::string own_address_;
  std::mutex mutex_;
  std::condition_variable_any renewed_;
  Wanted wanted_;  // guarded by mutex_
  // Used only by the thread:
  std::unique_ptr<Served> served_;
  bool tells_listener_ = true;
  std::jthread thread_;  // last: uses the other members
};

}  // namespace sluice::comm
