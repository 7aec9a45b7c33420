#include "pipeline/failure.h"

#include <charconv>
#include <cstdint>
#include <new>
#include <sstream>
#include <system_error>

#include <c10/util/Exception.h>

#include "core/concat.h"
#include "core/text.h"
#include "device/memory.h"

namespace sluice::pipeline {
namespace {

constexpr std::string_view kInLimit = " in its device.memory_limit of ";

// Finds "74.5 GiB" in "... tried to allocate 80000000000 bytes ..." (CPU) or "... allocate 74.51 GiB. ..." (CUDA).
std::string request_in(const std::string& what) {
  constexpr std::string_view kSign = "ried to allocate ";
  const std::size_t found = what.find(kSign);
  if (found == std::string::npos) return what;
  std::istringstream rest(what.substr(found + kSign.size()));
  std::string number, unit;
  rest >> number >> unit;
  while (unit.ends_with('.') || unit.ends_with(',')) unit.pop_back();
  std::uint64_t bytes = 0;
  const bool is_whole = std::from_chars(number.data(), number.data() + number.size(), bytes).ec == std::errc{};
  return concat("no room for ", unit == "bytes" && is_whole ? human_bytes(bytes) : concat(number, " ", unit));
}

std::string where_and_what(const std::string& where, const MemoryWords& words) {
  return words.work.empty() ? where : concat(where, ", in ", words.work);
}

Error out_of_memory(const std::string& where, const std::string& what, const MemoryWords& words) {
  return OutOfMemoryError(
      concat(where_and_what(where, words), ": out of memory: ", request_in(what), "; ", words.less_memory));
}

Error at_limit(const std::string& where, const device::MemoryLimitError& error, const MemoryWords& words) {
  return OutOfMemoryError(where_and_what(where, words), ": out of memory on ", device::to_string(error.device()),
                          ": no room for ", human_bytes(error.asked()), kInLimit, human_bytes(error.use().limit),
                          ", which holds ", device::describe(error.use().by_kind), "; ", words.less_memory);
}

}  // namespace

Error describe_failure(const std::exception_ptr& failure, const std::string& where, const MemoryWords& words) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.with_context(where);
  } catch (const device::MemoryLimitError& error) {
    return at_limit(where, error, words);
  } catch (const c10::OutOfMemoryError& error) {
    return out_of_memory(where, first_line(error.what_without_backtrace()), words);
  } catch (const c10::Error& error) {
    const std::string what = first_line(error.what_without_backtrace());
    for (const char* sign : {"can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED"}) {
      if (what.find(sign) != std::string::npos) return out_of_memory(where, what, words);
    }
    return BugError(where, ": LibTorch reports: ", what);
  } catch (const std::bad_alloc&) {
    return out_of_memory(where, "the system refused an allocation", words);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again)
      return BugError(where, ": ", first_line(error.what()));
    return OutOfMemoryError(
        concat(where, ": the system refuses to start another thread (", first_line(error.what()),
               "); use fewer data.workers, pipeline.stages, replicas.local or device.threads, or raise the "
               "limit on processes (ulimit -u, or pids.max of the cgroup)"));
  } catch (const std::exception& error) {
    return BugError(where, ": ", first_line(error.what()));
  }
}

bool is_refused_by_limit(const Error& error) {
  return error.exit_code() == ExitCode::kOutOfMemory &&
         std::string_view(error.what()).find(kInLimit) != std::string_view::npos;
}

}  // namespace sluice::pipeline
