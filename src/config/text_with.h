// text_with: a configuration file that is changed as its user would: values in place, the rest as it was. Errors:
// ConfigError, one line that begins with FILE or FILE:LINE.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "config/config.h"

namespace sluice::config {

// The file as it stands.
[[nodiscard]] std::string read_text(const std::filesystem::path& path);

// The text with the values of `wanted` where they differ from what it says. Comments, order and layout stay. parse() of
// it gives `wanted`. name: stands for the file in messages.
[[nodiscard]] std::string text_with(std::string_view text, std::string_view name, const Config& wanted);

}  // namespace sluice::config
