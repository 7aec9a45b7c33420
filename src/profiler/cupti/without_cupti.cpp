// Session for builds without CUPTI's headers.
#include "profiler/cupti/session.h"

namespace sluice::cupti {

std::unique_ptr<Session> Session::start(const SessionOptions&, std::string& why) {
  why = "this build of Sluice has no CUPTI";
  return nullptr;
}

bool Session::is_taken(const SessionOptions&, std::string&) { return false; }

}  // namespace sluice::cupti
