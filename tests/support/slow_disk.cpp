// slow_disk: a module for LD_PRELOAD whose fsync() takes SLUICE_TEST_FSYNC_S seconds longer, as on a disk that is busy
// or far away. It lets a test make one process save slowly without a hook in Sluice.
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <thread>

extern "C" int fsync(int file) {
  if (const char* const seconds = std::getenv("SLUICE_TEST_FSYNC_S"))
    std::this_thread::sleep_for(std::chrono::duration<double>(std::atof(seconds)));
  using Fsync = int (*)(int);
  static const auto real = reinterpret_cast<Fsync>(::dlsym(RTLD_NEXT, "fsync"));
  return real(file);
}
