#include "batch/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace deepinfer {
namespace {

constexpr std::size_t kMaxHistory = 2000;
constexpr double kRecentSeconds = 10;

double rate(double amount, double seconds) {
  return seconds > 0 ? amount / seconds : 0;
}

std::string per_second(double value) {
  return with_commas(std::llround(value));
}

}  // namespace

std::string with_commas(std::int64_t value) {
  std::string digits = fmt::format("{}", value);
  const std::int64_t first = value < 0 ? 1 : 0;
  for (auto at = static_cast<std::int64_t>(digits.size()) - 3; at > first; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

std::string format_duration(double seconds) {
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole / 60 % 60);
}

ProgressMeter::ProgressMeter(const BatchCounters& counters, std::int64_t total_bytes)
    : counters_(counters), total_bytes_(total_bytes) {
  history_.push_back({0, 0, 0});
  recent_.push_back({0, 0, 0});
}

double ProgressMeter::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

void ProgressMeter::sample(const EngineStats& engine) {
  const Sample now{seconds(), engine.tokens_in, engine.tokens_out};
  recent_.push_back(now);
  const auto old = std::find_if(recent_.begin(), recent_.end(),
                                [&](const Sample& s) { return s.seconds >= now.seconds - kRecentSeconds; });
  // One sample older than the window stays as its left border.
  if (old - recent_.begin() > 1) recent_.erase(recent_.begin(), old - 1);
  if (++since_kept_ < stride_) return;
  since_kept_ = 0;
  history_.push_back(now);
  if (history_.size() < kMaxHistory) return;
  for (std::size_t i = 0; i * 2 < history_.size(); ++i) history_[i] = history_[i * 2];
  history_.resize((history_.size() + 1) / 2);
  stride_ *= 2;
}

std::string ProgressMeter::line(const EngineStats& engine) const {
  const std::int64_t ok = counters_.ok;
  const std::int64_t failed = counters_.failed;
  const std::int64_t skipped = counters_.skipped;
  std::string out = fmt::format("{} done, {} failed", with_commas(ok), with_commas(failed));
  if (skipped > 0) out += fmt::format(", {} before", with_commas(skipped));
  if (counters_.input_ended) out += fmt::format(" of {}", with_commas(counters_.lines_read));
  const Sample& border = recent_.front();
  const double span = seconds() - border.seconds;
  out += fmt::format(" | in {} tok/s, out {} tok/s",
                     per_second(rate(static_cast<double>(engine.tokens_in - border.tokens_in), span)),
                     per_second(rate(static_cast<double>(engine.tokens_out - border.tokens_out), span)));
  out += fmt::format(" | {} running, {} waiting", with_commas(engine.running),
                     with_commas(std::max<std::int64_t>(counters_.in_flight - engine.running, 0)));
  if (total_bytes_ > 0) {
    const auto finished = static_cast<double>(counters_.bytes_finished);
    const auto free = static_cast<double>(counters_.bytes_skipped);
    const auto total = static_cast<double>(total_bytes_);
    out += fmt::format(" | {:.0f} %", std::min(100.0, 100 * (finished + free) / total));
    // Skipped lines cost nothing, so only this run's own say how fast it is.
    if (finished > 0 && finished + free < total) {
      out += fmt::format(", {} left", format_duration(seconds() * (total - free - finished) / finished));
    }
  }
  return out;
}

std::vector<double> ProgressMeter::tenths() const {
  constexpr int kParts = 10;
  std::vector<double> out;
  const double total = history_.back().seconds;
  if (total <= 0 || history_.size() <= kParts) return out;
  const auto tokens_at = [&](double moment) {
    const auto after =
        std::find_if(history_.begin(), history_.end(), [&](const Sample& s) { return s.seconds >= moment; });
    if (after == history_.begin() || after == history_.end()) {
      const Sample& s = after == history_.end() ? history_.back() : *after;
      return static_cast<double>(s.tokens_in + s.tokens_out);
    }
    const Sample& a = *(after - 1);
    const Sample& b = *after;
    const double part = (moment - a.seconds) / (b.seconds - a.seconds);
    const auto from = static_cast<double>(a.tokens_in + a.tokens_out);
    return from + part * (static_cast<double>(b.tokens_in + b.tokens_out) - from);
  };
  for (int i = 0; i < kParts; ++i) {
    out.push_back((tokens_at(total * (i + 1) / kParts) - tokens_at(total * i / kParts)) / (total / kParts));
  }
  return out;
}

std::string format_report(const BatchReport& report, const EngineStats& engine) {
  std::string out =
      fmt::format("{} answered, {} failed", with_commas(report.ok_count), with_commas(report.failed_count));
  if (report.skipped_count > 0) {
    out += fmt::format(", {} done before", with_commas(report.skipped_count));
    if (report.skipped_failed_count > 0)
      out += fmt::format(" ({} of them failed)", with_commas(report.skipped_failed_count));
  }
  out +=
      fmt::format(" in {}{}\n", format_duration(report.seconds), report.interrupted ? " (interrupted)" : "");
  if (report.dropped_count > 0) {
    out += fmt::format("{} results that a crash had left incomplete were computed again\n",
                       with_commas(report.dropped_count));
  }
  out += fmt::format(
      "tokens: {} in ({}/s), {} out ({}/s); first token after {}\n", with_commas(report.tokens_in),
      per_second(rate(static_cast<double>(report.tokens_in), report.seconds)), with_commas(report.tokens_out),
      per_second(rate(static_cast<double>(report.tokens_out), report.seconds)),
      format_duration(report.seconds_to_first_token));
  const StageSeconds& s = report.stages;
  out += fmt::format(
      "seconds by stage: read {:.1f}, tokenise {:.1f}, write {:.1f}; summed over requests: queue {:.1f}, "
      "prefill {:.1f}, decode {:.1f}\n",
      s.read, s.tokenise, s.write, s.queue, s.prefill, s.decode);
  if (!engine.stage_seconds.empty()) {
    out += "engine:";
    for (const auto& [name, seconds] : engine.stage_seconds) out += fmt::format(" {} {:.1f},", name, seconds);
    out += fmt::format(" {} steps, {} preemptions\n", with_commas(engine.steps),
                       with_commas(engine.preemptions));
  }
  if (!report.tokens_per_second.empty()) {
    out += "tokens/s in each tenth of the run:";
    for (const double value : report.tokens_per_second) out += " " + per_second(value);
    out += "\n";
  }
  return out;
}

}  // namespace deepinfer
