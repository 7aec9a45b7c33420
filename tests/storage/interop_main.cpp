// records_interop: the C++ half of interop_test.py.
//   records_interop write DIR   writes every_dtype.safetensors, events/ and metrics.jsonl
//   records_interop read FILE   checks a file with the same tensors that Python wrote; exit status 1 when it differs
#include <ATen/ATen.h>

#include <cmath>
#include <iostream>
#include <string_view>

#include "report/event_writer.h"
#include "report/metrics_writer.h"
#include "storage/safetensors.h"

namespace sluice::storage {
namespace {

// The same values as tensors() in interop_test.py.
TensorMap tensors() {
  TensorMap map;
  for (const auto& [name, dtype] :
       std::initializer_list<std::pair<const char*, at::ScalarType>>{{"f64", at::kDouble},
                                                                     {"f32", at::kFloat},
                                                                     {"f16", at::kHalf},
                                                                     {"bf16", at::kBFloat16},
                                                                     {"i64", at::kLong},
                                                                     {"i32", at::kInt},
                                                                     {"i16", at::kShort},
                                                                     {"i8", at::kChar},
                                                                     {"u8", at::kByte}}) {
    map[name] = at::arange(12, at::kInt).reshape({3, 4}).to(dtype);
  }
  map["bool"] = at::arange(5, at::kInt).remainder(2).to(at::kBool);
  map["scalar"] = at::full({}, 2.5, at::kFloat);
  map["empty"] = at::empty({0, 3}, at::kFloat);
  map["ünï \"quoted\""] = at::ones({1}, at::kFloat);
  return map;
}

void write_all(const std::filesystem::path& dir) {
  write_safetensors(dir / "every_dtype.safetensors", tensors());
  {
    report::EventWriter writer(dir / "events");
    for (int step = 0; step < 5; ++step) writer.scalar(step, "loss", 1.0 / (1 + step));
    writer.scalar(4, "diverged", std::nan(""));
    writer.text(0, "config", "lr = **0.1**");
  }
  report::EventWriter resumed(dir / "events", 3);
  for (int step = 3; step < 7; ++step) resumed.scalar(step, "loss", 100.0 + step);
  report::MetricsWriter metrics(dir / "metrics.jsonl");
  metrics.write("step", {{"step", 1}, {"loss", std::nan("")}, {"lr", INFINITY}, {"ü", 0.1}});
}

bool read_back(const std::filesystem::path& file) {
  const auto found = read_safetensors(file).tensors;
  const auto expected = tensors();
  if (found.size() != expected.size()) return false;
  for (const auto& [name, tensor] : expected) {
    const auto it = found.find(name);
    if (it == found.end() || it->second.scalar_type() != tensor.scalar_type() || !it->second.equal(tensor)) {
      std::cerr << "differs: " << name << "\n";
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace sluice::storage

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  if (std::string_view(argv[1]) == "write") {
    sluice::storage::write_all(argv[2]);
    return 0;
  }
  return sluice::storage::read_back(argv[2]) ? 0 : 1;
}
