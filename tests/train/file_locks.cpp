#include "file_locks.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>

namespace sluice::train::test {
namespace {

std::atomic<bool> refuses_locks = false;

}  // namespace

void refuse_locks(bool refuses) { refuses_locks = refuses; }

int lock(int file, int operation) {
  if (refuses_locks) {
    errno = ENOLCK;
    return -1;
  }
  static const auto of_system = reinterpret_cast<int (*)(int, int)>(::dlsym(RTLD_NEXT, "flock"));
  return of_system(file, operation);
}

}  // namespace sluice::train::test

// Takes the place of the system's in the whole program.
extern "C" int flock(int file, int operation) noexcept { return sluice::train::test::lock(file, operation); }
