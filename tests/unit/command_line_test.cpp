#include "actors/command_line.hpp"

#include "actors/config_options.hpp"
#include "actors/number_text.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

using namespace kvasir;

namespace {

command_line parse(std::vector<const char*> words, std::vector<const char*> environment = {},
                   const char* program = "kvasird") {
  words.insert(words.begin(), program);
  environment.push_back(nullptr);
  return parse_command_line(static_cast<int>(words.size()), words.data(), environment.data());
}

node_config accepted(const command_line& result) {
  if (auto refusal = std::get_if<refused>(&result))
    FAIL(refusal->line);
  REQUIRE(std::holds_alternative<run_node>(result));
  return std::get<run_node>(result).config;
}

/// The line; also checks that it is one.
std::string refusal(const command_line& result) {
  REQUIRE(std::holds_alternative<refused>(result));
  auto line = std::get<refused>(result).line;
  CHECK(line.find('\n') == std::string::npos);
  CHECK(line.starts_with("kvasird: "));
  return line;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

class temporary_file {
public:
  explicit temporary_file(const std::string& content) {
    auto fd = mkstemp(path_.data());
    REQUIRE(fd >= 0);
    close(fd);
    std::ofstream{path_} << content;
  }
  ~temporary_file() { unlink(path_.c_str()); }
  const char* path() const { return path_.c_str(); }

private:
  std::string path_ = "/tmp/kvasir_config_XXXXXX";
};

} // namespace

TEST_CASE("without arguments everything has its default") {
  auto config = accepted(parse({}));
  CHECK(config.host == "127.0.0.1");
  CHECK(config.lm_port == 65432);
  CHECK(config.http_port == 8080);
  CHECK(config.pool_bytes == 1ull << 30);
  CHECK(config.max_object_bytes == 1ull << 28);
  CHECK(config.eviction == "s3fifo");
  CHECK(config.io_threads >= 1);
  CHECK(config.io_threads <= 8);
}

TEST_CASE("every setting can be given as a flag") {
  auto config = accepted(parse({"--host",
                                "::",
                                "--lm-port",
                                "0",
                                "--http-port=off",
                                "--mp-port",
                                "off",
                                "--cluster-port",
                                "off",
                                "--pool-size",
                                "512MiB",
                                "--shm",
                                "on",
                                "--shm-name",
                                "x",
                                "--max-object-size",
                                "1MiB",
                                "--eviction",
                                "lru",
                                "--checksum",
                                "off",
                                "--io-threads",
                                "3",
                                "--max-connections",
                                "17",
                                "--admin-token-file",
                                "/t",
                                "--log-level",
                                "debug",
                                "--log-format",
                                "json"}));
  CHECK(config.host == "::");
  CHECK(config.lm_port == 0);
  CHECK_FALSE(config.http_port);
  CHECK(config.pool_bytes == 512ull << 20);
  CHECK(config.shm == shm_pool::sharing::on);
  CHECK(config.shm_name == "lmcache_l1_pool_x");
  CHECK(config.max_object_bytes == 1ull << 20);
  CHECK(config.eviction == "lru");
  CHECK_FALSE(config.checksum);
  CHECK(config.io_threads == 3);
  CHECK(config.max_connections == 17);
  CHECK(config.admin_token_file == "/t");
  CHECK(config.log_level == log::level::debug);
  CHECK(config.log_format == log::format::json);
}

TEST_CASE("sizes are read in binary and decimal units") {
  CHECK(parse_size("4096") == 4096);
  CHECK(parse_size("1GiB") == 1ull << 30);
  CHECK(parse_size("512 MiB") == 512ull << 20);
  CHECK(parse_size("4GB") == 4'000'000'000);
  CHECK(parse_size("1.5gib") == 3ull << 29);
  CHECK(parse_size("4Gi") == 4ull << 30);
  CHECK(parse_size("0") == 0);
  CHECK(parse_size("18446744073709551615") == UINT64_MAX);
  for (auto bad : {"", "GiB", "-1", "+1", "1.5", "1e3", "1.5.5GiB", "1GiBs", "nan", "inf",
                   "18446744073709551616", "99999999999TiB", "1 000", "0x10", "1G"})
    CHECK_MESSAGE(!parse_size(bad), bad);
}

TEST_CASE("a pool below one page is refused with both numbers") {
  auto line = refusal(parse({"--pool-size", "4095"}));
  CHECK(contains(line, "--pool-size"));
  CHECK(contains(line, "4095"));
  CHECK(contains(line, "4096"));
  CHECK(accepted(parse({"--pool-size", "4096"})).pool_bytes == 4096);
  CHECK(contains(refusal(parse({"--pool-size", "17TiB"})), "limit"));
}

TEST_CASE("an odd pool size is rounded down to pages, and the log says so") {
  auto result = parse({"--pool-size", "104857601"});
  CHECK(accepted(result).pool_bytes == 104857600);
  auto notices = std::get<run_node>(result).notices;
  REQUIRE(notices.size() == 1);
  CHECK(contains(notices[0], "104857600"));
  CHECK(contains(notices[0], "104857601"));
}

TEST_CASE("the largest object fits the pool and lm://") {
  CHECK(
    accepted(parse({"--pool-size", "8GiB", "--max-object-size", "2147483647"})).max_object_bytes
    == 2147483647);
  CHECK(contains(refusal(parse({"--pool-size", "8GiB", "--max-object-size", "2147483648"})),
                 "longest object of lm://"));
  CHECK(contains(refusal(parse({"--pool-size", "1MiB", "--max-object-size", "524289"})),
                 "half the pool of 1048576"));
  CHECK(accepted(parse({"--pool-size", "1MiB", "--max-object-size", "524288"})).max_object_bytes
        == 524288);
  CHECK(accepted(parse({"--pool-size", "16GiB"})).max_object_bytes == 1ull << 30);
}

TEST_CASE("wrong values are refused by the name under which they were given") {
  const std::pair<std::vector<const char*>, const char*> cases[] = {
    {{"--lm-port", "65536"}, "--lm-port=65536"},
    {{"--lm-port", "-1"}, "--lm-port=-1"},
    {{"--http-port", "on"}, "--http-port=on"},
    {{"--eviction", "arc"}, "unknown eviction policy"},
    {{"--shm", "yes"}, "auto, on or off"},
    {{"--shm-name", "a/b"}, "/dev/shm"},
    {{"--checksum", "true"}, "on or off"},
    {{"--io-threads", "65"}, "--io-threads"},
    {{"--max-connections", "0"}, "--max-connections"},
    {{"--log-level", "verbose"}, "debug, info"},
    {{"--log-format", "xml"}, "text or json"},
    {{"--host", ""}, "--host"},
    {{"--mp-port", "5555"}, "not served by this version"},
    {{"--cluster-port", "1"}, "not served by this version"},
    {{"--unknown", "1"}, "--unknown"},
    {{"--lm-port"}, "--lm-port"},
    {{"--lm-port", "1", "--lm-port", "2"}, "--lm-port"},
    {{"--lm-port", "off", "--http-port", "off"}, "nothing to serve"},
    {{"--lm-port", "8080"}, "both 8080"},
    {{"--shm", "off", "--shm-name", "x"}, "contradicts"},
    {{"--disk-path", "/x"}, "--disk-path"},
  };
  for (const auto& [words, expected] : cases)
    CHECK_MESSAGE(contains(refusal(parse(words)), expected), expected);
}

TEST_CASE("a refusal stays one line whatever was given") {
  CHECK(contains(refusal(parse({"--eviction", "a\nb\x1b"})), "a?b?"));
}

TEST_CASE("a flag wins over the environment and that over the file") {
  temporary_file file{"# a comment\nlm-port = 1001\nhttp-port = 1002\npool-size = \"1MiB\"\n"};
  auto config = accepted(
    parse({"--config", file.path(), "--lm-port", "3001"},
          {"KVASIR_LM_PORT=2001", "KVASIR_HTTP_PORT=2002", "PATH=/bin", "KVASIRX=1"}));
  CHECK(config.lm_port == 3001);
  CHECK(config.http_port == 2002);
  CHECK(config.pool_bytes == 1 << 20);
  auto variable = std::string{"KVASIR_CONFIG="} + file.path();
  CHECK(accepted(parse({}, {variable.c_str()})).lm_port == 1001);
}

TEST_CASE("nothing in the environment or the file goes unnoticed") {
  CHECK(contains(refusal(parse({}, {"KVASIR_POOL=1GiB"})), "KVASIR_POOL"));
  CHECK(contains(refusal(parse({}, {"KVASIR_CHUNK_SIZE=256"})), "KVASIR_CHUNK_SIZE"));
  CHECK(contains(refusal(parse({}, {"KVASIR_LM_PORT=x"})), "KVASIR_LM_PORT=x"));
  for (auto content : {"pool = 1GiB\n", "[lm]\nport = 1\n", "lm-port = [1, 2]\n", "x\n",
                       "lm-port\n", "lm-port = 1\nlm-port = 2\n", "chunk-size = 256\n", ""}) {
    temporary_file file{content};
    CHECK_MESSAGE(contains(refusal(parse({"--config", file.path()})), file.path()), content);
  }
  CHECK(contains(refusal(parse({"--config", "/nonexistent"})), "/nonexistent"));
}

TEST_CASE("variables that Kubernetes sets for a Service named kvasir are no settings") {
  auto config = accepted(
    parse({}, {"KVASIR_SERVICE_HOST=10.0.0.1", "KVASIR_SERVICE_PORT=65432",
               "KVASIR_SERVICE_PORT_LM=65432", "KVASIR_PORT=tcp://10.0.0.1:65432",
               "KVASIR_PORT_65432_TCP=tcp://10.0.0.1:65432", "KVASIR_PORT_65432_TCP_PROTO=tcp",
               "KVASIR_PORT_65432_TCP_PORT=65432", "KVASIR_PORT_65432_TCP_ADDR=10.0.0.1",
               "KVASIR_HTTP_PORT=tcp://10.0.0.1:80", "KVASIR_LM_PORT=tcp://10.0.0.1:80",
               "KVASIR_TIMEOUT=3s"}));
  CHECK(config.lm_port == 65432);
  CHECK(config.http_port == 8080);
}

TEST_CASE("what --print-config shows can be read back") {
  auto shown
    = parse({"--print-config", "--pool-size", "64MiB", "--shm-name", "x", "--http-port", "off",
             "--eviction", "lru", "--host", "::1", "--admin-token-file", "/some where/t"});
  REQUIRE(std::holds_alternative<print_text>(shown));
  auto text = std::get<print_text>(shown).text;
  CHECK(contains(text, "pool-size = \"64MiB\"\n"));
  CHECK(contains(text, "max-object-size = \"16MiB\"\n"));
  temporary_file file{text};
  auto again = parse({"--print-config", "--config", file.path()});
  REQUIRE(std::holds_alternative<print_text>(again));
  CHECK(std::get<print_text>(again).text == text);
}

TEST_CASE("starts as lmcache_server does") {
  for (auto program : {"kvasird", "lmcache_server", "/opt/bin/lmcache_server"}) {
    auto config = accepted(parse({"0.0.0.0", "8080"}, {}, program));
    CHECK(config.host == "0.0.0.0");
    CHECK(config.lm_port == 8080);
    CHECK_FALSE(config.http_port);
    CHECK(accepted(parse({"h", "1", "cpu"}, {}, program)).lm_port == 1);
    CHECK(contains(refusal(parse({"h", "1", "cuda"}, {}, program)), "cpu"));
    CHECK(contains(refusal(parse({"h"}, {}, program)), "HOST PORT"));
    CHECK(contains(refusal(parse({"h", "1", "cpu", "x"}, {}, program)), "HOST PORT"));
    CHECK(contains(refusal(parse({"h", "x"}, {}, program)), "PORT=x"));
    CHECK(contains(refusal(parse({"h", "1", "--lm-port", "2"}, {}, program)), "contradict"));
    CHECK(accepted(parse({"h", "1", "--http-port", "2"}, {}, program)).http_port == 2);
  }
  auto config
    = accepted(parse({"--host", "h", "--port", "7", "--device", "cpu", "--capacity", "0.5"}, {},
                     "lmcache_server"));
  CHECK(config.lm_port == 7);
  CHECK(config.pool_bytes == 1ull << 29);
}

TEST_CASE("understands the main flags of lmcache server") {
  auto result
    = parse({"--host", "h", "--http-port", "8081", "--l1-size-gb", "1.5", "--chunk-size", "256",
             "--shm-name", "/lmcache_l1_pool_y", "--eviction-policy", "LRU"});
  auto config = accepted(result);
  CHECK(config.pool_bytes == 3ull << 29);
  CHECK(config.eviction == "lru");
  CHECK(config.shm_name == "lmcache_l1_pool_y");
  CHECK(std::get<run_node>(result).notices.size() == 1);
  CHECK(contains(refusal(parse({"--port", "5555"})), "--lm-port"));
  CHECK(contains(refusal(parse({"--l1-size-gb", "1", "--pool-size", "1GiB"})), "contradict"));
  CHECK(contains(refusal(parse({"--eviction-policy", "FIFO"})), "unknown eviction policy"));
  for (auto bad : {"-1", "nan", "x", "1e30", "0"})
    CHECK(contains(refusal(parse({"--l1-size-gb", bad})), "--l1-size-gb"));
}

TEST_CASE("help and version are printed") {
  auto help = parse({"--help"});
  REQUIRE(std::holds_alternative<print_text>(help));
  for (const auto& option : config_options())
    CHECK(contains(std::get<print_text>(help).text, "--" + std::string{option.name}));
  auto version = parse({"--version"});
  REQUIRE(std::holds_alternative<print_text>(version));
  CHECK(std::get<print_text>(version).text.starts_with("kvasird "));
}
