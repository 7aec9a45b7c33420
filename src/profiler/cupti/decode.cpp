#include "profiler/cupti/decode.h"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "core/concat.h"

namespace sluice::cupti {
namespace {

// Detects changed structures in newer toolkits.
static_assert(sizeof(CUpti_ActivityKernel10) == 216);
static_assert(sizeof(CUpti_ActivityMemcpy6) == 96);
static_assert(sizeof(CUpti_ActivityMemcpyPtoP4) == 96);
static_assert(sizeof(CUpti_ActivityMemset4) == 88);
static_assert(sizeof(CUpti_ActivityAPI) == 40);
static_assert(sizeof(CUpti_ActivityExternalCorrelation) == 24);
static_assert(sizeof(CUpti_ActivitySynchronization2) == 56);
static_assert(sizeof(CUpti_ActivityGraphTrace2) == 56);

std::string demangled(const char* name) {
  if (name == nullptr) return "kernel without a name";
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && text ? text.get() : name;
}

std::string copy_name(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "Memcpy HtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "Memcpy DtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "Memcpy DtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP: return "Memcpy PtoP";
    default: return "Memcpy";
  }
}

class Decoder {
 public:
  Decoder(Nanoseconds offset, Names& names) : offset_(offset), names_(names) {}

  void read(const CUpti_Activity* record) {
    switch (record->kind) {
      case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return kernel(copy_of<CUpti_ActivityKernel10>(record));
      case CUPTI_ACTIVITY_KIND_MEMCPY: return copy(copy_of<CUpti_ActivityMemcpy6>(record), WorkKind::kCopy);
      case CUPTI_ACTIVITY_KIND_MEMCPY2: return copy(copy_of<CUpti_ActivityMemcpyPtoP4>(record), WorkKind::kPeerCopy);
      case CUPTI_ACTIVITY_KIND_MEMSET: {
        const auto set = copy_of<CUpti_ActivityMemset4>(record);
        return add(set, WorkKind::kSet, "Memset", set.bytes);
      }
      case CUPTI_ACTIVITY_KIND_GRAPH_TRACE: {
        const auto graph = copy_of<CUpti_ActivityGraphTrace2>(record);
        return add(graph, WorkKind::kGraph, concat("CUDA graph ", graph.graphId), 0);
      }
      case CUPTI_ACTIVITY_KIND_RUNTIME:
      case CUPTI_ACTIVITY_KIND_DRIVER:
      case CUPTI_ACTIVITY_KIND_INTERNAL_LAUNCH_API: {
        const auto call = copy_of<CUpti_ActivityAPI>(record);
        return out_.launches.push_back({call.correlationId, call.threadId, time(call.start), time(call.end)});
      }
      case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
        const auto external = copy_of<CUpti_ActivityExternalCorrelation>(record);
        if (external.externalKind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM2) return;  // another client's
        return out_.externals.push_back({external.correlationId, external.externalId});
      }
      case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: {
        const auto wait = copy_of<CUpti_ActivitySynchronization2>(record);
        return out_.waits.push_back({static_cast<int>(wait.type), time(wait.start), time(wait.end)});
      }
      case CUPTI_ACTIVITY_KIND_OVERHEAD: {
        const auto cost = copy_of<CUpti_ActivityOverhead3>(record);
        out_.overheads.push_back({static_cast<int>(cost.overheadKind), time(cost.start), time(cost.end)});
        return std::free(cost.overheadData);  // the client must free it; mostly null
      }
      default: ++out_.unknown;
    }
  }

  [[nodiscard]] Records take() { return std::move(out_); }

 private:
  template <typename Record>
  static Record copy_of(const CUpti_Activity* record) {  // copied because the records are packed
    Record copy;
    std::memcpy(&copy, static_cast<const void*>(record), sizeof(copy));
    return copy;
  }

  [[nodiscard]] Nanoseconds time(std::uint64_t stamp) const {
    return stamp == 0 ? 0 : static_cast<Nanoseconds>(stamp) + offset_;
  }

  void kernel(const CUpti_ActivityKernel10& kernel) {
    const std::string name = demangled(kernel.name);
    add(kernel, WorkKind::kKernel, name, 0);
    out_.work.back().is_communication = name.starts_with("nccl");
  }

  template <typename Record>
  void copy(const Record& record, WorkKind kind) {
    add(record, kind, copy_name(record.copyKind), record.bytes);
  }

  template <typename Record>
  void add(const Record& record, WorkKind kind, const std::string& name, std::uint64_t bytes) {
    out_.work.push_back({.kind = kind,
                         .correlation = record.correlationId,
                         .where = {static_cast<int>(record.deviceId), record.streamId},
                         .begin = time(record.start),
                         .end = time(record.end),
                         .name = names_.index_of(name),
                         .bytes = bytes});
  }

  Nanoseconds offset_;
  Names& names_;
  Records out_;
};

}  // namespace

Records decode_block(const Api& api, std::uint8_t* block, std::size_t valid, Nanoseconds offset, Names& names) {
  Decoder decoder(offset, names);
  CUpti_Activity* record = nullptr;
  while (api.next_record(block, valid, &record) == CUPTI_SUCCESS) decoder.read(record);
  return decoder.take();
}

}  // namespace sluice::cupti
