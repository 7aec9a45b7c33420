#include "data/broken_files.h"

#include "core/concat.h"
#include "core/log.h"

namespace sluice::data {

void BrokenFiles::add(std::int64_t index, const std::string& what) {
  constexpr std::int64_t kAllLogged = 100, kInterval = 100;
  std::int64_t count = 0;
  {
    const std::scoped_lock lock(mutex_);
    if (!samples_.insert(index).second) return;
    count = std::ssize(samples_);
  }
  if (count > kAllLogged && count % kInterval != 0) return;
  log_warning(what, "; using the next readable sample instead (broken files so far: ", count,
              count == kAllLogged ? concat("; from now on every ", kInterval, "th is logged") : "", ")");
}

std::int64_t BrokenFiles::count() const {
  const std::scoped_lock lock(mutex_);
  return std::ssize(samples_);
}

}  // namespace sluice::data
