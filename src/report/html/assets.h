// assets: the parts of a page that are files of their own in the sources (page.html, *.css, *.js) and Chart.js of the
// system, put into the program when it is built (cmake/SluiceEmbed.cmake).
#pragma once

#include <string_view>

namespace sluice::report::assets {

extern const std::string_view kPage;    // page.html
extern const std::string_view kStyle;   // style.css
extern const std::string_view kScript;  // our own, one after another
extern const std::string_view kChart;   // Chart.js, with its licence notice

}  // namespace sluice::report::assets
