#include "train/run/carried.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "report/metrics_writer.h"
#include "train/run/survivor.h"

namespace sluice::train {

namespace {

ResumePoint point_after_loss(const KeptState& state, const storage::RunDir& run_dir) {
  const std::string source = concat("the state after step ", state.progress.steps_done);
  ResumePoint point{source, state.contents, RunState::from_json(state.contents.state, source)};
  point.state.metrics = report::position_after_step(run_dir.metrics_file(), state.progress.steps_done);
  point.contents.state = point.state.to_json();
  return point;
}

}  // namespace

ResumePoint begin_in_group(const TrainRunOptions& options, Carried& carried) {
  if (!carried.run_dir) {
    carried.run_dir.emplace(take_over(carried.run_dir_id, options.run_dir, options.config_file));
    log_to_file(carried.run_dir->log_file());
    for (const comm::Loss& loss : carried.news.lost)  // that were logged before
      log_info("the run goes on without process ", loss.member, " (host ", loss.host, "): ", loss.cause);
  }
  return point_after_loss(*carried.state, *carried.run_dir);
}

void catch_up(const storage::RunDir& run_dir, const Carried& carried, report::Reporter& reporter) {
  const Progress& progress = carried.state->progress;
  const auto lacks = [&](const char* event) {
    const auto newest = report::last_event(run_dir.metrics_file(), event);
    return !newest || newest->value("step", std::int64_t{0}) < progress.steps_done;
  };
  const auto& [step, spans, evaluation] = carried.last;
  if (step && step->step == progress.steps_done && lacks("step")) reporter.step(*step, spans, /*ends_interval=*/false);
  if (evaluation && evaluation->step == progress.steps_done && !progress.evaluation_due && lacks("eval"))
    reporter.eval(*evaluation);
}

void go_on_in(const storage::RunDir& run_dir, const storage::CheckpointStore& checkpoints, std::int64_t steps_done,
              LoopOptions& options) {
  const std::vector<std::int64_t> saved = checkpoints.steps();
  options.resumed_from =
      saved.empty() ? std::filesystem::path() : run_dir.checkpoints_dir() / storage::checkpoint_name(saved.front());
  options.is_saved = !saved.empty() && saved.front() == steps_done;
  if (const auto digest = report::last_event(run_dir.metrics_file(), "digest"))
    options.digested_step = digest->value("step", std::int64_t{0});
}

namespace {

// Fewer processes than replicas.min are left.
[[noreturn]] void save_and_end(const Peers& peers, const TrainRunOptions& options, Carried& carried) {
  const int left = peers.process().processes;
  const std::string why =
      concat(left == 1 ? "one process is" : concat(left, " processes are"), " left, fewer than replicas.min");
  if (!peers.keeps_records()) throw PeerError(why, "; another process saves the state");
  if (!carried.run_dir) carried.run_dir.emplace(take_over(carried.run_dir_id, options.run_dir, options.config_file));
  const storage::RunDir& run_dir = *carried.run_dir;
  storage::CheckpointStore checkpoints(run_dir.checkpoints_dir(), std::numeric_limits<int>::max());
  const std::int64_t step = carried.state->progress.steps_done;
  const std::vector<std::int64_t> saved = checkpoints.steps();
  if (saved.empty() || saved.front() < step) checkpoints.save(step, point_after_loss(*carried.state, run_dir).contents);
  throw PeerError(why, "; the state after step ", step, " is saved: start the run again with --resume auto");
}

}  // namespace

void form_next_group(Peers& peers, const Setup& setup, const TrainRunOptions& options, Carried& carried) {
  peers.regroup(carried.state ? carried.state->progress.steps_done : comm::kNoState);
  carried.news.add(peers.take_news());
  if (!peers.keeps_records()) carried.run_dir.reset();
  if (peers.process().processes < setup.config.replicas.min) save_and_end(peers, options, carried);
}

}  // namespace sluice::train
