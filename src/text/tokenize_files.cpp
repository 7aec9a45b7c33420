#include "text/tokenize_files.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/failpoint.h"
#include "core/log.h"
#include "core/text.h"
#include "storage/checksum.h"
#include "storage/files.h"
#include "storage/folder_lock.h"
#include "text/document_encoder.h"
#include "text/record_reader.h"
#include "text/token_file.h"
#include "text/token_writer.h"

namespace sluice::text {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kBatchBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostBytesAtWork = kMostRecordBytes;
constexpr Nanoseconds kSaveEvery = 2'000'000'000;

struct Batch {
  const DocumentText* rule = nullptr;
  std::uint64_t first_record = 0;
  std::string bytes;
  std::vector<std::size_t> ends;                  // of records, in `bytes`
  std::uint64_t end_offset = 0, end_records = 0;  // in the file

  EncodedDocuments documents;
  std::exception_ptr error;
  bool is_done = false;
};

// Encodes batches on its threads.
class Encoders {
 public:
  Encoders(const DocumentEncoder& encoder, int threads) : encoder_(encoder) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Encoders() {
    {
      const std::scoped_lock lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
  }
  Encoders(const Encoders&) = delete;
  Encoders& operator=(const Encoders&) = delete;

  void start(const std::shared_ptr<Batch>& batch) {
    {
      const std::scoped_lock lock(mutex_);
      waiting_.push_back(batch);
    }
    changed_.notify_all();
  }
  void wait_for(const Batch& batch) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return batch.is_done; });
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stops_ || !waiting_.empty(); });
      if (stops_) return;
      const auto batch = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      try {
        encode(*batch);
      } catch (...) {
        batch->error = std::current_exception();
      }
      lock.lock();
      batch->is_done = true;
      changed_.notify_all();
    }
  }

  void encode(Batch& batch) const {
    std::vector<std::string_view> records;
    std::size_t begin = 0;
    for (const std::size_t end : batch.ends) {
      records.push_back(std::string_view(batch.bytes).substr(begin, end - begin));
      begin = end;
    }
    batch.documents = encoder_.encode(*batch.rule, records, batch.first_record);
  }

  const DocumentEncoder& encoder_;
  std::mutex mutex_;  // of all below and Batch::is_done
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Batch>> waiting_;
  bool stops_ = false;
  std::vector<std::jthread> threads_;
};

struct Job {
  fs::path input, output;
  DocumentText rule;
  RecordReader reader;
  std::string source;
};

// What a token file depends on, but for the text between the first and the last 64 KiB of the file.
std::string source_of(const RecordReader& reader, const fs::path& file, const std::string& options) {
  constexpr std::uint64_t kEdge = std::uint64_t{1} << 16;
  const FileDescriptor handle = storage::open_for_reading(file);
  std::string edges(2 * kEdge, '\0');
  const auto read = [&](std::uint64_t from, char* out) {
    return ::pread(handle.get(), out, kEdge, static_cast<off_t>(from));
  };
  if (read(0, edges.data()) < 0 || read(reader.bytes() - std::min(kEdge, reader.bytes()), edges.data() + kEdge) < 0) {
    throw DataError(file.string(), ": cannot be read; check the disk");
  }
  return storage::digest_text(concat(options, "\n", reader.bytes(), "\n", edges)).xxh3_128;
}

TokenId end_id(const Tokenizer& tokenizer, const std::string& name) {
  const std::string token = name == "auto" ? end_of_text_token(tokenizer) : name;
  if (token.empty() || token == "none") return kNoToken;
  const TokenId id = tokenizer.find(token);
  if (id == kNoToken) {
    throw ConfigError("the tokenizer has no token \"", printable(token),
                      "\" to end a document; choose another with --end-token, or none");
  }
  return id;
}

class Tokenizing {
 public:
  Tokenizing(const TokenizeOptions& options, const Tokenizer& tokenizer,
             const std::function<void(const TokenizeProgress&)>& on_progress)
      : options_(options),
        on_progress_(on_progress),
        vocabulary_(static_cast<std::uint64_t>(tokenizer.end_id())),
        tokenizer_digest_(storage::digest_file(options.tokenizer).xxh3_128),
        end_(end_id(tokenizer, options.end_token)),
        encoder_(tokenizer, end_, options.adds_special_tokens),
        encoders_(encoder_, options.threads) {}

  std::vector<TokenizedFile> run(const std::vector<fs::path>& files) {
    for (const fs::path& file : files) add_job(file);
    std::vector<TokenizedFile> results;
    for (Job& job : jobs_) {
      results.push_back(run(job));
      bytes_before_ += job.reader.bytes();
    }
    return results;
  }

 private:
  void add_job(const fs::path& file) {
    DocumentText rule(file, options_.rule, options_.column);
    RecordReader reader(file, rule.kind());
    if (reader.bytes() == 0) throw DataError(file.string(), ": is empty; leave it out");
    const fs::path output = options_.folder / (file.stem().string() + ".tokens");
    for (const Job& other : jobs_) {
      if (other.output == output) {
        throw ConfigError(other.input.string(), " and ", file.string(), " would both become ", output.string(),
                          "; give them to two commands with another --out each");
      }
    }
    const std::string what =
        concat("1 ", tokenizer_digest_, " ", end_, " ", options_.adds_special_tokens, " ",
               static_cast<int>(rule.kind()), " ", file.extension().string(), " ", options_.column);
    std::string source = source_of(reader, file, what);
    all_bytes_ += reader.bytes();
    jobs_.push_back({file, output, std::move(rule), std::move(reader), std::move(source)});
  }

  // Whether the output is there. Another file in its place is an error.
  bool is_finished(const Job& job, TokenizedFile& result) const {
    if (!fs::exists(job.output)) return false;
    const auto advice = "; remove it, or choose another --out";
    try {
      const TokenFile done(job.output);
      const bool is_newer = fs::last_write_time(job.output) >= fs::last_write_time(job.input);
      if (done.layout().source != job.source || !is_newer) {
        throw ConfigError(job.output.string(),
                          " was made from another text, or with another tokenizer or other options", advice);
      }
      done.verify();
      result.tokens = done.tokens();
      result.documents = done.documents();
    } catch (const DataError& error) {
      throw ConfigError(error.what(), "; it is in the way: remove it, or choose another --out");
    }
    TokenWriter::remove_leftovers(job.output);
    return result.was_finished = true;
  }

  TokenizedFile run(Job& job) {
    TokenizedFile result{.file = job.output};
    if (is_finished(job, result)) return result;
    TokenWriter writer(job.output, {.vocabulary = vocabulary_,
                                    .tokenizer = tokenizer_digest_,
                                    .source = job.source,
                                    .changed = job.reader.changed()});
    if (job.rule.has_head()) {
      std::string head;
      job.reader.next(head);
      job.rule.read_head(head);
    }
    if (const TokenProgress& before = writer.progress(); before.input_bytes > 0) {
      log_info("going on with ", job.input.string(), " at ", human_bytes(before.input_bytes), " of ",
               human_bytes(job.reader.bytes()));
      job.reader.seek(before.input_bytes, before.records);
    }
    encode_all(job, writer, result);
    if (writer.progress().documents == 0) {
      TokenWriter::remove_leftovers(job.output);
      throw DataError(job.input.string(), ": has no text; leave it out");
    }
    failpoint("tokenize-finish");
    writer.finish();
    result.tokens = writer.progress().tokens;
    result.documents = writer.progress().documents;
    return result;
  }

  void encode_all(Job& job, TokenWriter& writer, TokenizedFile& result) {
    std::deque<std::shared_ptr<Batch>> at_work;
    std::uint64_t bytes_at_work = 0;
    Nanoseconds saved_at = 0;  // the first batch is saved at once, so that a folder that takes nothing is noticed
    std::shared_ptr<Batch> next = read_batch(job);
    while (next || !at_work.empty()) {
      const bool has_room = at_work.empty() || (at_work.size() < 4 * static_cast<std::size_t>(options_.threads) &&
                                                bytes_at_work + (next ? next->bytes.size() : 0) <= kMostBytesAtWork);
      if (next && has_room) {
        bytes_at_work += next->bytes.size();
        encoders_.start(at_work.emplace_back(std::move(next)));
        next = read_batch(job);
        continue;
      }
      const auto batch = std::move(at_work.front());
      at_work.pop_front();
      encoders_.wait_for(*batch);
      bytes_at_work -= batch->bytes.size();
      if (batch->error) std::rethrow_exception(batch->error);
      writer.append(batch->documents.ids, batch->documents.lengths);
      result.empty += batch->documents.empty;
      result.repaired += batch->documents.repaired;
      on_progress_({job.input, bytes_before_ + batch->end_offset, all_bytes_});
      failpoint("tokenize-batch");
      const bool is_last = !next && at_work.empty();
      if (!is_last && now_ns() - saved_at < kSaveEvery) continue;
      writer.save(batch->end_offset, batch->end_records);
      failpoint("tokenize-save");
      saved_at = now_ns();
    }
  }

  // Null: the file has ended.
  static std::shared_ptr<Batch> read_batch(Job& job) {
    auto batch = std::make_shared<Batch>();
    batch->rule = &job.rule;
    batch->first_record = job.reader.records();
    while (batch->bytes.size() < kBatchBytes && job.reader.next(batch->bytes))
      batch->ends.push_back(batch->bytes.size());
    batch->end_offset = job.reader.offset();
    batch->end_records = job.reader.records();
    return batch->ends.empty() ? nullptr : batch;
  }

  const TokenizeOptions& options_;
  const std::function<void(const TokenizeProgress&)>& on_progress_;
  std::uint64_t vocabulary_;
  std::string tokenizer_digest_;
  TokenId end_;
  std::deque<Job> jobs_;
  std::uint64_t bytes_before_ = 0, all_bytes_ = 0;
  DocumentEncoder encoder_;
  Encoders encoders_;  // last: its threads use the jobs
};

}  // namespace

std::vector<TokenizedFile> tokenize_files(const std::vector<fs::path>& files, const TokenizeOptions& options,
                                          const std::function<void(const TokenizeProgress&)>& on_progress) {
  const auto tokenizer = open_tokenizer(options.tokenizer);
  storage::make_directories(options.folder);
  const FileDescriptor lock = storage::lock_folder(options.folder, "folder", "choose another --out");
  return Tokenizing(options, *tokenizer, on_progress).run(files);
}

}  // namespace sluice::text
