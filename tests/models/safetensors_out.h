// safetensors_out: writes tensors for the comparisons with PyTorch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>

#include "core/concat.h"

namespace sluice::models {

using Tensors = std::map<std::string, at::Tensor>;

// One tensor at a time: VGG-16 in float64 is 1 GB of weights and 1 GB of gradients.
inline void write_safetensors(const Tensors& tensors, const std::string& path) {
  std::string header = "{";
  std::size_t end = 0;
  for (const auto& [name, value] : tensors) {
    const char* type = value.scalar_type() == at::kLong ? "I64" : value.scalar_type() == at::kDouble ? "F64" : "F32";
    std::string shape;
    for (const auto size : value.sizes()) shape += concat(shape.empty() ? "" : ",", size);
    header += concat(header.size() > 1 ? "," : "", "\"", name, "\":{\"dtype\":\"", type, "\",\"shape\":[", shape,
                     "],\"data_offsets\":[", end, ",", end + value.nbytes(), "]}");
    end += value.nbytes();
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');  // the reader maps the tensors where they lie
  const std::uint64_t size = header.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file << header;
  for (const auto& [name, value] : tensors) {
    const at::Tensor data = value.detach().contiguous();
    file.write(static_cast<const char*>(data.const_data_ptr()), static_cast<std::streamsize>(data.nbytes()));
  }
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace sluice::models
