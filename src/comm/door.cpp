#include "comm/door.h"

#include <chrono>
#include <memory>
#include <utility>

#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/meeting_file.h"
#include "comm/socket_address.h"
#include "comm/store.h"
#include "core/error.h"
#include "core/log.h"
#include "core/own_time.h"
#include "core/text.h"

namespace sluice::comm {

struct Door::Served {
  c10::intrusive_ptr<c10d::Store> store;
  std::unique_ptr<MeetingFile> file;  // null unless the processes meet by one
};

namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;
using StorePointer = c10::intrusive_ptr<c10d::Store>;

constexpr milliseconds kRetryInterval{1000};
constexpr milliseconds kAnswerTimeout{2000};

// The store of the process that listens at the meeting point now; null if no process does.
StorePointer reach(const World& world) {
  SocketAddress point{world.address, world.port};
  std::string run;
  if (!world.meeting_file.empty()) {
    const auto meeting = read_meeting(world.meeting_file);
    if (!meeting || is_out_of_reach(*meeting)) return nullptr;
    point = {meeting->address, meeting->port};
    run = meeting->run;
  }
  OwnLimit once{milliseconds(0)};
  const FoundListener found = find_listener(point.address, point.port, once);
  if (found.address.empty()) return nullptr;
  StorePointer store =
      open_store({found.address, point.port, world.attempt}, kNoListener, kAnswerTimeout, kAnswerTimeout);
  if (!store) throw PeerError("the process at ", found.address, ":", point.port, " does not answer");
  return run.empty() || store->check({meeting_key(run)}) ? store : nullptr;
}

}  // namespace

std::string DoorNote::to_text() const {
  return Json{{"address", invitation.address},
              {"token", invitation.token},
              {"settings", settings},
              {"data", data},
              {"processes", processes}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<DoorNote> DoorNote::from_text(const std::string& text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    return DoorNote{.invitation = {json.at("address"), json.at("token")},
                    .settings = json.at("settings").get<Agreement>(),
                    .data = json.at("data").get<Agreement>(),
                    .processes = json.at("processes")};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::optional<DoorNote> find_door(const World& world) {
  try {
    const StorePointer store = reach(world);
    if (store && store->check({kDoorKey})) return DoorNote::from_text(text_in(*store, kDoorKey));
  } catch (const std::exception& error) {
    log_debug("no run at the meeting point: ", first_line(error.what()));
  }
  return std::nullopt;
}

Door::Door(const World& world, std::string own_address)
    : world_(world),
      own_address_(std::move(own_address)),
      thread_([this](const std::stop_token& stop) { keep(stop); }) {}

Door::~Door() = default;

void Door::renew(const DoorNote& note, bool leads) {
  const std::scoped_lock lock(mutex_);
  wanted_ = {note.to_text(), leads, wanted_.number + 1};
  renewed_.notify_all();
}

void Door::keep(const std::stop_token& stop) {
  for (int number = 0; !stop.stop_requested();) {
    std::unique_lock lock(mutex_);
    renewed_.wait_for(lock, stop, kRetryInterval, [&] { return wanted_.number != number; });
    const Wanted wanted = wanted_;
    lock.unlock();
    tells_listener_ |= wanted.number != number;
    number = wanted.number;
    if (number > 0) put(wanted);
  }
  served_.reset();
}

void Door::put(const Wanted& wanted) {
  const bool by_file = !world_.meeting_file.empty();
  if (by_file && !wanted.leads) return served_.reset();
  try {
    // The file may be that of a rank 0 that has just started.
    if (served_ && served_->file && !served_->file->is_there()) served_.reset();
    if (!served_ && by_file) give_to_listener(wanted.note);
    if (!served_) serve();
    put_text(*served_->store, kDoorKey, wanted.note);  // each time: a process that was dropped may write once more
  } catch (const std::exception& error) {
    log_debug("cannot listen at the meeting point: ", first_line(error.what()));
    served_.reset();
    if (wanted.leads && !by_file) give_to_listener(wanted.note);
  }
}

// Throws if this process cannot serve there.
void Door::serve() {
  const bool by_file = !world_.meeting_file.empty();
  const int listener = listen_on(by_file ? own_address_ : world_.address, by_file ? kAnyPort : world_.port);
  const SocketAddress here = own_address(listener);
  auto served = std::make_unique<Served>(
      open_store({here.address, here.port, world_.attempt}, listener, kAnswerTimeout, kAnswerTimeout));
  if (!served->store) throw PeerError("the store does not answer");
  if (by_file) served->file = lead_to_store(*served->store, here, world_.meeting_file);
  served_ = std::move(served);
}

// To a process that has just started, and waits for others. If the listener does not answer, not again until the note
// is renewed, because LibTorch leaves a thread behind.
void Door::give_to_listener(const std::string& note) {
  if (!tells_listener_) return;
  try {
    if (const StorePointer store = reach(world_)) put_text(*store, kDoorKey, note);
  } catch (const std::exception& error) {
    log_debug("cannot send the note to the process at the meeting point: ", first_line(error.what()));
    tells_listener_ = false;
  }
}

}  // namespace sluice::comm
