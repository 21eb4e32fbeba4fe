#include "cli/generate.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace deepinfer::cli {

RequestResult generate(EngineInterface& engine, Request request,
                       const std::function<void(std::string_view)>& on_text, const std::atomic<bool>& stop) {
  // Shared with the engine's thread, which lets go of it before `result` is seen here.
  std::mutex mutex;
  std::condition_variable changed;
  std::string text;
  std::optional<RequestResult> result;

  Sink sink;
  sink.on_delta = [&](Delta&& delta) {
    if (delta.index != 0) return;
    const std::lock_guard lock(mutex);
    text += delta.text;
    changed.notify_one();
  };
  sink.on_done = [&](RequestResult&& done) {
    const std::lock_guard lock(mutex);
    result = std::move(done);
    changed.notify_one();
  };
  const RequestHandle handle = engine.submit(std::move(request), std::move(sink));
  bool cancelled = false;
  std::unique_lock lock(mutex);
  while (!result || !text.empty()) {
    changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return result || !text.empty(); });
    const std::string piece = std::exchange(text, {});
    lock.unlock();
    if (!piece.empty()) on_text(piece);
    if (stop && !cancelled) {
      engine.cancel(handle);
      cancelled = true;
    }
    lock.lock();
  }
  return std::move(*result);
}

}  // namespace deepinfer::cli
