#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <utility>
#include <vector>

#include "core/concat.h"
#include "core/log.h"
#include "core/own_time.h"
#include "profiler/arbiter.h"
#include "profiler/cupti/api.h"
#include "profiler/cupti/decode.h"
#include "profiler/cupti/session.h"

namespace sluice::cupti {
namespace {

// Required for a breakdown.
constexpr std::array kNeeded{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                             CUPTI_ACTIVITY_KIND_MEMCPY2,           CUPTI_ACTIVITY_KIND_MEMSET,
                             CUPTI_ACTIVITY_KIND_RUNTIME,           CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
constexpr std::array kWelcome{CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, CUPTI_ACTIVITY_KIND_OVERHEAD,
                              CUPTI_ACTIVITY_KIND_GRAPH_TRACE, CUPTI_ACTIVITY_KIND_INTERNAL_LAUNCH_API};
// Only the driver's calls that start work; libraries such as cuDNN use them instead of the runtime's.
constexpr std::array kDriverLaunches{CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
                                     CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
                                     CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel,
                                     CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch,
                                     CUPTI_DRIVER_TRACE_CBID_cuMemsetD8Async,
                                     CUPTI_DRIVER_TRACE_CBID_cuMemsetD16Async,
                                     CUPTI_DRIVER_TRACE_CBID_cuMemsetD32Async,
                                     CUPTI_DRIVER_TRACE_CBID_cuMemcpyAsync,
                                     CUPTI_DRIVER_TRACE_CBID_cuMemcpyHtoDAsync_v2,
                                     CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoHAsync_v2,
                                     CUPTI_DRIVER_TRACE_CBID_cuMemcpyDtoDAsync_v2,
                                     CUPTI_DRIVER_TRACE_CBID_cuMemcpyPeerAsync};

// State of CUPTI's callbacks. It is never destroyed, because CUPTI may call back until the process ends.
struct Sink {
  Api api{};
  Names names;
  Nanoseconds offset = 0;
  std::mutex mutex;
  bool is_on = false;  // guarded by `mutex`, like all members below
  std::size_t block_bytes = 0;
  std::size_t most_blocks = 0;
  std::size_t blocks_out = 0;
  std::size_t under_way = 0;
  std::condition_variable came_back;
  std::vector<std::pair<std::uint8_t*, std::size_t>> free_blocks;
  Records records;

  // Null beyond the cap; since CUDA 12.9 CUPTI then drops records.
  std::pair<std::uint8_t*, std::size_t> lend() {
    const std::scoped_lock lock(mutex);
    if (blocks_out >= most_blocks) return {nullptr, 0};
    while (!free_blocks.empty()) {
      const auto block = free_blocks.back();
      free_blocks.pop_back();
      if (block.second == block_bytes) {
        ++blocks_out;
        return block;
      }
      std::free(block.first);
    }
    auto* const memory = static_cast<std::uint8_t*>(std::aligned_alloc(8, block_bytes));
    if (memory == nullptr) return {nullptr, 0};
    ++blocks_out;
    return {memory, block_bytes};
  }

  void begin_to_read() {
    const std::scoped_lock lock(mutex);
    ++under_way;
  }

  void take_back(std::uint8_t* block, std::size_t size, Records more) {
    {
      const std::scoped_lock lock(mutex);
      if (is_on) records.append(std::move(more));
      free_blocks.emplace_back(block, size);
      if (blocks_out > 0) --blocks_out;
      --under_way;
    }
    came_back.notify_all();
  }

  // A flush does not wait for blocks that CUPTI's thread returns meanwhile. Returns the number still being read.
  std::size_t wait_for_reads(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds hand_over_timeout) {
    wait_own_time(came_back, lock, hand_over_timeout, [this] { return under_way == 0; });
    return under_way;
  }
};

Sink& sink() {
  static Sink* const the_one = new Sink;
  return *the_one;
}

void CUPTIAPI on_requested(std::uint8_t** block, std::size_t* size, std::size_t* most_records) {
  std::tie(*block, *size) = sink().lend();
  *most_records = 0;  // as many as fit
}

void CUPTIAPI on_completed(CUcontext, std::uint32_t, std::uint8_t* block, std::size_t size, std::size_t valid) {
  if (block == nullptr) return;
  Sink& to = sink();
  to.begin_to_read();
  to.take_back(block, size, decode_block(to.api, block, valid, to.offset, to.names));
}

void CUPTIAPI on_callback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

std::uint64_t CUPTIAPI our_time() { return static_cast<std::uint64_t>(now_ns()); }

// Offset from CUPTI's clock to the host's: the least disturbed of several readings.
Nanoseconds offset_of(const Api& api) {
  Nanoseconds offset = 0, least = std::numeric_limits<Nanoseconds>::max();
  for (int i = 0; i < 16; ++i) {
    std::uint64_t theirs = 0;
    const Nanoseconds before = now_ns();
    if (api.get_timestamp(&theirs) != CUPTI_SUCCESS) return 0;
    const Nanoseconds after = now_ns();
    if (after - before >= least) continue;
    least = after - before;
    offset = before + (after - before) / 2 - static_cast<Nanoseconds>(theirs);
  }
  return offset;
}

class CuptiSession final : public Session {
 public:
  CuptiSession(profiler::CuptiClaim claim, const Api& api) : claim_(std::move(claim)), api_(api) {}

  // CUPTI stays attached, because it can be detached safely only at points that this class cannot see.
  ~CuptiSession() override {
    for (const CUpti_ActivityKind kind : enabled_) static_cast<void>(api_.disable(kind));
    for (const auto call : driver_calls_) static_cast<void>(api_.enable_driver_call(call, 0));
    if (has_callbacks_) static_cast<void>(api_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    {
      std::unique_lock lock(sink().mutex);
      static_cast<void>(sink().wait_for_reads(lock, hand_over_timeout_));
      sink().is_on = false;
      sink().records = {};
    }
    if (subscriber_ != nullptr) static_cast<void>(api_.unsubscribe(subscriber_));
  }

  [[nodiscard]] bool is_taken(std::string& why) {
    CUptiResult result = CUPTI_SUCCESS;
    return !subscribe(why, &result) && result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }

  bool open(const SessionOptions& options, std::string& why) {
    if (!subscribe(why)) return false;
    static_cast<void>(api_.set_thread_id_type(CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM));
    const bool has_our_clock = api_.register_timestamp(&our_time) == CUPTI_SUCCESS;
    hand_over_timeout_ = options.hand_over_timeout;
    Sink& to = sink();
    {
      const std::scoped_lock lock(to.mutex);
      to.api = api_;
      to.offset = 0;
      to.block_bytes = options.block_bytes;
      to.most_blocks = options.blocks;
      to.records = {};
      to.is_on = true;
    }
    if (!has_our_clock) to.offset = offset_of(api_);
    if (const CUptiResult result = api_.register_callbacks(&on_requested, &on_completed); result != CUPTI_SUCCESS)
      return refuse(why, "takes no buffers", result);
    has_callbacks_ = true;
    return enable(why);
  }

  [[nodiscard]] Records collect() override {
    static_cast<void>(api_.flush_all(0));
    std::size_t dropped = 0;
    static_cast<void>(api_.dropped_records(nullptr, 0, &dropped));
    Records records;
    {
      std::unique_lock lock(sink().mutex);
      dropped += sink().wait_for_reads(lock, hand_over_timeout_);
      records = std::exchange(sink().records, {});
    }
    records.dropped += dropped;
    return records;
  }

  void push(Tag tag) noexcept override {
    static_cast<void>(api_.push_external(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2, tag));
  }
  void pop() noexcept override {
    static_cast<void>(api_.pop_external(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2, nullptr));
  }

  [[nodiscard]] StreamKey key_of(const StreamName& stream) const override {
    if (stream.gpu < 0) return {};
    std::uint32_t number = 0;
    auto* const handle = reinterpret_cast<CUstream>(static_cast<std::uintptr_t>(stream.handle));
    if (api_.stream_id(nullptr, handle, 0, &number) != CUPTI_SUCCESS) return {};
    return {stream.gpu, number};
  }

  [[nodiscard]] Names& names() override { return sink().names; }

 private:
  bool subscribe(std::string& why, CUptiResult* code = nullptr) {
    std::array<char, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN> other{};
    CUpti_SubscriberParams params{};
    params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
    params.subscriberName = "Sluice";
    params.oldSubscriberName = other.data();
    params.oldSubscriberSize = other.size();
    const CUptiResult result = api_.subscribe(&subscriber_, &on_callback, nullptr, &params);
    if (code != nullptr) *code = result;
    if (result == CUPTI_SUCCESS) return true;
    subscriber_ = nullptr;
    other.back() = '\0';
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
      why = concat("another client has CUPTI: ", other.front() != '\0' ? other.data() : "one that gives no name");
    else
      why = concat("CUPTI does not start, as without a driver: ", api_.text_of(result));
    return false;
  }

  bool enable(std::string& why) {
    for (const CUpti_ActivityKind kind : kNeeded) {
      const CUptiResult result = api_.enable(kind);
      if (result != CUPTI_SUCCESS)
        return refuse(why, concat("has no records of kind ", static_cast<int>(kind)), result);
      enabled_.push_back(kind);
    }
    for (const CUpti_ActivityKind kind : kWelcome) {
      if (api_.enable(kind) == CUPTI_SUCCESS) enabled_.push_back(kind);
    }
    for (const auto call : kDriverLaunches) {
      if (api_.enable_driver_call(call, 1) == CUPTI_SUCCESS) driver_calls_.push_back(call);
    }
    return true;
  }

  bool refuse(std::string& why, const std::string& what, CUptiResult result) const {
    why = concat("CUPTI ", what, ": ", api_.text_of(result));
    return false;
  }

  profiler::CuptiClaim claim_;
  Api api_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  bool has_callbacks_ = false;
  std::chrono::milliseconds hand_over_timeout_{0};
  std::vector<CUpti_ActivityKind> enabled_;
  std::vector<CUpti_CallbackId> driver_calls_;
};

}  // namespace

std::unique_ptr<Session> Session::start(const SessionOptions& options, std::string& why) {
  profiler::CuptiClaim claim(profiler::GpuProfiler::kCupti);
  if (!claim.is_valid()) {
    why = concat("another client has CUPTI: ", to_string(claim.holder()));
    return nullptr;
  }
  const std::optional<Api> api = load_api(options.library, why);
  if (!api) return nullptr;
  if (std::getenv("KINETO_USE_DAEMON") != nullptr)
    log_warning(
        "KINETO_USE_DAEMON is set: LibTorch's profiler may take over CUPTI; unset it if GPU kernels are missing");
  auto session = std::make_unique<CuptiSession>(std::move(claim), *api);
  if (!session->open(options, why)) return nullptr;
  return session;
}

bool Session::is_taken(const SessionOptions& options, std::string& why) {
  profiler::CuptiClaim claim(profiler::GpuProfiler::kCupti);
  if (!claim.is_valid()) {
    why = concat("another client has CUPTI: ", to_string(claim.holder()));
    return true;
  }
  std::string none;
  const std::optional<Api> api = load_api(options.library, none);
  return api && CuptiSession(std::move(claim), *api).is_taken(why);
}

}  // namespace sluice::cupti
