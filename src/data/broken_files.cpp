#include "data/broken_files.h"

#include "core/concat.h"
#include "core/log.h"

namespace sluice::data {

void BrokenFiles::add(std::int64_t index, const std::string& what) {
  constexpr std::int64_t kAllSaid = 100, kOneOf = 100;
  std::int64_t count = 0;
  {
    const std::scoped_lock lock(mutex_);
    if (!samples_.insert(index).second) return;
    count = std::ssize(samples_);
  }
  if (count > kAllSaid && count % kOneOf != 0) return;
  log_warning(what, "; the next sample that can be read takes its place (broken files so far: ", count,
              count == kAllSaid ? concat("; of the next ones each ", kOneOf, "th is named") : "", ")");
}

std::int64_t BrokenFiles::count() const {
  const std::scoped_lock lock(mutex_);
  return std::ssize(samples_);
}

}  // namespace sluice::data
