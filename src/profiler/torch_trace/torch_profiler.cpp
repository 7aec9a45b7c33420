#include "profiler/torch_trace/torch_profiler.h"

#include <exception>
#include <optional>
#include <set>
#include <utility>

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "profiler/arbiter.h"

namespace sluice::torch_trace {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ExperimentalConfig;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

// Stage threads are not children of the thread that starts the profiler.
ProfilerConfig config() {
  ExperimentalConfig experimental;
  experimental.profile_all_threads = true;
  return ProfilerConfig(ProfilerState::KINETO, /*report_input_shapes=*/true, /*profile_memory=*/false,
                        /*with_stack=*/false, /*with_flops=*/false, /*with_modules=*/false, experimental);
}

class Kineto final : public TorchProfiler {
 public:
  explicit Kineto(std::optional<profiler::CuptiClaim> claim) : claim_(std::move(claim)) {
    std::set<ActivityType> activities{ActivityType::CPU};
    if (claim_) activities.insert(ActivityType::CUDA);
    kineto::prepareProfiler(config(), activities);
    kineto::enableProfiler(config(), activities, {});
    is_on_ = true;
  }
  ~Kineto() override {
    step_.reset();
    if (!is_on_) return;
    try {
      static_cast<void>(kineto::disableProfiler());
    } catch (const std::exception&) {
    }
  }
  Kineto(const Kineto&) = delete;
  Kineto& operator=(const Kineto&) = delete;

  void begin_step(std::int64_t number) override {
    step_.emplace(at::RecordScope::USER_SCOPE);
    if (step_->isActive()) step_->before(concat("ProfilerStep#", number));
  }
  void end_step() override { step_.reset(); }

  void stop() override {
    step_.reset();
    is_on_ = false;
    result_ = kineto::disableProfiler();
    claim_.reset();
  }

  void save(const std::filesystem::path& file) override {
    std::exchange(result_, {})->save(file.string());  // reports no error if it cannot write
  }

 private:
  std::optional<profiler::CuptiClaim> claim_;
  bool is_on_ = false;
  std::optional<at::RecordFunction> step_;
  std::unique_ptr<kineto::ProfilerResult> result_;
};

}  // namespace

std::unique_ptr<TorchProfiler> TorchProfiler::start(bool with_gpus, std::string& why) {
  std::optional<profiler::CuptiClaim> claim;
  if (with_gpus) {
    claim.emplace(profiler::GpuProfiler::kTorch);
    if (!claim->is_valid()) {
      why = concat("another client has CUPTI: ", to_string(claim->holder()));
      return nullptr;
    }
  }
  try {
    return std::make_unique<Kineto>(std::move(claim));
  } catch (const std::exception& error) {
    why = concat("LibTorch's profiler does not start: ", first_line(error.what()));
    return nullptr;
  }
}

}  // namespace sluice::torch_trace
