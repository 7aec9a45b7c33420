// Decodes and resizes picture files for compare_with_pillow.py, one line of standard input after the other:
//   decode FILE OUT TOP LEFT HEIGHT WIDTH            a part of the picture (HEIGHT 0: all)
//   resize FILE OUT bilinear|bicubic HEIGHT WIDTH TOP LEFT HEIGHT WIDTH    to a size, of which a part
// OUT gets the bytes. Answers with "ok HEIGHT WIDTH" of the picture, or "error " and what is wrong.
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>

#include "core/error.h"
#include "data/image/decode.h"
#include "data/image/resample.h"

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

Image run(const std::string& what, EncodedBytes file, std::istream& line) {
  const ImageSize whole = read_image_size(file);
  if (what == "decode") {
    Box box = read_box(line);
    if (box.height == 0) box = {0, 0, whole.height, whole.width};
    return decode_image(file, box);
  }
  std::string interpolation;
  Resizing resizing{.whole = whole};
  line >> interpolation >> resizing.size.height >> resizing.size.width;
  resizing.window = read_box(line);
  if (interpolation == "bicubic") resizing.interpolation = Interpolation::kBicubic;
  return resample(decode_image(file, needed_source(resizing)), resizing);
}

std::string answer(const std::string& text) {
  std::istringstream line(text);
  std::string what, in, out;
  line >> what >> in >> out;
  try {
    const std::vector<std::uint8_t> file = read_file(in);
    const Image image = run(what, file, line);
    std::ofstream(out, std::ios::binary)
        .write(reinterpret_cast<const char*>(image.pixels.data()), std::ssize(image.pixels));
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
