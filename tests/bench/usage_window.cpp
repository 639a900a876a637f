#include "usage_window.hpp"

#include "cpu_time.hpp"

#include <cmath>

namespace kvasir::bench {

double rounded(double value, double steps_per_unit) {
  return std::round(value * steps_per_unit) / steps_per_unit;
}

double microseconds(std::chrono::nanoseconds time) {
  return rounded(static_cast<double>(time.count()) / 1e3, 100);
}

usage_window::usage_window(pid_t server_pid)
  : server_pid_(server_pid),
    own_start_(own_cpu_time()) {
  if (server_pid_ != 0)
    server_start_ = cpu_time_of(server_pid_);
}

void usage_window::close() {
  elapsed_s_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  client_cores_ = (own_cpu_time() - own_start_).count() / elapsed_s_;
  if (!server_start_)
    return;
  if (auto server_end = cpu_time_of(server_pid_))
    server_cores_ = (*server_end - *server_start_).count() / elapsed_s_;
}

void usage_window::report(nlohmann::ordered_json& to) const {
  using json = nlohmann::ordered_json;
  to["seconds"] = rounded(elapsed_s_, 1000);
  to["client_cpu_cores"] = rounded(client_cores_, 100);
  to["server_cpu_cores"] = server_cores_ ? json(rounded(*server_cores_, 100)) : json(nullptr);
}

} // namespace kvasir::bench
