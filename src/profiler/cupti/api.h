// api: the functions of libcupti, loaded at run time so that the binary also works without it. Shared with LibTorch.
#pragma once

#include <cupti.h>

#include <optional>
#include <string>

namespace sluice::cupti {

static_assert(CUPTI_API_VERSION >= 130000, "the records are read as CUDA 13 lays them out");

struct Api {
  decltype(&cuptiGetVersion) get_version;
  decltype(&cuptiGetResultString) get_result_string;
  decltype(&cuptiGetTimestamp) get_timestamp;
  decltype(&cuptiSubscribe_v2) subscribe;
  decltype(&cuptiUnsubscribe) unsubscribe;
  decltype(&cuptiSetThreadIdType) set_thread_id_type;
  decltype(&cuptiActivityRegisterTimestampCallback) register_timestamp;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityDisable) disable;
  decltype(&cuptiActivityEnableDriverApi) enable_driver_call;
  decltype(&cuptiActivityFlushAll) flush_all;
  decltype(&cuptiActivityGetNextRecord) next_record;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records;
  decltype(&cuptiActivityPushExternalCorrelationId) push_external;
  decltype(&cuptiActivityPopExternalCorrelationId) pop_external;
  decltype(&cuptiGetStreamIdEx) stream_id;

  [[nodiscard]] std::string text_of(CUptiResult result) const;
};

[[nodiscard]] std::optional<Api> load_api(const std::string& library, std::string& why);

}  // namespace sluice::cupti
