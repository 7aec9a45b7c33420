#include "train/setup/peers.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "core/concat.h"
#include "core/log.h"
#include "core/own_time.h"
#include "core/text.h"
#include "pipeline/failure.h"
#include "train/setup/agreement.h"

namespace sluice::train {
namespace {

using std::chrono::milliseconds;

// Ends any wait. A busy process may take long; heartbeats show that it lives, and it detects its own hanging step.
constexpr std::chrono::minutes kOperationTimeout{30};
constexpr milliseconds kConnect{20000};
constexpr milliseconds kBetweenTries{500};  // to connect to a run that goes on
// Time for this process to fail by itself after a loss. It is short after a hang, which has already been waited for.
constexpr milliseconds kGrace{10000};
constexpr milliseconds kGraceWhenHung{1000};
// Limit for each of two saves: one in progress at the loss, and one that the loss triggers.
constexpr milliseconds kLongestSave{60000};
// A backend may notice a lost process before the control connection does, and its error may arrive before the reason.
constexpr std::chrono::seconds kInquest{5};

milliseconds in_ms(double seconds) { return milliseconds(static_cast<std::int64_t>(seconds * 1000)); }

milliseconds grace_after(comm::LostProcess::How how) {
  if (how == comm::LostProcess::How::kStopped) return milliseconds(0);
  return how == comm::LostProcess::How::kHung ? kGraceWhenHung : kGrace;
}

Error as_peer_error(const comm::LostProcess& lost) {
  if (lost.how == comm::LostProcess::How::kFailed) return PeerError(lost.describe());
  if (lost.how == comm::LostProcess::How::kStopped) return InterruptedError(lost.describe());
  return PeerError(lost.describe(), "; start all ranks again with --resume auto");
}

// Ends the process after kLongestSave even if a disk blocks the work before the end.
void end_later(const EndProcess& end_process, const Error& error) {
  try {
    std::thread([end_process, error] {
      (void)OwnLimit(kLongestSave).retry(kShortWait, [] { return false; });
      end_process(error);
    }).detach();
  } catch (const std::system_error&) {  // the process ends when the work before its end is done
  }
}

void log_meeting_point(const comm::World& world, double limit_s) {
  const std::string meeting_point = world.meeting_file.empty() ? concat("at ", world.address, ":", world.port)
                                                               : concat("through file ", world.meeting_file.string());
  if (world.rank == 0) {
    log_info("waiting for ", counted(world.size - 1, "other process"), " ", meeting_point, ", for at most ",
             human_duration(limit_s));
  } else {
    log_info("rank ", world.rank, " of ", world.size, ": connecting to rank 0 ", meeting_point);
  }
}

}  // namespace

void log_how_started(const comm::World& world) {
  if (!world.remark.empty()) log_warning(world.remark);
  if (world.rank == 0 && !world.launcher.empty())
    log_info(counted(world.size, "process"), ", according to ", world.launcher);
}

ProcessRank process_rank(const comm::World& world) {
  return {.rank = world.rank,
          .processes = world.size,
          .local_rank = std::max(world.local_rank, 0),
          .local_size = std::max(world.local_size, 1),
          .cores = world.cores,
          .spans_machines = world.spans_machines};
}

comm::LivenessOptions liveness_options(const config::Config& config) {
  return {.peer_timeout = in_ms(config.replicas.hang_timeout_s),
          .connect_timeout = std::min(in_ms(config.replicas.connect_timeout_s), kConnect)};
}

void send_failure_to_peers(const comm::World& world, const Error& why) {
  if (world.is_single()) return;
  try {
    const comm::Processes processes(world, {}, {.connect = kConnect, .operation = kConnect}, [&] { throw Error(why); });
  } catch (const std::exception&) {  // `why`, or no process is there to receive it
  }
}

Peers::Peers(Launch launch, const config::Config& config, const std::function<void(bool rank_0)>& prepare)
    : launch_(std::move(launch)),
      connect_timeout_s_(config.replicas.connect_timeout_s),
      agreement_(agreement_of(config, launch_.version)),
      liveness_options_(liveness_options(config)),
      stopper_(before_training_.watch([this](const InterruptedError& why) { stop(why); })) {
  if (launch_.world.is_single()) {
    prepare(/*rank_0=*/true);
  } else {
    connect(config.replicas.elastic, prepare);
  }
}

void Peers::connect(bool is_elastic, const std::function<void(bool rank_0)>& prepare) {
  const comm::World& world = launch_.world;
  // Rank 0 would listen at the meeting point before it looks there.
  if (is_elastic && world.rank == 0 && !world.is_hosted) door_note_ = comm::find_door(world);
  if (door_note_) {
    prepare(/*rank_0=*/false);
    return check_settings();
  }
  if (is_elastic) connections_ = std::make_shared<comm::OwnConnections>();
  const auto prepare_and_say = [&] {
    prepare(world.rank == 0);
    log_meeting_point(world, connect_timeout_s_);
  };
  const comm::TimeLimits limits{.connect = in_ms(connect_timeout_s_), .operation = kOperationTimeout};
  processes_.emplace(world, agreement_, limits, prepare_and_say, comm::Regrouping{.connections = connections_});
  if (processes_->door()) {
    door_note_ = comm::DoorNote::from_text(*processes_->door());
    if (!door_note_) throw PeerError("a run of another version of Sluice goes on at this meeting point");
    processes_.reset();
    return check_settings();
  }
  process_ = process_rank(processes_->world());
  member_ = world.rank;
  own_address_ = comm::address_of_process(processes_->world());
  if (is_elastic) {
    membership_ = std::make_unique<comm::Membership>(processes_->world(), board(), liveness_options_,
                                                     [this] { shut_connections_down(); });
    connections_->leave_out(control_port());
  } else {
    watch_lost_process(liveness_options_);
  }
  together([this] { communicator_ = processes_->make_communicator("the processes of the run"); });
  log_info("rank ", world.rank, " of ", world.size, ": all processes are connected");
}

void Peers::check_settings() const {
  const auto found = comm::first_disagreement(agreement_, door_note_->settings);
  if (!found) return;
  throw ConfigError(found->key, " is ", found->one, " in this process, but ", found->other,
                    " in the run that goes on at its meeting point; make them equal to join that run, or choose "
                    "another meeting point (MASTER_PORT, --init) to start a new one");
}

void Peers::join() {
  comm::World world = launch_.world;
  world.rank = 1;  // not the one that listens at the meeting point
  const auto connect = [&] {
    try {
      world.address = comm::SocketAddress::from_text(door_note_->invitation.address).address;
      membership_ = std::make_unique<comm::Membership>(world, door_note_->invitation, liveness_options_,
                                                       [this] { shut_connections_down(); });
    } catch (const PeerError& error) {
      log_debug("cannot connect to the run yet: ", error.what());
      if (auto note = comm::find_door(launch_.world)) door_note_ = std::move(note);
      check_settings();
    }
    return membership_ != nullptr;
  };
  const milliseconds limit = in_ms(connect_timeout_s_);
  if (!OwnLimit(limit, liveness_options_.connect_timeout + comm::kLongestTry).retry(kBetweenTries, connect)) {
    throw PeerError("cannot join the run: its processes did not answer within ", seconds_text(limit),
                    "; if it has ended, start all processes again with --resume auto, else check firewalls");
  }
  member_ = membership_->self();
  data_ = door_note_->data;
  own_address_ = comm::address_of_process(world);
  process_.local_rank = launch_.world.local_rank;
  process_.local_size = launch_.world.local_size;
  log_info("joining the run as process ", member_, "; waiting for its current step to end");
  regroup(comm::kNoState);
  before_training_.training_begins();  // from now on a signal ends the run of all
}

void Peers::open_door(const comm::Agreement& data) {
  if (!membership_) return;
  data_ = data;
  renew_door(/*in_store=*/launch_.world.meeting_file.empty());
}

// in_store: rank 0 serves the store at the meeting point, which it does until the first regroup.
void Peers::renew_door(bool in_store) {
  if (launch_.world.is_hosted) return;
  const comm::DoorNote note{membership_->invitation(), agreement_, data_, process_.processes};
  if (in_store) {
    if (keeps_records()) processes_->publish(comm::kDoorKey, note.to_text());
    return;
  }
  if (!door_) door_ = std::make_unique<comm::Door>(launch_.world, own_address_);
  door_->renew(note, keeps_records());
}

int Peers::control_port() const { return comm::SocketAddress::from_text(membership_->invitation().address).port; }

void Peers::admit_guests() {
  if (!is_alone()) communicator_->barrier();  // so that no connection ends while another process needs it
  throw GroupChanged("a process joins");
}

comm::NoticeBoard Peers::board() {
  return {.put = [this](const std::string& key, const std::string& text) { processes_->publish(key, text); },
          .get = [this](const std::string& key) { return processes_->look_up(key); }};
}

void Peers::watch_lost_process(const comm::LivenessOptions& options) {
  const comm::MeetingPoint meeting{.publish = [this](const std::string& text) { processes_->publish("control", text); },
                                   .look_up = [this] { return processes_->look_up("control"); }};
  const auto on_lost = [this](const comm::LostProcess& lost) {
    const std::scoped_lock lock(mutex_);
    lost_ = lost;
    changed_.notify_all();
  };
  liveness_ = std::make_unique<comm::Liveness>(processes_->world(), meeting, options, on_lost);
  watch_ = std::jthread([this](const std::stop_token& stop) { end_when_lost(stop); });
}

// Ends every wait for the others, here and, because they see the connections end, in the others.
void Peers::shut_connections_down() {
  const std::scoped_lock lock(mutex_);
  if (connections_) connections_->shut_down();
}

void Peers::regroup(std::int64_t steps_done) {
  has_inquired_ = false;
  for (;;) {
    communicator_.reset();
    processes_.reset();
    const comm::Group group = membership_->regroup(steps_done);
    try {
      return join_group(group);
    } catch (const PeerError& error) {
      log_info(error.what());
      // A process that hangs counts as silent by then.
      if (membership_->wait_for_disturbance(liveness_options_.peer_timeout + kInquest)) continue;
      if (news_.joined.empty()) throw;
      for (const comm::Newcomer& newcomer : std::exchange(news_.joined, {})) membership_->dismiss(newcomer.member);
    }
  }
}

void Peers::join_group(const comm::Group& group) {
  std::vector<int> ranks{group.leader};
  std::ranges::copy_if(group.members, std::back_inserter(ranks), [&](int member) { return member != group.leader; });
  process_.rank = static_cast<int>(std::ranges::find(ranks, member_) - ranks.begin());
  process_.processes = static_cast<int>(ranks.size());
  comm::GroupNews news = membership_->take_news();
  for (const comm::Loss& loss : news.lost)
    log_warning("lost process ", loss.member, " (host ", loss.host, "): ", loss.cause);
  for (const comm::Newcomer& newcomer : news.joined)
    log_info("process ", newcomer.member, " (host ", newcomer.host, ") joins");
  news_.add(std::move(news));
  log_info(counted(process_.processes, "process"), is_alone() ? " goes" : " go", " on after step ", group.steps_done);
  if (is_alone()) return renew_door();
  comm::World world = launch_.world;
  world.rank = process_.rank;
  world.size = process_.processes;
  world.local_rank = process_.local_rank;
  world.local_size = process_.local_size;
  world.address = own_address_;
  world.meeting_file.clear();
  world.is_hosted = false;
  const comm::MeetingPoint meeting{.publish = [this](const std::string& text) { membership_->publish_text(text); },
                                   .look_up = [this] { return membership_->wait_for_text(); }};
  {
    const std::scoped_lock lock(mutex_);
    connections_ = std::make_shared<comm::OwnConnections>();
    connections_->leave_out(control_port());
    connections_->leave_out(launch_.world.port);  // of the door
  }
  if (membership_->is_disturbed()) shut_connections_down();
  const comm::TimeLimits limits{.connect = kConnect, .operation = kOperationTimeout};  // all are there
  processes_.emplace(
      world, agreement_, limits, [] {}, comm::Regrouping{meeting, connections_});
  communicator_ = processes_->make_communicator("the processes of the run");
  process_ = process_rank(processes_->world());
  renew_door();
}

bool Peers::changes_group(const Error& failure) {
  if (!membership_ || failure.exit_code() != ExitCode::kPeer) return false;
  if (dynamic_cast<const GroupChanged*>(&failure) != nullptr) return true;
  const milliseconds wait = std::exchange(has_inquired_, true) ? milliseconds(0) : milliseconds(kInquest);
  const bool is_lost = membership_->wait_for_disturbance(wait);
  if (const auto why = membership_->why_stopped()) throw InterruptedError(*why);
  return is_lost;
}

Peers::~Peers() {
  stopper_ = {};  // joins the thread
  watch_ = {};
  membership_.reset();
  liveness_.reset();  // before the members that its callback uses are destroyed
}

nlohmann::ordered_json Peers::run(const std::function<nlohmann::ordered_json()>& body) {
  nlohmann::ordered_json result;
  std::optional<InterruptedError> interrupted;
  together([&] {
    try {
      result = body();
    } catch (const InterruptedError& error) {
      interrupted = error;
    }
    if (!is_alone()) part();
  });
  if (interrupted) throw InterruptedError(*interrupted);
  return result;
}

void Peers::together(const std::function<void()>& action) {
  if (is_alone()) return action();
  try {
    action();
  } catch (const InterruptedError&) {
    throw;
  } catch (const GroupChanged&) {
    throw;
  } catch (const Error& error) {
    if (changes_group(error)) throw GroupChanged(error.what());
    end(explain(error));
  } catch (...) {
    end(explain(pipeline::describe_failure(std::current_exception(), "training")));
  }
}

std::unique_lock<std::timed_mutex> Peers::hold() { return std::unique_lock(held_); }

void Peers::before_end(BeforeEnd act) {
  const std::scoped_lock lock(before_end_mutex_);
  before_end_ = std::move(act);
}

void Peers::part() {
  try {
    communicator_->barrier();
  } catch (const PeerError& error) {
    if (!changes_group(error)) throw;
    log_warning("a process was lost at the end of the run; if it was rank 0, its last checkpoint may be missing");
  }
  {
    const std::scoped_lock lock(mutex_);
    has_parted_ = true;
  }
  if (membership_) return membership_->leave();
  liveness_->leave();
}

void Peers::stop(const InterruptedError& why) {
  if (liveness_) liveness_->stop(why.what());
  if (membership_) membership_->stop(why.what());
  end(why);
}

void Peers::end(const Error& error, const comm::LostProcess* lost) {
  if (error.exit_code() == ExitCode::kInterrupted) before_training_.discard();
  {
    const std::scoped_lock lock(before_end_mutex_);
    if (before_end_) before_end_(lost);
  }
  launch_.end_process(error);
}

std::optional<comm::LostProcess> Peers::loss_behind(const Error& failure) {
  if (failure.exit_code() != ExitCode::kPeer || !liveness_) return std::nullopt;
  return liveness_->wait_for_lost(std::exchange(has_inquired_, true) ? std::chrono::seconds(0) : kInquest);
}

Error Peers::explain(const Error& failure) {
  if (const auto lost = loss_behind(failure)) return as_peer_error(*lost);
  liveness_ ? liveness_->fail(failure.what()) : membership_->fail(failure.what());
  return failure;
}

void Peers::end_when_lost(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait(lock, stop, [this] { return lost_.has_value(); })) return;
  const milliseconds grace = grace_after(lost_->how);
  wait_own_time(changed_, lock, grace, [&] { return has_parted_ || stop.stop_requested(); });
  if (stop.stop_requested() || has_parted_) return;
  const comm::LostProcess lost = *lost_;
  lock.unlock();
  std::unique_lock held(held_, std::defer_lock);
  (void)OwnLimit(kLongestSave).retry(milliseconds(0), [&] { return held.try_lock_for(kShortWait); });
  const Error error = as_peer_error(lost);
  end_later(launch_.end_process, error);
  end(error, held.owns_lock() ? &lost : nullptr);
}

}  // namespace sluice::train
