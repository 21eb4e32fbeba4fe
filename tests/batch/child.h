// Starting the runner as a process of its own (runner_child.cc).
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "batch/batch_files.h"

namespace deepinfer::testing {

struct Child {
  std::string input, output, mode = "fresh", order = "any", delay_us = "0";
  std::string log = "";          // stdout and stderr; "" = /dev/null
  std::int64_t file_limit = -1;  // bytes a file may have
};

inline pid_t start(const Child& c) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  const int log = ::open(c.log.empty() ? "/dev/null" : c.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  if (c.file_limit >= 0) {
    const rlimit limit = {static_cast<rlim_t>(c.file_limit), static_cast<rlim_t>(c.file_limit)};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ::execl(DI_RUNNER_CHILD, DI_RUNNER_CHILD, c.input.c_str(), c.output.c_str(), c.mode.c_str(),
          c.order.c_str(), c.delay_us.c_str(), nullptr);
  ::_exit(127);
}

inline int wait_for(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// The child's largest private memory over an input of `lines` small requests.
inline std::int64_t peak_kib(const TempFolder& folder, std::int64_t lines) {
  {
    std::ofstream file(folder.file("in"), std::ios::binary);
    for (std::int64_t i = 0; i < lines; ++i) {
      file
          << fmt::format(
                 R"({{"custom_id":"request-{}","method":"POST","url":"/v1/completions","body":{{"prompt":"hello {}"}}}})",
                 i, i)
          << "\n";
    }
  }
  const int code =
      wait_for(start({folder.file("in"), folder.file("out"), "resume", "any", "0", folder.file("log")}));
  EXPECT_EQ(code, 0) << read_file(folder.file("log"));
  std::filesystem::remove(folder.file("out.journal"));
  std::filesystem::remove(folder.file("out"));
  return std::atoll(read_file(folder.file("log")).c_str());
}

}  // namespace deepinfer::testing
