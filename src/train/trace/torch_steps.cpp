#include "train/trace/torch_steps.h"

#include <unistd.h>
#include <algorithm>
#include <cctype>
#include <exception>
#include <fstream>
#include <functional>
#include <iterator>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "profiler/cupti/session.h"
#include "profiler/level_warning.h"
#include "report/call_table.h"
#include "storage/run_dir.h"
#include "train/trace/longest_rows.h"
#include "train/trace/trace_files.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kFirstSkipped = 1;  // a run's first step allocates and chooses kernels
constexpr std::int64_t kSteps = 5;
constexpr std::uint64_t kMostCalls = 50'000;        // of a trace; each needs about 4.5 KB until it is written
constexpr std::uint64_t kMostCallsOfOne = 200'000;  // of one step, which is traced completely or not at all

void warn(const std::string& why) { profiler::warn_of_level("torch", why, "events and clocks only"); }

fs::path scratch_file(const fs::path& folder, int rank) {
  return (rank == 0 ? folder : fs::temp_directory_path()) / concat("torch_trace.", ::getpid(), ".json");
}

// Removes files of processes that were killed while they wrote. Only this run uses the folder.
void remove_leftovers(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool has_number = name.starts_with("torch_trace.") && name.size() > 12 && std::isdigit(name[12]) != 0;
    if (has_number && name.find(".json") != std::string::npos) fs::remove(entry.path(), ignored);
  }
}

bool has_gpus(const Setup& setup) {
  return std::ranges::any_of(setup.devices, [](const auto& one) { return one.kind == device::DeviceKind::kCuda; });
}

// LibTorch reports no error if it could not write the whole file.
std::string read_whole(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!nlohmann::json::accept(text))
    throw StorageError("LibTorch's profiler could not write all of ", file.string(),
                       "; free disk space or make the folder writable");
  return text;
}

using OperatorRow = profiler::OperatorSums::value_type;

std::vector<const OperatorRow*> longest_first(const profiler::OperatorSums& sums) {
  std::vector<const OperatorRow*> rows;
  for (const OperatorRow& row : sums) rows.push_back(&row);
  std::ranges::stable_sort(rows, std::greater<>(), [](const OperatorRow* row) { return row->second.self; });
  return rows;
}

nlohmann::ordered_json operator_fields(const OperatorRow& row, const std::vector<std::string>& layers) {
  const auto& [key, sum] = row;
  const bool is_known = key.layer >= 0;
  return {{"layer", is_known ? nlohmann::ordered_json(layers.at(static_cast<std::size_t>(key.layer))) : nullptr},
          {"pass", key.pass == profiler::Pass::kForward ? "forward" : "backward"},
          {"operator", key.name},
          {"calls", sum.calls},
          {"self_ms", to_ms(sum.self)},
          {"flops", sum.flops},
          {"bytes", sum.bytes}};
}

}  // namespace

StepRange torch_steps(const Setup& setup, StepRange traced, std::int64_t first) {
  if (setup.config.profile.level != "torch") return {};
  if (setup.config.replicas.has_server()) {
    warn("a parameter server's workers make the steps");
    return {};
  }
  if (!traced.is_empty()) return traced;
  return {first + kFirstSkipped, first + kFirstSkipped + kSteps - 1};
}

// The member order matters: the marks use the watch, and both use the profiler, so they are destroyed in reverse order.
struct TorchSteps::Running {
  Running(std::unique_ptr<torch_trace::TorchProfiler> of, bool watches)
      : profiler(std::move(of)),
        watch(watches ? std::make_unique<operators::OperatorWatch>(operators::OperatorWatch::Threads::kAll) : nullptr),
        marks(watch.get()) {}

  std::unique_ptr<torch_trace::TorchProfiler> profiler;
  std::unique_ptr<operators::OperatorWatch> watch;  // null with GPUs: operators on the CPU do not show their time
  torch_trace::TraceMarks marks;
};

TorchSteps::TorchSteps(const Setup& setup, const comm::Communicator* others, engine::Engine& engine, StepRange steps,
                       fs::path folder)
    : others_(others),
      with_gpus_(has_gpus(setup)),
      range_(steps),
      folder_(std::move(folder)),
      is_done_(steps.is_empty()),
      running_(engine.recorder()) {}

TorchSteps::~TorchSteps() {
  if (!is_done_ && steps_ > 0)
    log_warning("LibTorch's trace of ", counted(steps_, "step"), " is lost, because the run failed");
}

bool TorchSteps::leaves_out(std::int64_t number) const {
  return is_done_ || number + 1 < range_.first || number > range_.last;
}

void TorchSteps::before_step(std::int64_t number) {
  if (leaves_out(number)) return;
  if (number + 1 == range_.first) {
    running_.hold(std::make_unique<Running>(nullptr, /*watches=*/true));
  } else if (!has_begun_) {
    start();
  }
  if (!running_) return;
  running_.attach_marks();
  if (running_->profiler) running_->profiler->begin_step(number);
}

void TorchSteps::start() {
  has_begun_ = true;
  running_.hold(nullptr);
  if (others_ == nullptr || others_->rank() == 0) remove_leftovers(folder_);
  std::string why;
  if (calls_of_step_ > kMostCallsOfOne)
    return warn(concat("a step has ", calls_of_step_,
                       " operators, which is too many to keep in memory; lower pipeline.chunks"));
  if (with_gpus_ && cupti::Session::is_taken({}, why)) return warn(why);
  auto profiler = torch_trace::TorchProfiler::start(with_gpus_, why);
  if (!profiler) return warn(why);
  running_.hold(std::make_unique<Running>(std::move(profiler), !with_gpus_));
}

void TorchSteps::after_step(std::int64_t number, bool evaluation_follows) {
  if (leaves_out(number)) return;
  if (running_) take_step();
  if (number < range_.first) return;
  if (number >= range_.last || evaluation_follows) return write();
  if (!running_ || calls_ + calls_of_step_ <= kMostCalls) return;
  log_warning("the trace of LibTorch's profiler ends with step ", number, ": it holds ", calls_,
              " operators, and the limit is ", kMostCalls);
  stop();
}

// The step before the range gives only its number of operators, as the estimate for steps that are not watched.
void TorchSteps::take_step() {
  running_.detach_marks();
  const profiler::OperatorSums sums = running_->watch ? running_->watch->take() : profiler::OperatorSums{};
  if (running_->watch) calls_of_step_ = 0;
  for (const auto& [key, sum] : sums) calls_of_step_ += sum.calls;
  if (!running_->profiler) return;
  running_->profiler->end_step();
  ++steps_;
  calls_ += calls_of_step_;
  for (const auto& [key, sum] : sums) sums_[key] += sum;
}

void TorchSteps::finish() {
  if (is_done_) return;
  if (!has_begun_ && (others_ == nullptr || others_->rank() == 0))
    log_warning("profile.level = \"torch\": the run made no step from ", range_.first, " to ", range_.last,
                ", so there is no trace");
  write();
}

void TorchSteps::stop() {
  for (int i = 0; running_->watch && !running_->marks.layers().name(i).empty(); ++i)
    layers_.push_back(running_->marks.layers().name(i));
  const auto running = running_.take();
  if (!running->profiler) return;
  fs::path file;
  try {
    file = scratch_file(folder_, others_ == nullptr ? 0 : others_->rank());
    running->profiler->stop();
    running->profiler->save(file);
    text_ = read_whole(file);
  } catch (const std::exception& error) {
    log_warning("LibTorch's profiler failed: ", first_line(error.what()));
  }
  std::error_code ignored;
  fs::remove(file, ignored);
  fs::remove(file.string() + ".tmp", ignored);  // left by LibTorch if it could not finish
}

void TorchSteps::write() {
  is_done_ = true;
  if (running_) stop();
  if (steps_ == 0 && others_ == nullptr) return;
  const TraceFile file = [this](int rank) { return folder_ / storage::RunDir::torch_trace_name(rank); };
  const auto texts = gather_trace(others_, packed_text(std::exchange(text_, {}), file(0)));
  if (others_ != nullptr && others_->rank() != 0) return;
  if (write_gathered(texts, file, concat("LibTorch's trace of ", counted(steps_, "step"))))
    remove_traces_beyond(static_cast<int>(texts.size()), storage::RunDir::torch_traces(folder_));
}

void TorchSteps::report(report::Reporter* reporter) {
  if (sums_.empty()) return;
  LongestRows table;
  for (const OperatorRow* row : longest_first(sums_)) table.add(operator_fields(*row, layers_), row->second.self);
  const nlohmann::ordered_json event{{"steps", steps_}, {"rows", table.rows()}, {"rest_ms", table.rest_ms()}};
  log_table(report::run_operators_text(report::run_operators(event)));
  if (reporter != nullptr) reporter->event("operators", event);
}

}  // namespace sluice::train
