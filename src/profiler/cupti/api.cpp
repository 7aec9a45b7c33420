#include "profiler/cupti/api.h"

#include <dlfcn.h>

#include "core/concat.h"

namespace sluice::cupti {
namespace {

class Binder {
 public:
  explicit Binder(void* library) : library_(library) {}

  template <typename Function>
  Binder& operator()(const char* name, Function& function) {
    void* const symbol = dlsym(library_, name);
    if (symbol == nullptr && missing_.empty()) missing_ = name;
    function = reinterpret_cast<Function>(symbol);
    return *this;
  }
  [[nodiscard]] const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

}  // namespace

std::string Api::text_of(CUptiResult result) const {
  const char* text = nullptr;
  if (get_result_string(result, &text) != CUPTI_SUCCESS || text == nullptr) text = "unknown";
  return concat(text, " (", static_cast<int>(result), ")");
}

std::optional<Api> load_api(const std::string& library, std::string& why) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const error = dlerror();
    why = concat(library, " cannot be loaded: ", error != nullptr ? error : "");
    return std::nullopt;
  }
  Api api{};
  Binder bind(handle);
  bind("cuptiGetVersion", api.get_version)("cuptiGetResultString", api.get_result_string)(
      "cuptiGetTimestamp", api.get_timestamp)("cuptiSubscribe_v2", api.subscribe)("cuptiUnsubscribe", api.unsubscribe)(
      "cuptiSetThreadIdType", api.set_thread_id_type)("cuptiActivityRegisterTimestampCallback", api.register_timestamp)(
      "cuptiActivityRegisterCallbacks", api.register_callbacks)("cuptiActivityEnable", api.enable)(
      "cuptiActivityDisable", api.disable)("cuptiActivityEnableDriverApi", api.enable_driver_call)(
      "cuptiActivityFlushAll", api.flush_all)("cuptiActivityGetNextRecord", api.next_record)(
      "cuptiActivityGetNumDroppedRecords", api.dropped_records)("cuptiActivityPushExternalCorrelationId",
                                                                api.push_external)(
      "cuptiActivityPopExternalCorrelationId", api.pop_external)("cuptiGetStreamIdEx", api.stream_id);
  if (!bind.missing().empty()) {
    why = concat(library, " has no ", bind.missing());
    return std::nullopt;
  }
  std::uint32_t version = 0;
  if (api.get_version(&version) != CUPTI_SUCCESS || version < CUPTI_API_VERSION) {
    why = concat(library, " has version ", version, ", and this build reads the records of ", CUPTI_API_VERSION);
    return std::nullopt;
  }
  return api;
}

}  // namespace sluice::cupti
