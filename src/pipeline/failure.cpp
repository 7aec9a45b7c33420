#include "pipeline/failure.h"

#include <new>

#include <c10/util/Exception.h>

#include "core/concat.h"

namespace sluice::pipeline {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

Error out_of_memory(const std::string& where, const std::string& what) {
  return OutOfMemoryError(concat(where, ": out of memory: ", what,
                                 "; use more pipeline.chunks, more pipeline.stages or a smaller train.global_batch"));
}

}  // namespace

Error describe_failure(const std::exception_ptr& failure, const std::string& where) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.with_context(where);
  } catch (const c10::OutOfMemoryError& error) {
    return out_of_memory(where, first_line(error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    const std::string what = first_line(error.what_without_backtrace());
    for (const char* sign : {"can't allocate memory", "out of memory", "CUBLAS_STATUS_ALLOC_FAILED"}) {
      if (what.find(sign) != std::string::npos) return out_of_memory(where, what);
    }
    return BugError(concat(where, ": LibTorch reports: ", what));
  } catch (const std::bad_alloc&) {
    return out_of_memory(where, "the system refused an allocation");
  } catch (const std::exception& error) {
    return BugError(concat(where, ": ", first_line(error.what())));
  }
}

}  // namespace sluice::pipeline
