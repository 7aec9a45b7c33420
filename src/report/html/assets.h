// assets: page.html, CSS, JS and the system's Chart.js, embedded at build time (cmake/SluiceEmbed.cmake).
#pragma once

#include <string_view>

namespace sluice::report::assets {

extern const std::string_view kPage;
extern const std::string_view kStyle;
extern const std::string_view kScript;  // Sluice's scripts, concatenated
extern const std::string_view kChart;   // with its licence notice

}  // namespace sluice::report::assets
