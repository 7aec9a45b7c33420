// loader: samples per second of the data loader. For every line of standard input it takes --batches of the loader and
// prints a JSON object: samples_per_s by the clock, and cpu_ms of the whole process.
//   bench_loader folder|cifar10 PATH [SIZE [BATCH [BATCHES [WORKERS]]]]
// folder: random resized crop of 8 to 100 %, flip; cifar10: crop after padding by 4, flip. Both normalised to float32.
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/clock.h"
#include "core/error.h"
#include "data/dataset.h"
#include "data/loader.h"

namespace sluice {
namespace {

double cpu_ms() { return 1e3 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

data::LoaderOptions options_of(const std::string& kind, int image_size) {
  data::LoaderOptions options;
  options.augment.horizontal_flip = true;
  if (kind == "folder") {
    options.sizes.image_size = image_size;
    options.augment.crop_area = 0.08;
  } else {
    options.augment.crop_padding = 4;
  }
  return options;
}

int run(const std::vector<std::string>& words) {
  check(words.size() >= 2, "bench_loader folder|cifar10 PATH [SIZE [BATCH [BATCHES [WORKERS]]]]");
  const auto number = [&](std::size_t at, int otherwise) {
    return words.size() > at ? std::stoi(words[at]) : otherwise;
  };
  const std::string name = words[0] == "folder" ? "image_folder" : words[0];
  const std::shared_ptr<data::Dataset> set = data::open_dataset({.name = name, .path = words[1]}, data::Split::kTrain);
  data::LoaderOptions options = options_of(words[0], number(2, 224));
  options.batch_size = number(3, 64);
  options.threads = number(5, 1);
  const int batches = number(4, 10);
  data::Loader loader(*set, options);
  for (std::string line; std::getline(std::cin, line);) {
    for (int i = 0; i < options.prefetch; ++i) loader.next();  // batches made while other programs had their turn
    const Nanoseconds begin = now_ns();
    const double cpu = cpu_ms();
    std::int64_t samples = 0;  // the last batch of an epoch may be short
    for (int i = 0; i < batches; ++i) samples += loader.next()->samples();
    const double seconds = 1e-9 * static_cast<double>(now_ns() - begin);
    std::cout << "{\"samples_per_s\": " << static_cast<double>(samples) / seconds << ", \"cpu_ms\": " << cpu_ms() - cpu
              << "}" << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int count, char** words) {
  try {
    return sluice::run({words + 1, words + count});
  } catch (const std::exception& error) {
    std::cerr << "bench_loader: " << error.what() << '\n';
    return 1;
  }
}
