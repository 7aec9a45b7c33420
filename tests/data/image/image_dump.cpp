// Decodes and resizes picture files for compare_with_pillow.py, one line of standard input after the other:
//   decode FILE OUT TOP LEFT HEIGHT WIDTH            a part of the picture (HEIGHT 0: all)
//   resize FILE OUT bilinear|bicubic HEIGHT WIDTH TOP LEFT HEIGHT WIDTH    to a size, of which a part
// OUT gets the bytes. Answers with "ok HEIGHT WIDTH" of the picture, or "error " and what is wrong.
//   list FOLDER OUT train|test                       of an image folder: OUT gets a line a sample, LABEL FILE
//   sized FOLDER OUT train|test INDEX SIZE RESIZE bilinear|bicubic    a sample as evaluation takes it: OUT gets planes
//   sample FOLDER OUT train|test INDEX SIZE skip|fatal    likewise, normalised, OUT gets float32; answers "ok TARGET"
//   operation FILE OUT NUMBER MAGNITUDE              of RandAugment, on the whole picture
//   hue FILE OUT TURN
//   magnitudes - OUT HEIGHT WIDTH                    OUT gets a line an operation: that of each strength
//   stored FOLDER OUT NAME train|test INDEX          of any data set, as read() has it; answers "ok TARGET of CLASSES"
//   encoded FOLDER OUT NAME train|val INDEX          of one that is encoded: OUT gets the bytes of the file
//   files FOLDER OUT NAME train|val                  OUT gets a line a sample, LABEL FILE
//   numbers FOLDER OUT NAME train|test               answers "ok ", its means and its deviations
//   mixes - OUT HEIGHT WIDTH MIXUP CUTMIX COUNT      OUT gets a line a draw, SHARE TOP LEFT HEIGHT WIDTH; blended: -1s
//   crops - OUT HEIGHT WIDTH AREA COUNT              OUT gets a line a draw, TOP LEFT HEIGHT WIDTH; AREA 0: erasing
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>

#include "core/error.h"
#include "data/image/adjust.h"
#include "data/image/crop.h"
#include "data/image/decode.h"
#include "data/image/rand_augment.h"
#include "data/image/resample.h"
#include "data/image_folder.h"
#include "data/image_sizer.h"
#include "data/mix.h"
#include "data/sample_reader.h"

namespace sluice::data {
namespace {

std::vector<std::uint8_t> read_file(const std::string& name) {
  std::ifstream in(name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Box read_box(std::istream& line) {
  Box box;
  line >> box.top >> box.left >> box.height >> box.width;
  return box;
}

Interpolation read_interpolation(std::istream& line) {
  std::string name;
  line >> name;
  return name == "bicubic" ? Interpolation::kBicubic : Interpolation::kBilinear;
}

std::unique_ptr<Dataset> read_folder(const std::string& path, std::istream& line) {
  std::string split;
  line >> split;
  return open_image_folder(path, split == "train" ? Split::kTrain : Split::kTest);
}

std::string list_files(const Dataset& set) {
  std::ostringstream out;
  for (std::int64_t i = 0; i < set.size(); ++i) out << set.target(i) << ' ' << set.file_of(i) << '\n';
  return out.str();
}

std::string list_folder(const std::string& path, std::istream& line) { return list_files(*read_folder(path, line)); }

std::string sized(const std::string& path, std::istream& line) {
  const auto folder = read_folder(path, line);
  std::int64_t index = 0;
  SizeOptions options;
  line >> index >> options.image_size >> options.resize;
  options.interpolation = read_interpolation(line);
  const ImageSizer sizer(*folder, options, 0);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(sizer.info().pixels()));
  sizer.read(index, 0, pixels);
  return {pixels.begin(), pixels.end()};
}

std::string sample(const std::string& path, std::istream& line, std::ostream& to) {
  const auto folder = read_folder(path, line);
  std::int64_t index = 0, size = 0;
  std::string broken;
  line >> index >> size >> broken;
  const SampleReader reader(*folder, {.sizes = {.image_size = size}, .skips_broken = broken == "skip"});
  const Samples samples = reader.read(std::vector{index}, 0);
  to.write(static_cast<const char*>(samples.at("inputs").const_data_ptr()),
           static_cast<std::streamsize>(samples.at("inputs").nbytes()));
  return "ok " + std::to_string(samples.at("targets").item<std::int64_t>());
}

std::unique_ptr<Dataset> read_dataset(const std::string& path, std::istream& line) {
  std::string name, split;
  line >> name >> split;
  return open_dataset({.name = name, .path = path}, split == "train" ? Split::kTrain : Split::kTest);
}

std::string stored(const std::string& path, std::istream& line, std::ostream& to) {
  const auto set = read_dataset(path, line);
  std::int64_t index = 0;
  line >> index;
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(set->info().pixels()));
  set->read(index, pixels);
  to.write(reinterpret_cast<const char*>(pixels.data()), std::ssize(pixels));
  return "ok " + std::to_string(set->target(index)) + " of " + std::to_string(set->info().classes);
}

std::string encoded(const std::string& path, std::istream& line, std::ostream& to) {
  const auto set = read_dataset(path, line);
  std::int64_t index = 0;
  line >> index;
  const std::vector<std::uint8_t> file = set->encoded(index);
  to.write(reinterpret_cast<const char*>(file.data()), std::ssize(file));
  return "ok";
}

std::string numbers(const std::string& path, std::istream& line) {
  const auto set = read_dataset(path, line);
  std::ostringstream out;
  out << "ok";
  for (const auto& values : {set->info().mean, set->info().stddev}) {
    for (const double value : values) out << ' ' << value;
  }
  return out.str();
}

std::string list_magnitudes(std::istream& line) {
  ImageSize image;
  line >> image.height >> image.width;
  std::ostringstream out;
  for (int number = 0; number < kOperations; ++number) {
    for (int strength = 0; strength <= kMostStrength; ++strength)
      out << magnitude_of(static_cast<Operation>(number), strength, image) << ' ';
    out << '\n';
  }
  return out.str();
}

std::string draw_crops(std::istream& line) {
  ImageSize image;
  double area = 0;
  int count = 0;
  line >> image.height >> image.width >> area >> count;
  std::ostringstream out;
  for (int i = 0; i < count; ++i) {
    RngStream rng(derive_key(7, static_cast<std::uint64_t>(i)));
    const Box box = area > 0 ? random_crop(image, area, rng) : random_part_to_erase(image, rng).value_or(Box{});
    out << box.top << ' ' << box.left << ' ' << box.height << ' ' << box.width << '\n';
  }
  return out.str();
}

std::string draw_mixes(std::istream& line) {
  ImageSize image;
  MixOptions options;
  int count = 0;
  line >> image.height >> image.width >> options.mixup >> options.cutmix >> count;
  std::ostringstream out;
  for (int i = 0; i < count; ++i) {
    const Mix mix = draw_mix(options, derive_key(7, static_cast<std::uint64_t>(i)), image);
    const Box box = mix.box.value_or(Box{-1, -1, -1, -1});
    out << mix.share << ' ' << box.top << ' ' << box.left << ' ' << box.height << ' ' << box.width << '\n';
  }
  return out.str();
}

Image run(const std::string& what, EncodedBytes file, std::istream& line) {
  const ImageSize whole = read_image_size(file);
  if (what == "operation" || what == "hue") {
    Image image = decode_image(file, {0, 0, whole.height, whole.width});
    int number = 0;
    double magnitude = 0;
    if (what == "operation") line >> number;
    line >> magnitude;
    if (what == "hue") adjust_hue(image, magnitude);
    if (what == "operation") apply(image, static_cast<Operation>(number), magnitude);
    return image;
  }
  if (what == "decode") {
    Box box = read_box(line);
    if (box.height == 0) box = {0, 0, whole.height, whole.width};
    return decode_image(file, box);
  }
  Resizing resizing{.whole = whole, .interpolation = read_interpolation(line)};
  line >> resizing.size.height >> resizing.size.width;
  resizing.window = read_box(line);
  return resample(decode_image(file, needed_source(resizing)), resizing);
}

std::string answer(const std::string& text) {
  std::istringstream line(text);
  std::string what, in, out;
  line >> what >> in >> out;
  try {
    std::ofstream to(out, std::ios::binary);
    if (what == "list") return to << list_folder(in, line), "ok";
    if (what == "sized") return to << sized(in, line), "ok";
    if (what == "sample") return sample(in, line, to);
    if (what == "stored") return stored(in, line, to);
    if (what == "encoded") return encoded(in, line, to);
    if (what == "files") return to << list_files(*read_dataset(in, line)), "ok";
    if (what == "numbers") return numbers(in, line);
    if (what == "magnitudes") return to << list_magnitudes(line), "ok";
    if (what == "mixes") return to << draw_mixes(line), "ok";
    if (what == "crops") return to << draw_crops(line), "ok";
    const std::vector<std::uint8_t> file = read_file(in);
    const Image image = run(what, file, line);
    to.write(reinterpret_cast<const char*>(image.pixels.data()), std::ssize(image.pixels));
    const ImageSize size = read_image_size(file);
    return "ok " + std::to_string(size.height) + " " + std::to_string(size.width);
  } catch (const Error& error) {
    return std::string("error ") + error.what();
  }
}

}  // namespace
}  // namespace sluice::data

int main() {
  for (std::string line; std::getline(std::cin, line);) std::cout << sluice::data::answer(line) << std::endl;
}
