#include "support/daemon.hpp"
#include "support/lm_wire.hpp"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>

using namespace kvasir::test;
using namespace std::chrono_literals;

namespace {

/// Accepts in the kernel, and never answers.
class mute_server {
public:
  mute_server() {
    auto listening = kvasir::listen_on("127.0.0.1", 0);
    REQUIRE(listening);
    listening_ = std::move(*listening);
  }
  std::string port() const { return std::to_string(listening_.port); }

private:
  kvasir::listening_sockets listening_;
};

class temporary_folder {
public:
  temporary_folder() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
  ~temporary_folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  std::string file(const std::string& name, const bytes& content) const {
    std::ofstream out{file(name), std::ios::binary};
    out.write(reinterpret_cast<const char*>(content.data()),
              static_cast<std::streamsize>(content.size()));
    return file(name);
  }

private:
  std::string path_ = "/tmp/kvasir_client_XXXXXX";
};

std::string content_of(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

std::string as_text(const bytes& value) {
  return {reinterpret_cast<const char*>(value.data()), value.size()};
}

struct fixture {
  running_daemon served;
  temporary_folder folder;

  outcome kvasir(std::vector<std::string> arguments) {
    return run("kvasir", std::move(arguments),
               {"KVASIR_LM_PORT=" + std::to_string(served.lm_port()),
                "KVASIR_HTTP_PORT=" + std::to_string(served.http_port())});
  }
};

const std::vector<std::vector<std::string>> all_commands{
  {"ping"},  {"status"},  {"ls"},       {"clear"},
  {"quota"}, {"rm", "k"}, {"get", "k"}, {"put", "k", "/etc/passwd"}};

} // namespace

TEST_CASE_FIXTURE(fixture, "the client stores, lists, fetches and removes a value") {
  auto value = pattern(3'000'001, 7);
  auto from = folder.file("in", value);
  CHECK(kvasir({"ping"}).exit_code == 0);
  auto put = kvasir({"put", "m@1@0@1f@half", from, "--json"});
  REQUIRE_MESSAGE(put.exit_code == 0, put.err);
  CHECK(nlohmann::json::parse(put.out)["size_bytes"] == value.size());
  CHECK(put.err.empty());

  CHECK(kvasir({"ls"}).out == "m@1@0@1f@half\n");
  auto listed = nlohmann::json::parse(kvasir({"--json", "ls"}).out);
  CHECK(listed["size_bytes"] == value.size());
  CHECK(listed["key"] == "m@1@0@1f@half");

  // Another spelling of the same key.
  auto got = kvasir({"get", "m@1@0@0x1F@half", folder.file("out")});
  CHECK(got.exit_code == 0);
  CHECK(content_of(folder.file("out")) == as_text(value));
  CHECK(kvasir({"get", "m@1@0@1f@half"}).out == as_text(value));

  CHECK(kvasir({"rm", "m@1@0@01f@half"}).exit_code == 0);
  CHECK(kvasir({"rm", "m@1@0@1f@half"}).exit_code == 1);
  auto missing = kvasir({"get", "m@1@0@1f@half", folder.file("none")});
  CHECK(missing.exit_code == 1);
  CHECK(line_count(missing.err) == 1);
  CHECK_FALSE(std::filesystem::exists(folder.file("none")));
  CHECK(kvasir({"ls"}).out.empty());
}

TEST_CASE_FIXTURE(fixture, "a value may come from standard input, and be empty") {
  auto from = folder.file("in", pattern(10'000, 3));
  auto fd = open(from.c_str(), O_RDONLY);
  child_process put{
    "kvasir",
    {"put", "raw key %&?+/ü", "-", "--lm-port", std::to_string(served.lm_port())},
    {},
    fd};
  CHECK(put.wait().exit_code == 0);
  close(fd);
  CHECK(kvasir({"get", "raw key %&?+/ü", "-"}).out == content_of(from));
  CHECK(kvasir({"rm", "raw key %&?+/ü"}).exit_code == 0);
  CHECK(kvasir({"put", "m@1@0@1@half", folder.file("empty", {})}).exit_code == 0);
  auto empty = kvasir({"get", "m@1@0@1@half"});
  CHECK(empty.exit_code == 0);
  CHECK(empty.out.empty());
}

TEST_CASE_FIXTURE(fixture, "the list goes on over many pages") {
  lm_wire wire{served.lm_port()};
  constexpr int count = 2500;
  for (auto i = 0; i < count; ++i)
    wire.send_put("m@1@0@" + std::to_string(i) + "@half", pattern(16, 1));
  REQUIRE(wire.exist("m@1@0@2499@half"));
  auto listed = kvasir({"ls"});
  CHECK(line_count(listed.out) == count);
  CHECK(kvasir({"clear"}).exit_code == 0);
  CHECK(kvasir({"ls"}).out.empty());
}

TEST_CASE_FIXTURE(fixture, "a value that the server does not keep is a failure") {
  auto large = folder.file("large", bytes(20 << 20));
  auto put = kvasir({"put", "m@1@0@1@half", large});
  CHECK(put.exit_code == 4);
  CHECK(line_count(put.err) == 1);
}

TEST_CASE_FIXTURE(fixture, "wrong usage is exit code 2 and one line") {
  auto file = folder.file("in", pattern(8, 1));
  const std::vector<std::vector<std::string>> cases{
    {},
    {"pong"},
    {"get"},
    {"get", " "},
    {"put", "k"},
    {"put", "k", "/nonexistent"},
    {"put", "k", "/tmp"},
    {"put", "k", file, "--dtype", "int8"},
    {"put", "k", file, "--format", "X"},
    {"put", "k", file, "--dtype", "float16", "--format", "KV_2LTD", "--shape", "1,1,1,3"},
    {"put", "k", file, "--shape", "1,1,1,1,1"},
    {"ping", "--lm-port", "0"},
    {"ping", "--timeout", "5"},
    {"ping", "--lm-port", "off", "--http-port", "off"},
    {"ls", "--http-port", "off"},
    {"get", "k", "--lm-port", "off"},
    {"clear", "--admin-token-file", "/nonexistent"},
    {"ls", "--no-such-option"}};
  for (const auto& arguments : cases) {
    auto ended = kvasir(arguments);
    CHECK_MESSAGE(ended.exit_code == 2, (arguments.empty() ? "" : arguments.back()));
    CHECK_MESSAGE(line_count(ended.err) == 1, ended.err);
    CHECK(ended.out.empty());
  }
}

TEST_CASE_FIXTURE(fixture, "the status is a table or JSON") {
  auto table = kvasir({"status"});
  CHECK(table.exit_code == 0);
  CHECK(table.out.find("storage.objects ") != std::string::npos);
  CHECK(nlohmann::json::parse(kvasir({"status", "--json"}).out)["healthy"] == true);
}

TEST_CASE("against no server every command ends with 3 and one line") {
  for (const auto& command : all_commands) {
    auto ended = run("kvasir", command, {"KVASIR_LM_PORT=1", "KVASIR_HTTP_PORT=1"});
    CHECK_MESSAGE(ended.exit_code == 3, command[0]);
    CHECK_MESSAGE(line_count(ended.err) == 1, ended.err);
    CHECK(ended.took < 2s);
  }
}

TEST_CASE("against a mute server every command ends at its time-out") {
  mute_server mute;
  for (const auto& command : all_commands) {
    auto ended = run("kvasir", command,
                     {"KVASIR_LM_PORT=" + mute.port(), "KVASIR_HTTP_PORT=" + mute.port(),
                      "KVASIR_TIMEOUT=700ms"});
    CHECK_MESSAGE(ended.exit_code == 3, command[0]);
    CHECK_MESSAGE(line_count(ended.err) == 1, ended.err);
    CHECK(ended.took >= 600ms);
    CHECK(ended.took < 2s);
  }
}

TEST_CASE("the time-out is five seconds unless another is given") {
  mute_server mute;
  auto ended = run("kvasir", {"ping", "--lm-port", mute.port(), "--http-port", mute.port()});
  CHECK(ended.exit_code == 3);
  CHECK(ended.took > 4500ms);
  CHECK(ended.took < 6500ms);
}
