#include "actors/command_line.hpp"

#include "actors/config_options.hpp"
#include "actors/number_text.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

using namespace kvasir;
using namespace std::chrono_literals;

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
  CHECK(config.mp_port == 5555);
  CHECK(config.http_port == 8080);
  CHECK(config.pool_bytes == 1ull << 30);
  CHECK(config.chunk_size == 256);
  CHECK(config.write_ttl == 600s);
  CHECK(config.read_ttl == 300s);
  CHECK(config.reap_timeout == 30s);
  CHECK(config.token_hash == mp::token_hash_algorithm::blake3);
  CHECK(config.token_hash_seed.empty());
  CHECK(config.event_history == 32768);
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
                                "json",
                                "--chunk-size",
                                "16",
                                "--write-ttl",
                                "10m",
                                "--read-ttl",
                                "2h",
                                "--reap-timeout",
                                "500ms",
                                "--token-hash",
                                "sha256_cbor",
                                "--token-hash-seed",
                                "0",
                                "--event-history",
                                "7"}));
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
  CHECK_FALSE(config.mp_port);
  CHECK(config.chunk_size == 16);
  CHECK(config.write_ttl == 10min);
  CHECK(config.read_ttl == 2h);
  CHECK(config.reap_timeout == 500ms);
  CHECK(config.token_hash == mp::token_hash_algorithm::sha256_cbor);
  CHECK(config.token_hash_seed == "0");
  CHECK(config.event_history == 7);
}

TEST_CASE("durations have a unit, and their text can be read back") {
  CHECK(parse_duration("600s") == 600s);
  CHECK(parse_duration("500ms") == 500ms);
  CHECK(parse_duration("1.5m") == 90s);
  CHECK(parse_duration("24h") == 24h);
  for (auto bad : {"", "5", "s", "-1s", "0s", "25h", "1d", "1 s", "nans", "1e3s", "0.5ms"})
    CHECK_MESSAGE(!parse_duration(bad), bad);
  CHECK(duration_text(600s) == "600s");
  CHECK(duration_text(1500ms) == "1500ms");
  for (auto value : {1ms, 1000ms, 86'400'000ms})
    CHECK(parse_duration(duration_text(value)) == value);
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
    {{"--mp-port", "65536"}, "--mp-port=65536"},
    {{"--mp-port", "8080"}, "both 8080"},
    {{"--mp-port", "65432"}, "both 65432"},
    {{"--chunk-size", "0"}, "1 to 65536"},
    {{"--chunk-size", "65537"}, "1 to 65536"},
    {{"--write-ttl", "600"}, "--write-ttl=600"},
    {{"--read-ttl", "0s"}, "--read-ttl=0s"},
    {{"--reap-timeout", "-1s"}, "--reap-timeout=-1s"},
    {{"--token-hash", "builtin"}, "from one process to the next"},
    {{"--token-hash", "md5"}, "blake3 or sha256_cbor"},
    {{"--token-hash-seed", "0"}, "contradicts token-hash blake3"},
    {{"--event-history", "0"}, "--event-history=0"},
    {{"--cluster-port", "1"}, "not served by this version"},
    {{"--unknown", "1"}, "--unknown"},
    {{"--lm-port"}, "--lm-port"},
    {{"--lm-port", "1", "--lm-port", "2"}, "--lm-port"},
    {{"--lm-port", "off", "--mp-port", "off", "--http-port", "off"}, "nothing to serve"},
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
  CHECK(contains(refusal(parse({}, {"KVASIR_L1_SIZE_GB=1"})), "KVASIR_L1_SIZE_GB"));
  CHECK(contains(refusal(parse({}, {"KVASIR_LM_PORT=x"})), "KVASIR_LM_PORT=x"));
  for (auto content : {"pool = 1GiB\n", "[lm]\nport = 1\n", "lm-port = [1, 2]\n", "x\n",
                       "lm-port\n", "lm-port = 1\nlm-port = 2\n", "l1-size-gb = 1\n", ""}) {
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
             "--eviction", "lru", "--host", "::1", "--admin-token-file", "/some where/t",
             "--write-ttl", "1.5s", "--token-hash", "sha256_cbor", "--token-hash-seed", "a b"});
  REQUIRE(std::holds_alternative<print_text>(shown));
  auto text = std::get<print_text>(shown).text;
  CHECK(contains(text, "pool-size = \"64MiB\"\n"));
  CHECK(contains(text, "max-object-size = \"16MiB\"\n"));
  CHECK(contains(text, "write-ttl = \"1500ms\"\n"));
  CHECK(contains(text, "token-hash = \"sha256_cbor\"\n"));
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
    CHECK_FALSE(config.mp_port);
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

TEST_CASE("starts as lmcache server does") {
  const std::pair<const char*, std::vector<const char*>> starts[]
    = {{"/opt/bin/lmcache", {"server"}}, {"kvasird", {"server"}}};
  for (auto [program, words] : starts) {
    auto config = accepted(parse(words, {}, program));
    CHECK_FALSE(config.lm_port);
    CHECK(config.mp_port == 5555);
    CHECK(config.http_port == 8080);
    words.insert(words.end(), {"--port", "7"});
    CHECK(accepted(parse(words, {}, program)).mp_port == 7);
    CHECK(accepted(parse(words, {"KVASIR_LM_PORT=8"}, program)).lm_port == 8);
    words.insert(words.end(), {"--mp-port", "7"});
    CHECK(contains(refusal(parse(words, {}, program)), "contradict"));
    words = {"server", "h", "7"};
    CHECK(contains(refusal(parse(words, {}, program)), "'h'"));
  }
  CHECK(contains(refusal(parse({"ping"}, {}, "lmcache")), "lmcache server"));
  CHECK(contains(refusal(parse({}, {}, "lmcache")), "lmcache server"));
  // Compat: a host may be called so.
  auto config = accepted(parse({"server", "7"}, {}, "lmcache_server"));
  CHECK(config.host == "server");
  CHECK(config.lm_port == 7);
}

TEST_CASE("understands the main flags of lmcache server") {
  auto result = parse({"server",
                       "--host",
                       "h",
                       "--port",
                       "5556",
                       "--http-host",
                       "h",
                       "--http-port",
                       "8081",
                       "--l1-size-gb",
                       "1.5",
                       "--chunk-size",
                       "16",
                       "--shm-name",
                       "/lmcache_l1_pool_y",
                       "--eviction-policy",
                       "LRU",
                       "--supported-transfer-mode",
                       "engine_driven",
                       "--hash-algorithm",
                       "sha256_cbor",
                       "--l1-align-bytes",
                       "4096",
                       "--l1-write-ttl-seconds",
                       "60",
                       "--l1-read-ttl-seconds",
                       "1.5",
                       "--worker-reap-timeout-seconds",
                       "120",
                       "--kv-event-log-size",
                       "9"});
  auto config = accepted(result);
  CHECK(config.host == "h");
  CHECK(config.mp_port == 5556);
  CHECK(config.http_port == 8081);
  CHECK(config.pool_bytes == 3ull << 29);
  CHECK(config.chunk_size == 16);
  CHECK(config.shm_name == "lmcache_l1_pool_y");
  CHECK(config.eviction == "lru");
  CHECK(config.token_hash == mp::token_hash_algorithm::sha256_cbor);
  CHECK(config.write_ttl == 60s);
  CHECK(config.read_ttl == 1500ms);
  CHECK(config.reap_timeout == 120s);
  CHECK(config.event_history == 9);
  CHECK(std::get<run_node>(result).notices.empty());
}

TEST_CASE(
  "flags of lmcache server that say nothing to kvasird are accepted, and the log says so") {
  auto result = parse({"server", "--no-l1-use-lazy", "--max-workers", "4", "--eviction-ratio",
                       "0.2", "--supported-transfer-mode", "auto"});
  accepted(result);
  const auto& notices = std::get<run_node>(result).notices;
  CHECK(notices.size() == 4);
  for (auto name :
       {"--no-l1-use-lazy", "--max-workers", "--eviction-ratio", "--supported-transfer-mode"})
    CHECK_MESSAGE(std::any_of(notices.begin(), notices.end(),
                              [&](const std::string& line) { return contains(line, name); }),
                  name);
}

TEST_CASE("what lmcache server does and kvasird does not is refused with a reason") {
  const std::pair<std::vector<const char*>, const char*> cases[] = {
    {{"--supported-transfer-mode", "lmcache_driven"}, "engine-driven"},
    {{"--hash-algorithm", "builtin"}, "from one process to the next"},
    {{"--hash-algorithm", "blake3", "--token-hash", "blake3"}, "contradict"},
    {{"--l1-align-bytes", "8192"}, "4096"},
    {{"--l1-align-bytes", "0"}, "4096"},
    {{"--http-host", "0.0.0.0"}, "one address"},
    {{"--transport", "grpc"}, "zmq"},
    {{"--engine-type", "blend"}, "prefixes"},
    {{"--eviction-policy", "IsolatedLRU"}, "unknown eviction policy"},
    {{"--worker-reap-timeout-seconds", "0"}, "seconds"},
    {{"--max-workers", "x"}, "not a number"},
    {{"--l1-use-lazy", "--no-l1-use-lazy"}, "contradict"},
    {{"--no-l1-use-lazy", "1"}, "unexpected argument '1'"},
    {{"--l1-size-gb", "1", "--pool-size", "1GiB"}, "contradict"},
    {{"--l2-adapter", "{}"}, "--l2-adapter"},
  };
  for (auto [words, expected] : cases) {
    words.insert(words.begin(), "server");
    CHECK_MESSAGE(contains(refusal(parse(words)), expected), expected);
  }
  for (auto bad : {"-1", "nan", "x", "1e30", "0"})
    CHECK(contains(refusal(parse({"--l1-size-gb", bad})), "--l1-size-gb"));
}

TEST_CASE("help and version are printed") {
  auto help = parse({"--help"});
  REQUIRE(std::holds_alternative<print_text>(help));
  for (auto options : {config_options(), lmcache_options()})
    for (const auto& option : options)
      CHECK(contains(std::get<print_text>(help).text, "--" + std::string{option.name}));
  auto version = parse({"--version"});
  REQUIRE(std::holds_alternative<print_text>(version));
  CHECK(std::get<print_text>(version).text.starts_with("kvasird "));
}
