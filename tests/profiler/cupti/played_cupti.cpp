#include "profiler/cupti/played_cupti.h"

#include <cupti.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <semaphore>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Bytes = std::vector<std::uint8_t>;

struct Device {
  int subscribe_result = 0, timestamp_result = 0, subscribers = 0, blocks_out = 0;
  unsigned version = CUPTI_API_VERSION;
  const char* other = "";
  std::map<int, int> enable_results;
  std::set<int> enabled;
  std::vector<Bytes> records;
  std::size_t dropped = 0;
  CUpti_TimestampCallbackFunc clock = nullptr;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
};

Device device;
thread_local std::vector<std::uint64_t> tags;

struct Worker {
  std::thread thread;
  std::binary_semaphore reads{0}, may_go_on{0};
};
Worker worker;
thread_local bool stops_at_next_record = false;

std::size_t size_of(int kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMCPY2: return sizeof(CUpti_ActivityMemcpyPtoP4);
    case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: return sizeof(CUpti_ActivityGraphTrace2);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: return sizeof(CUpti_ActivitySynchronization2);
    case CUPTI_ACTIVITY_KIND_OVERHEAD: return sizeof(CUpti_ActivityOverhead3);
    default: return sizeof(CUpti_ActivityAPI);
  }
}

int kind_of(const void* record) {
  int kind = 0;
  std::memcpy(&kind, record, sizeof(kind));
  return kind;
}

void deliver(const std::vector<Bytes>& records) {
  for (std::size_t at = 0; at < records.size();) {
    std::uint8_t* block = nullptr;
    std::size_t size = 0, most = 0, used = 0;
    device.request(&block, &size, &most);
    if (block == nullptr) {
      device.dropped += records.size() - at;
      return;
    }
    ++device.blocks_out;
    for (; at < records.size() && used + records[at].size() <= size; used += records[at++].size())
      std::memcpy(block + used, records[at].data(), records[at].size());
    --device.blocks_out;
    device.complete(nullptr, 0, block, size, used);
  }
}

}  // namespace

extern "C" {
void played_reset() { device = {}; }
void played_subscribe_answers(int result, const char* other) {
  device.subscribe_result = result;
  device.other = other;
}
void played_enable_answers(int kind, int result) { device.enable_results[kind] = result; }
void played_timestamp_callback_answers(int result) { device.timestamp_result = result; }
void played_version(unsigned version) { device.version = version; }
void played_record(const void* record, std::size_t size) {
  const auto* const bytes = static_cast<const std::uint8_t*>(record);
  if (device.enabled.contains(kind_of(record)) || kind_of(record) > CUPTI_ACTIVITY_KIND_GRAPH_TRACE)
    device.records.emplace_back(bytes, bytes + size);
}
void played_flush_from_worker() {
  std::thread([] { cuptiActivityFlushAll(0); }).join();
}
void played_worker_begins() {
  worker.thread = std::thread([] {
    stops_at_next_record = true;
    cuptiActivityFlushAll(0);
  });
  worker.reads.acquire();
}
void played_worker_goes_on() {
  worker.may_go_on.release();
  worker.thread.join();
}
int played_enabled_kinds() { return static_cast<int>(device.enabled.size()); }
int played_subscribers() { return device.subscribers; }
int played_blocks_out() { return device.blocks_out; }
std::uint64_t played_top_tag() { return tags.empty() ? 0 : tags.back(); }
std::uint64_t played_time_now() { return device.clock != nullptr ? device.clock() : 0; }

CUptiResult cuptiGetVersion(std::uint32_t* version) {
  *version = device.version;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  *text = result == CUPTI_ERROR_UNKNOWN ? "CUPTI_ERROR_UNKNOWN" : "CUPTI_ERROR";
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetTimestamp(std::uint64_t* time) {
  *time = 1000;  // a clock that stands
  return CUPTI_SUCCESS;
}
CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc, void*,
                              CUpti_SubscriberParams* params) {
  if (device.subscribe_result != 0) {
    std::strncpy(params->oldSubscriberName, device.other, params->oldSubscriberSize - 1);
    return static_cast<CUptiResult>(device.subscribe_result);
  }
  ++device.subscribers;
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&device);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  --device.subscribers;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiSetThreadIdType(CUpti_ActivityThreadIdType) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
  if (device.timestamp_result != 0) return static_cast<CUptiResult>(device.timestamp_result);
  device.clock = clock;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  device.request = request;
  device.complete = complete;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  const auto found = device.enable_results.find(kind);
  if (found != device.enable_results.end()) return static_cast<CUptiResult>(found->second);
  device.enabled.insert(kind);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  device.enabled.erase(kind);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId, std::uint8_t) { return CUPTI_SUCCESS; }
CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  std::vector<Bytes> records;
  records.swap(device.records);
  deliver(records);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(std::uint8_t* block, std::size_t valid, CUpti_Activity** record) {
  if (std::exchange(stops_at_next_record, false)) {
    worker.reads.release();
    worker.may_go_on.acquire();
  }
  auto* const now = reinterpret_cast<std::uint8_t*>(*record);
  std::uint8_t* const next = now == nullptr ? block : now + size_of(kind_of(now));
  if (next >= block + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
  *dropped = device.dropped;
  device.dropped = 0;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, std::uint64_t tag) {
  if (kind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2) tags.push_back(tag);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind, std::uint64_t*) {
  if (tags.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  tags.pop_back();
  return CUPTI_SUCCESS;
}
// Streams are numbered by their handles here; 0 is none.
CUptiResult cuptiGetStreamIdEx(CUcontext, CUstream stream, std::uint8_t, std::uint32_t* number) {
  *number = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(stream));
  return *number == 0 ? CUPTI_ERROR_INVALID_STREAM : CUPTI_SUCCESS;
}
}
