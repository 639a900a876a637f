#include "actors/log.hpp"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

using namespace kvasir;

namespace {

/// What `action` writes to standard error, line by line.
std::vector<std::string> written_by(const std::function<void()>& action) {
  auto file = std::tmpfile();
  REQUIRE(file != nullptr);
  auto saved = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  action();
  std::fflush(stderr);
  dup2(saved, STDERR_FILENO);
  close(saved);
  std::rewind(file);
  std::vector<std::string> lines{""};
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) {
    if (c == '\n')
      lines.emplace_back();
    else
      lines.back() += static_cast<char>(c);
  }
  std::fclose(file);
  CHECK(lines.back().empty()); // The last line is complete, too.
  lines.pop_back();
  return lines;
}

struct fixture {
  ~fixture() { log::configure(log::level::info, log::format::text); }
};

} // namespace

TEST_CASE_FIXTURE(fixture, "a text line has time, level, message and fields") {
  auto lines = written_by([] {
    log::write(log::level::warn, "went wrong", {{"peer", "a:1"}});
  });
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("Z warn went wrong peer=a:1") == 23);
}

TEST_CASE_FIXTURE(fixture, "a value cannot pretend to be another line or field") {
  auto lines = written_by([] {
    log::write(log::level::info, "m", {{"key", "a\nb c=d\"\xff"}, {"empty", ""}});
  });
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].ends_with("info m key=\"a\\nb c=d\\\"\xef\xbf\xbd\" empty=\"\""));
}

TEST_CASE_FIXTURE(fixture, "JSON lines parse and hold any bytes") {
  log::configure(log::level::debug, log::format::json);
  auto lines = written_by([] {
    log::write(log::level::debug, "said \"x\"", {{"key", "a\n%v{}"}, {"bytes", "\xff"}});
  });
  REQUIRE(lines.size() == 1);
  auto event = nlohmann::json::parse(lines[0]);
  CHECK(event["level"] == "debug");
  CHECK(event["message"] == "said \"x\"");
  CHECK(event["key"] == "a\n%v{}");
  CHECK(event["bytes"] == "\xef\xbf\xbd");
  CHECK(event["time"].get<std::string>().size() == 24);
}

TEST_CASE_FIXTURE(fixture, "levels below the lowest are not written") {
  log::configure(log::level::error, log::format::text);
  CHECK(written_by([] {
          log::write(log::level::warn, "no");
          log::write(log::level::error, "yes");
        }).size()
        == 1);
  log::configure(log::level::off, log::format::text);
  CHECK(written_by([] { log::write(log::level::error, "no"); }).empty());
}

TEST_CASE_FIXTURE(fixture, "a limited message is written ten times a second, then counted") {
  auto lines = written_by([] {
    for (auto i = 0; i < 100; ++i)
      log::write_limited(log::level::warn, "flood");
    log::write_limited(log::level::warn, "another");
    std::this_thread::sleep_for(std::chrono::milliseconds{1100});
    log::write_limited(log::level::warn, "flood");
    log::write_limited(log::level::warn, "flood");
  });
  REQUIRE(lines.size() == 13);
  CHECK(lines[9].ends_with("warn flood"));
  CHECK(lines[10].ends_with("warn another"));
  CHECK(lines[11].ends_with("warn flood suppressed=90"));
  CHECK(lines[12].ends_with("warn flood"));
}

TEST_CASE_FIXTURE(fixture, "lines of many threads stay whole") {
  auto lines = written_by([] {
    std::vector<std::thread> threads;
    for (auto t = 0; t < 4; ++t)
      threads.emplace_back([] {
        for (auto i = 0; i < 200; ++i)
          log::write(log::level::info, "x", {{"text", std::string(100, 'y')}});
      });
    for (auto& t : threads)
      t.join();
  });
  CHECK(lines.size() == 800);
  for (const auto& line : lines)
    CHECK(line.size() == 24 + 1 + std::string{"info x text="}.size() + 100);
}

TEST_CASE("names of levels and formats are read back") {
  for (auto name : {"debug", "info", "warn", "error", "off"}) {
    log::level value{};
    REQUIRE(log::parse(name, value));
    CHECK(log::to_string(value) == name);
  }
  log::level level{};
  log::format format{};
  CHECK_FALSE(log::parse("warning", level));
  CHECK_FALSE(log::parse("xml", format));
}
