// operator_calls: counts the operators of LibTorch that the calling thread runs while an object lives.
#pragma once

#include <map>
#include <string>

#include <ATen/record_function.h>

namespace sluice {

class OperatorCalls {
 public:
  OperatorCalls() {
    calls().clear();
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&count).scopes({at::RecordScope::FUNCTION}));
  }
  ~OperatorCalls() { at::removeCallback(handle_); }
  OperatorCalls(const OperatorCalls&) = delete;
  OperatorCalls& operator=(const OperatorCalls&) = delete;

  [[nodiscard]] int of(const std::string& name) const {
    const auto found = calls().find(name);
    return found == calls().end() ? 0 : found->second;
  }
  [[nodiscard]] int all() const {
    int sum = 0;
    for (const auto& [name, count] : calls()) sum += count;
    return sum;
  }

 private:
  static std::map<std::string, int>& calls() {
    static thread_local std::map<std::string, int> counts;
    return counts;
  }
  static std::unique_ptr<at::ObserverContext> count(const at::RecordFunction& call) {
    ++calls()[call.name()];
    return nullptr;
  }

  at::CallbackHandle handle_;
};

}  // namespace sluice
