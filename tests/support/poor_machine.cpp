// poor_machine: a module for LD_PRELOAD that lets a test start one process as on a poorer machine, without a hook in
// Sluice. SLUICE_TEST_FSYNC_S: fsync() takes so many seconds longer, as on a disk that is busy or far away.
// SLUICE_TEST_THREADS: so many threads are started, and no more, as under a limit of processes.
// SLUICE_TEST_NO_THREADS_IF: no thread is started once this file is there.
// SLUICE_TEST_SILENT_DNS: no DNS server answers a lookup of the name of an address.
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

template <typename Function>
Function the_real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int fsync(int file) {
  if (const char* const seconds = std::getenv("SLUICE_TEST_FSYNC_S"))
    std::this_thread::sleep_for(std::chrono::duration<double>(std::atof(seconds)));
  return the_real<int (*)(int)>("fsync")(file);
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* with) {
  static std::atomic<int> started{0};
  const char* const most = std::getenv("SLUICE_TEST_THREADS");
  const char* const sign = std::getenv("SLUICE_TEST_NO_THREADS_IF");
  const bool has_sign = sign != nullptr && ::access(sign, F_OK) == 0;
  if (has_sign || (most != nullptr && started++ >= std::atoi(most))) {
    // A moment later: meanwhile the threads that there are have begun to wait.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return EAGAIN;
  }
  return the_real<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create")(
      thread, attributes, start, with);
}

extern "C" int getnameinfo(const sockaddr* address, socklen_t length, char* host, socklen_t host_length, char* service,
                           socklen_t service_length, int flags) {
  if (std::getenv("SLUICE_TEST_SILENT_DNS") != nullptr && (flags & NI_NUMERICHOST) == 0) {
    int timeout_s = 5, attempts = 2;  // as resolv.conf(5) says
    if (const char* const options = std::getenv("RES_OPTIONS"))
      (void)std::sscanf(options, "timeout:%d attempts:%d", &timeout_s, &attempts);
    std::this_thread::sleep_for(std::chrono::seconds(timeout_s * attempts));
    return EAI_AGAIN;
  }
  return the_real<decltype(&::getnameinfo)>("getnameinfo")(address, length, host, host_length, service, service_length,
                                                           flags);
}
