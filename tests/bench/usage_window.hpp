#pragma once

#include <nlohmann/json.hpp>
#include <sys/types.h>

#include <chrono>
#include <optional>

namespace kvasir::bench {

double rounded(double value, double steps_per_unit);

/// To a hundredth.
double microseconds(std::chrono::nanoseconds time);

/// CPU time used and wall time passed since construction.
class usage_window {
public:
  /// @param server_pid whose CPU time is reported too; 0 = none
  explicit usage_window(pid_t server_pid);

  void close();

  // Valid after `close`.
  double elapsed_s() const { return elapsed_s_; }
  void report(nlohmann::ordered_json& to) const;

private:
  pid_t server_pid_;
  std::optional<std::chrono::duration<double>> server_start_;
  std::chrono::duration<double> own_start_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double elapsed_s_ = 0;
  double client_cores_ = 0;
  std::optional<double> server_cores_;
};

} // namespace kvasir::bench
