// Compiled grammars by content, built in the background. A request asks for a key and gets a ticket; equal
// keys share one build and one grammar. Builds have a deadline, one slow build never holds up the others
// (workers are added while all are busy with long builds), and what is cached stays under a byte budget,
// least recently used first out.
//
// Thread-safe. The destructor cancels what is running and waits for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "grammar/compiled_grammar.h"

namespace deepinfer::grammar {

struct GrammarCacheOptions {
  std::size_t budget_bytes =
      256u << 20;  // CompiledGrammar::memory_bytes of what is kept; live tickets keep theirs anyway
  std::uint32_t workers = 1;                   // threads at rest
  std::uint32_t max_workers = 8;               // threads while slow builds hold the others
  std::chrono::milliseconds slow_after{200};   // a build that runs longer no longer counts as a free worker
  std::chrono::milliseconds deadline{10'000};  // a build that runs longer is cancelled: kDeadline
};

class GrammarCache {
 public:
  using Options = GrammarCacheOptions;
  /// Builds a grammar; must stop soon after the flag turns true.
  using Build = std::function<Result<GrammarPtr>(const CancelFlag& cancel)>;

  class Ticket {
   public:
    /// Whether the build is over.
    bool ready() const;
    /// Waits; at most `timeout`, then empty.
    std::optional<Result<GrammarPtr>> wait_for(std::chrono::milliseconds timeout) const;
    /// Waits until the build is over.
    Result<GrammarPtr> get() const;

   private:
    friend class GrammarCache;
    struct State;
    std::shared_ptr<State> state_;
  };

  explicit GrammarCache(Options options = {});
  ~GrammarCache();
  GrammarCache(const GrammarCache&) = delete;
  GrammarCache& operator=(const GrammarCache&) = delete;

  /// `key` must say everything that shapes the grammar: kind, options, text, vocabulary. Never blocks on a
  /// build. When the last ticket of a build is dropped before it ran, it does not run.
  Ticket request(const std::string& key, Build build);

  struct Stats {
    std::uint64_t hits = 0, builds = 0, failures = 0, evictions = 0;
    std::size_t grammars = 0, bytes = 0;
    std::uint32_t workers = 0;
  };
  Stats stats() const;

 private:
  struct Job {
    std::shared_ptr<Ticket::State> state;
    Build build;
    std::string key;
  };
  struct Kept {
    std::shared_ptr<Ticket::State> state;
    std::list<std::string>::iterator age;
    std::size_t bytes = 0;
  };

  void work();
  void watch();
  void keep(const std::string& key, const std::shared_ptr<Ticket::State>& state);

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable work_ready_, watch_ready_;
  bool stopping_ = false;
  std::deque<Job> queue_;
  std::vector<std::shared_ptr<Ticket::State>> running_;
  std::unordered_map<std::string, std::weak_ptr<Ticket::State>> pending_;
  std::unordered_map<std::string, Kept> kept_;
  std::list<std::string> ages_;  // newest first
  std::size_t kept_bytes_ = 0;
  Stats stats_;
  std::vector<std::thread> workers_;
  std::thread watcher_;
};

}  // namespace deepinfer::grammar
