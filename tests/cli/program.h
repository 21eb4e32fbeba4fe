// Running the built program and looking at what it leaves.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "io/json.h"

namespace deepinfer::testing {

class Workspace {
 public:
  Workspace() {
    std::string name = (std::filesystem::temp_directory_path() / "deepinfer-test-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  Workspace(const Workspace&) = delete;
  ~Workspace() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string read(const std::string& name) const {
    std::ifstream stream(file(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  }
  std::vector<std::string> lines(const std::string& name) const {
    std::vector<std::string> out;
    std::ifstream stream(file(name), std::ios::binary);
    for (std::string line; std::getline(stream, line);) out.push_back(line);
    return out;
  }
  std::vector<std::string> sorted_lines(const std::string& name) const {
    std::vector<std::string> out = lines(name);
    std::sort(out.begin(), out.end());
    return out;
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
  }

 private:
  std::string path_;
};

/// Starts the program with its streams in the workspace's files "stdin" (when there is one), "stdout" and
/// "stderr".
inline pid_t start(const Workspace& space, std::vector<std::string> arguments) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  const auto open_as = [&](const char* name, int flags, int target) {
    const int fd = ::open(space.file(name).c_str(), flags, 0600);
    ::dup2(fd >= 0 ? fd : ::open("/dev/null", O_RDWR), target);
  };
  open_as("stdin", O_RDONLY, STDIN_FILENO);
  open_as("stdout", O_WRONLY | O_CREAT | O_TRUNC, STDOUT_FILENO);
  open_as("stderr", O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
  ::setenv("SOURCE_DATE_EPOCH", "1700000000", 1);
  ::unsetenv("DEEPINFER_MODEL");
  std::vector<char*> argv = {const_cast<char*>(DI_PROGRAM)};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execv(DI_PROGRAM, argv.data());
  ::_exit(127);
}

/// The exit code, or 128 + the signal that ended it.
inline int wait_for(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

inline int run(const Workspace& space, std::vector<std::string> arguments) {
  return wait_for(start(space, std::move(arguments)));
}

}  // namespace deepinfer::testing
