// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "actors/socket.hpp"
#include "support/child_process.hpp"

#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

namespace kvasir::test {

struct http_reply {
  int status = 0; ///< 0: the server closed without an answer.
  std::string head;
  std::string body;
};

/// One request on a connection of its own. `headers`: whole lines, without their end. A body
/// brings its own length.
inline http_reply http(uint16_t port, const std::string& method, const std::string& target,
                       const std::vector<std::string>& headers = {},
                       const std::string& host = "127.0.0.1", const std::string& body = {}) {
  auto connected = connect_to(host, port, 20'000);
  REQUIRE(connected);
  auto text = method + " " + target + " HTTP/1.1\r\nHost: kvasir\r\nConnection: close\r\n";
  for (const auto& line : headers)
    text += line + "\r\n";
  if (!body.empty())
    text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  text += "\r\n" + body;
  send(connected->fd(), text.data(), text.size(), MSG_NOSIGNAL);
  http_reply result;
  std::array<char, 65536> piece{};
  for (ssize_t got = 0; (got = recv(connected->fd(), piece.data(), piece.size(), 0)) > 0;)
    result.body.append(piece.data(), static_cast<size_t>(got));
  if (auto end = result.body.find("\r\n\r\n"); end != std::string::npos) {
    result.head = result.body.substr(0, end);
    result.body.erase(0, end + 4);
    result.status = std::stoi(result.head.substr(result.head.find(' ')));
  }
  return result;
}

/// Device and inode: an inode alone may belong to another mount's file.
using file_set = std::set<std::pair<dev_t, ino_t>>;

/// The files in shared memory that a process has open.
inline file_set shared_files(pid_t pid) {
  file_set result;
  std::error_code failed;
  auto folder = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& entry : std::filesystem::directory_iterator{folder, failed}) {
    struct stat found {};
    auto target = std::filesystem::read_symlink(entry.path(), failed).string();
    if (target.rfind("/dev/shm/", 0) == 0 && stat(entry.path().c_str(), &found) == 0)
      result.emplace(found.st_dev, found.st_ino);
  }
  return result;
}

/// A running kvasird on free ports. Ended, reaped and its shared memory removed with this
/// object at the latest.
class running_daemon {
public:
  /// Starts and waits for the line of readiness. Unless `arguments` say otherwise: free ports,
  /// a pool of 64 MiB, two I/O threads. `program`: what ends up being kvasird.
  explicit running_daemon(std::vector<std::string> arguments = {},
                          std::vector<std::string> environment = {},
                          const std::string& program = "kvasird")
    : process_(program, with_defaults(std::move(arguments)), std::move(environment)) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds{20};
    while (process_.out().find('\n') == std::string::npos) {
      REQUIRE_MESSAGE(process_.running(), process_.err());
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      std::this_thread::sleep_for(std::chrono::milliseconds{2});
    }
    ready_line_ = process_.out();
    ready_line_.pop_back();
    segments_ = shared_files(process_.pid());
  }

  ~running_daemon() {
    process_.kill();
    for (const auto& path : segment_paths())
      unlink(path.c_str()); // After a SIGKILL nobody else does.
  }

  /// "kvasird ready lm=HOST:PORT mp=HOST:PORT http=HOST:PORT cluster=off"
  const std::string& ready_line() const { return ready_line_; }
  uint16_t lm_port() const { return port_after(" lm="); }
  uint16_t mp_port() const { return port_after(" mp="); }
  uint16_t http_port() const { return port_after(" http="); }

  child_process& process() { return process_; }
  std::string log() const { return process_.err(); }

  http_reply get(const std::string& target) const { return http(http_port(), "GET", target); }

  /// The value of a metric; fails the test if there is none.
  uint64_t metric(const std::string& name) const {
    std::istringstream lines{get("/metrics").body};
    for (std::string line; std::getline(lines, line);)
      if (line.rfind(name + " ", 0) == 0)
        return static_cast<uint64_t>(std::stod(line.substr(name.size() + 1)));
    FAIL("no metric " << name);
    return 0;
  }

  /// SIGTERM, then its end; checks that its shared memory has no name any more.
  outcome stop() {
    process_.send(SIGTERM);
    auto result = process_.wait();
    CHECK_MESSAGE(segment_paths().empty(), log());
    return result;
  }

  /// SIGKILL.
  void kill() { process_.kill(); }

  /// Names in /dev/shm that lead to this daemon's memory, dead or alive.
  std::vector<std::string> segment_paths() const {
    std::vector<std::string> result;
    for (const auto& entry : std::filesystem::directory_iterator{"/dev/shm"}) {
      struct stat found {};
      if (lstat(entry.path().c_str(), &found) == 0
          && segments_.count({found.st_dev, found.st_ino}) > 0)
        result.push_back(entry.path());
    }
    return result;
  }

private:
  static std::vector<std::string> with_defaults(std::vector<std::string> arguments) {
    const std::array<std::pair<std::string, std::string>, 5> defaults{{{"--lm-port", "0"},
                                                                       {"--mp-port", "0"},
                                                                       {"--http-port", "0"},
                                                                       {"--pool-size", "64MiB"},
                                                                       {"--io-threads", "2"}}};
    for (const auto& [flag, value] : defaults) {
      auto given = [&, name = flag](const std::string& a) {
        return a == name || a.rfind(name + "=", 0) == 0;
      };
      if (std::none_of(arguments.begin(), arguments.end(), given)) {
        arguments.push_back(flag);
        arguments.push_back(value);
      }
    }
    return arguments;
  }

  uint16_t port_after(const std::string& name) const {
    auto at = ready_line_.find(name);
    REQUIRE(at != std::string::npos);
    auto endpoint = ready_line_.substr(at + name.size());
    endpoint = endpoint.substr(0, endpoint.find(' '));
    auto colon = endpoint.rfind(':');
    return colon == std::string::npos
             ? uint16_t{0}
             : static_cast<uint16_t>(std::stoul(endpoint.substr(colon + 1)));
  }

  child_process process_;
  std::string ready_line_;
  file_set segments_;
};

} // namespace kvasir::test
