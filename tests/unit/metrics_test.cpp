#include "actors/metrics.hpp"

#include "actors/node.hpp"

#include <doctest/doctest.h>

#include <map>
#include <numeric>
#include <sstream>
#include <string>

using namespace kvasir;

namespace {

node_status numbered_status() {
  node_status result;
  result.boot_id = "0123\"\n";
  result.healthy = true;
  result.pool_name = "p";
  result.storage.used_bytes = (1ull << 40) + 1;
  result.storage.hits = 7;
  result.storage.staged_bytes = 8192;
  result.storage.prefixes_cut = 5;
  result.storage.limbo_bytes = 4096;
  result.storage.skipped_evictions = 8;
  result.io_requests = 9;
  result.http_wrong_protocol = 3;
  result.lm.open_connections = 2;
  result.lm.counters.resize(lm_count_infos().size());
  std::iota(result.lm.counters.begin(), result.lm.counters.end(), 100);
  result.mp.open_connections = 4;
  result.mp.counters.resize(mp_count_infos().size());
  std::iota(result.mp.counters.begin(), result.mp.counters.end(), 500);
  result.sessions.lookups_open = 6;
  result.engines.resize(2);
  result.engines[0].registered = true;
  result.engines[0].handed_out_bytes = 40;
  result.engines[1].handed_out_bytes = 2;
  return result;
}

/// Sample lines by name, with labels; fails on a name without or with two types.
std::map<std::string, std::string> samples(const std::string& text) {
  std::map<std::string, std::string> result;
  std::map<std::string, std::string> types;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) {
      std::istringstream words{line.substr(7)};
      std::string name, type;
      words >> name >> type;
      CHECK_MESSAGE(types.emplace(name, type).second, name);
      CHECK_MESSAGE(name.ends_with("_total") == (type == "counter"), name);
    } else if (!line.starts_with("#")) {
      auto space = line.rfind(' ');
      auto name = line.substr(0, space);
      CHECK_MESSAGE(types.count(name.substr(0, name.find('{'))) == 1, name);
      CHECK_MESSAGE(result.emplace(name, line.substr(space + 1)).second, name);
    }
  }
  return result;
}

} // namespace

TEST_CASE("metrics show the numbers of the status exactly") {
  auto shown = samples(render_metrics(numbered_status()));
  CHECK(shown["kvasir_healthy"] == "1");
  CHECK(shown["kvasir_pool_shared"] == "1");
  CHECK(shown["kvasir_pool_used_bytes"] == "1099511627777");
  CHECK(shown["kvasir_hits_total"] == "7");
  CHECK(shown["kvasir_staged_bytes"] == "8192");
  CHECK(shown["kvasir_prefixes_cut_total"] == "5");
  CHECK(shown["kvasir_limbo_bytes"] == "4096");
  CHECK(shown["kvasir_evictions_skipped_total"] == "8");
  CHECK(shown["kvasir_io_requests_total"] == "9");
  CHECK(shown["kvasir_http_wrong_protocol_total"] == "3");
  CHECK(shown["kvasir_lm_open_connections"] == "2");
  const auto& infos = lm_count_infos();
  for (size_t i = 0; i < infos.size(); ++i)
    CHECK(shown["kvasir_lm_" + std::string{infos[i].name} + "_total"]
          == std::to_string(100 + i));
  CHECK(shown["kvasir_mp_clients"] == "4");
  const auto& mp_infos = mp_count_infos();
  for (size_t i = 0; i < mp_infos.size(); ++i)
    CHECK(shown["kvasir_mp_" + std::string{mp_infos[i].name} + "_total"]
          == std::to_string(500 + i));
  CHECK(shown["kvasir_lookups_open"] == "6");
  CHECK(shown["kvasir_engines"] == "2");
  CHECK(shown["kvasir_engines_registered"] == "1");
  CHECK(shown["kvasir_handed_out_bytes"] == "42");
}

TEST_CASE("a label keeps its line whatever is in it") {
  auto text = render_metrics(numbered_status());
  CHECK(text.find("kvasir_boot_info{boot_id=\"0123\\\"\\n\"} 1\n") != std::string::npos);
}

TEST_CASE("the same status yields the same text") {
  auto status = numbered_status();
  auto first = render_metrics(status);
  status.uptime += std::chrono::hours{1};
  CHECK(render_metrics(status) == first);
}

TEST_CASE("a door that did not answer shows no counters instead of wrong ones") {
  auto status = numbered_status();
  status.lm.counters.clear();
  CHECK(samples(render_metrics(status)).count("kvasir_lm_puts_total") == 0);
}
