#include "ps/policy/uneven_workers.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "core/error.h"
#include "core/text.h"
#include "ps/policy/coordinator.h"
#include "ps/policy/slice_clock.h"
#include "ps/policy/stragglers.h"
#include "ps/policy/virtual_clock.h"

namespace sluice::ps {
namespace {

constexpr int kMostWorkers = 4096;  // same limit as ps.workers
constexpr std::int64_t kLargestBatch = 1'000'000'000;
constexpr std::int64_t kMostPushes = 1'000'000'000;
constexpr double kLongestRun = 9e9;  // limit of seconds that fit 64-bit nanoseconds
constexpr std::string_view kShiftedExponential = "shifted-exponential";

template <typename... Sentence>
void demand(bool holds, const Sentence&... sentence) {
  if (!holds) throw ConfigError(sentence...);
}

void demand_word(std::string_view option, const std::string& word, const std::vector<std::string>& words) {
  demand(std::ranges::find(words, word) != words.end(), option, " ", word, " is unknown; give one of ",
         join(words, ", "), did_you_mean(word, words));
}

// Checks an option that is valid only with a certain value of another option.
void demand_owner(bool is_given, bool is_owner, std::string_view option, std::string_view owner) {
  demand(!is_given || is_owner, option, " is valid only with ", owner, "; leave it out, or give ", owner);
}

void check_work(const UnevenRequest& request) {
  const std::vector<double>& seconds = request.seconds_per_example;
  demand_word("--sync", request.sync, uneven_sync_names());
  demand(request.workers >= 1 && request.workers <= kMostWorkers, "--workers is ", request.workers, "; give 1 to ",
         kMostWorkers);
  demand(request.base_batch >= 1 && request.base_batch <= kLargestBatch, "--base-batch is ", request.base_batch,
         "; give 1 to ", kLargestBatch, " examples");
  demand(!seconds.empty(), "--seconds-per-example is missing; give the seconds that a worker needs per example");
  demand(seconds.size() == 1 || std::ssize(seconds) == request.workers, "--seconds-per-example has ", seconds.size(),
         " values for ", request.workers, " workers; give one for all, or one for each");
  for (const double s : seconds)
    demand(s > 0 && std::isfinite(s), "--seconds-per-example has ", s, "; give finite numbers above 0");
  demand(request.steps >= 1, "--steps is ", request.steps, "; give 1 or more updates");
}

void check_anytime(const UnevenRequest& request) {
  const bool is_anytime = request.sync == "amb";
  const auto& [limit, slices] = std::pair(request.time_limit_s, request.partitions);
  demand_owner(limit.has_value(), is_anytime, "--amb-time-limit", "--sync amb");
  demand_owner(slices.has_value(), is_anytime, "--partitions", "--sync amb");
  if (!is_anytime) return;
  demand(limit.has_value(), "--sync amb needs a time limit; give --amb-time-limit in seconds");
  demand(slices.has_value(),
         "--sync amb checks the time limit between slices of a batch; give their number, --partitions");
  demand(*limit >= 1e-9 && *limit <= kLongestRun, "--amb-time-limit is ", *limit, "; give seconds above 0, at most ",
         kLongestRun);
  demand(*slices >= 1, "--partitions is ", *slices, "; give 1 or more slices");
  demand(*slices <= request.base_batch, "--partitions ", *slices, " of --base-batch ", request.base_batch,
         " would leave slices without an example; give at most ", request.base_batch);
}

void check_policy_options(const UnevenRequest& request) {
  demand_owner(request.staleness.has_value(), request.sync == "ssp", "--staleness", "--sync ssp");
  demand(request.staleness.value_or(0) >= 0, "--staleness is ", request.staleness.value_or(0),
         "; give 0 or more pushes, or --sync asp for no bound");
  demand_owner(request.quorum.has_value(), request.sync == "quorum", "--quorum", "--sync quorum");
  const int quorum = request.quorum.value_or(1);
  demand(quorum >= 1 && quorum <= request.workers, "--quorum ", quorum, " of --workers ", request.workers,
         " is out of range; give 1 to ", request.workers);
}

void check_stragglers(const UnevenRequest& request) {
  demand_word("--induce", request.induce, induce_names());
  const auto check_time = [&](std::string_view option, std::optional<double> seconds) {
    demand_owner(seconds.has_value(), request.induce == kShiftedExponential, option, "--induce shifted-exponential");
    demand(seconds.value_or(0) >= 0 && std::isfinite(seconds.value_or(0)), option, " is ", seconds.value_or(0),
           "; give finite seconds, 0 or more");
  };
  check_time("--shift", request.shift_s);
  check_time("--mean", request.mean_s);
}

StragglerOptions straggler_options_of(const UnevenRequest& request) {
  StragglerOptions options{.kind = request.induce, .seed = request.seed};
  if (request.induce == kShiftedExponential) options.kind = "exponential";
  options.shift_s = request.shift_s.value_or(options.shift_s);
  options.mean_s = request.mean_s.value_or(options.mean_s);
  return options;
}

std::int64_t slice_of(const UnevenRequest& request) { return request.base_batch / request.partitions.value_or(1); }

// An upper bound of all stalls: an exponential of 53 random bits is at most 36.8 times its mean.
double longest_stall_s(const StragglerOptions& options) {
  return options.scale * std::max(7.0, options.shift_s + 37 * options.mean_s);
}

SyncPolicy policy_of(const UnevenRequest& request) {
  SyncPolicy policy = preset_policy(request.sync, request.workers);
  if (request.staleness) policy.staleness = *request.staleness;
  if (request.quorum) policy.quorum = *request.quorum;
  if (request.time_limit_s) policy.deadline = from_s(*request.time_limit_s);
  return policy;
}

void check_sizes(const UnevenRequest& request) {
  const auto [least, most] = std::ranges::minmax(request.seconds_per_example);
  demand(least * static_cast<double>(slice_of(request)) >= 1e-9, "a slice of ", slice_of(request),
         " examples would take less than a nanosecond; raise --seconds-per-example");
  const double push_s = longest_stall_s(straggler_options_of(request)) + most * static_cast<double>(request.base_batch);
  demand(static_cast<double>(request.steps + 1) * push_s <= kLongestRun, request.steps,
         " updates could take longer than 285 years; lower --steps or the seconds");
  const int quorum = policy_of(request).quorum, pushes = quorum > 0 ? quorum : request.workers;
  demand(request.steps <= kMostPushes / pushes, request.steps, " updates of ", counted(pushes, "push"),
         " are more than ", kMostPushes, " pushes; lower --steps");
}

class UnevenCluster {
 public:
  explicit UnevenCluster(const UnevenRequest& request)
      : request_(request),
        policy_(policy_of(request)),
        coordinator_(policy_),
        stragglers_(straggler_options_of(request)),
        workers_(static_cast<std::size_t>(request.workers)) {
    for (int w = 0; w < request.workers; ++w) {
      (void)coordinator_.join(WorkerId{w}, 0);
      idle_.push_back(WorkerId{w});
    }
  }

  UnevenResult run() {
    begin_ready_workers();
    while (result_.steps < request_.steps) {
      deliver(clock_.advance().value());
      const std::optional<Update> update = coordinator_.take_update(clock_.now());
      if (!update) continue;
      add(*update);
      // An idle worker waits for an update or, if each push is an update, for a slower worker.
      begin_ready_workers();
    }
    return std::move(result_);
  }

 private:
  struct Worker {
    std::int64_t steps = 0;
    PushRecord push;
    Nanoseconds computed = 0;
  };

  Worker& at(WorkerId id) { return workers_[static_cast<std::size_t>(id)]; }

  void begin_ready_workers() {
    std::erase_if(idle_, [this](WorkerId id) {
      if (!coordinator_.may_begin(id)) return false;
      begin(id);
      return true;
    });
  }

  void begin(WorkerId id) {
    const std::vector<double>& seconds = request_.seconds_per_example;
    Worker& worker = at(id);
    const WorkerCosts costs{.sample_s = seconds[seconds.size() == 1 ? 0 : static_cast<std::size_t>(id)]};
    SliceClock slice_clock(costs, stragglers_.stall_s(id, worker.steps), to_s(policy_.deadline));
    const std::int64_t slice = slice_of(request_), slices = request_.partitions.value_or(1);
    std::int64_t examples = 0;
    for (std::int64_t s = 0; s < slices && slice_clock.admits(slice); ++s) examples += slice;
    worker.push = {.worker = id,
                   .incarnation = 1,
                   .sequence = ++worker.steps,
                   .base_version = coordinator_.begin(id),
                   .examples = examples,
                   .targets = examples};
    worker.computed = slice_clock.compute_time();
    clock_.schedule_push(id, worker.computed);
  }

  void deliver(WorkerId id) {
    check(coordinator_.push(at(id).push, clock_.now()) == PushAnswer::kCommitted,
          "a push in virtual time is committed");
    idle_.push_back(id);
  }

  void add(const Update& update) {
    Nanoseconds slowest = 0;
    for (const PushRecord& push : update.pushes) {
      slowest = std::max(slowest, at(push.worker).computed);
      ++result_.staleness[staleness_of(push, update.version)];
      result_.least_examples = result_.pushes == 0 ? push.examples : std::min(result_.least_examples, push.examples);
      result_.most_examples = std::max(result_.most_examples, push.examples);
      result_.examples += push.examples;
      ++result_.pushes;
    }
    ++result_.steps;
    result_.time = clock_.now();
    result_.longest_push = std::max(result_.longest_push, slowest);
    result_.slowest += slowest;
  }

  const UnevenRequest& request_;
  SyncPolicy policy_;
  Coordinator coordinator_;
  Stragglers stragglers_;
  std::vector<Worker> workers_;
  std::vector<WorkerId> idle_;
  VirtualClock clock_;
  UnevenResult result_;
};

}  // namespace

UnevenResult simulate_uneven_workers(const UnevenRequest& request) {
  check_work(request);
  check_anytime(request);
  check_policy_options(request);
  check_stragglers(request);
  check_sizes(request);
  return UnevenCluster(request).run();
}

const std::vector<std::string>& uneven_sync_names() {
  static const std::vector<std::string> names{"fmb", "amb", "bsp", "ssp", "asp", "quorum"};
  return names;
}

const std::vector<std::string>& induce_names() {
  static const std::vector<std::string> names{"none", "ec2", "cedar", std::string(kShiftedExponential)};
  return names;
}

}  // namespace sluice::ps
