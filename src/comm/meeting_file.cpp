#include "comm/meeting_file.h"

#include <fstream>
#include <iterator>
#include <random>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "comm/socket_address.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/host.h"

namespace sluice::comm {
namespace fs = std::filesystem;

std::string draw_run() {
  std::random_device device;
  return concat(device(), "-", device(), "-", device(), "-", device());
}

std::string meeting_key(const std::string& run) { return concat("meeting/", run); }

std::optional<MeetingNote> read_meeting(const fs::path& file) {
  if (std::error_code error; !fs::is_regular_file(file, error)) return std::nullopt;  // a folder cannot be read
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  try {
    return MeetingNote{.address = json.at("address"),
                       .port = json.at("port"),
                       .run = json.at("run"),
                       .machine = json.at("machine"),
                       .host = json.at("host")};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

bool is_out_of_reach(const MeetingNote& meeting) {
  return is_loopback(meeting.address) && meeting.machine != boot_id();
}

MeetingFile::MeetingFile(fs::path file, const std::string& address, int port, std::string run)
    : file_(std::move(file)), run_(std::move(run)) {
  std::error_code error;
  if (!fs::is_directory(file_.parent_path(), error)) {
    throw ConfigError(concat("--init file://", file_.string(),
                             ": the folder does not exist; create it on a disk that all ranks share"));
  }
  const nlohmann::json json{
      {"address", address}, {"port", port}, {"run", run_}, {"machine", boot_id()}, {"host", host_name()}};
  fs::path whole = file_;
  whole += concat(".", run_);
  std::ofstream out(whole, std::ios::binary);
  out << json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  out.close();
  if (out) fs::rename(whole, file_, error);
  if (out && !error) return;
  const std::string why = error ? error.message() : "it cannot be written";
  fs::remove(whole, error);
  throw StorageError("--init file://", file_.string(), ": ", why, "; choose a file that rank 0 can write");
}

MeetingFile::~MeetingFile() {
  std::error_code ignored;
  if (is_there()) fs::remove(file_, ignored);
}

bool MeetingFile::is_there() const {
  const auto now = read_meeting(file_);
  return now && now->run == run_;
}

}  // namespace sluice::comm
