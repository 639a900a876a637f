#include "cpu_time.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace kvasir::bench {

std::chrono::duration<double> own_cpu_time() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return std::chrono::duration<double>{seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

std::optional<std::chrono::duration<double>> cpu_time_of(pid_t pid) {
  std::ifstream file{"/proc/" + std::to_string(pid) + "/stat"};
  std::string text{std::istreambuf_iterator<char>{file}, {}};
  // The second field is the program's name in parentheses and may hold blanks; utime and stime
  // are the 12th and 13th after it.
  auto name_end = text.rfind(')');
  if (name_end == std::string::npos)
    return std::nullopt;
  std::istringstream fields{text.substr(name_end + 1)};
  std::string skipped;
  for (int i = 0; i < 11; ++i)
    fields >> skipped;
  double user = 0;
  double system = 0;
  if (!(fields >> user >> system))
    return std::nullopt;
  return std::chrono::duration<double>{(user + system)
                                       / static_cast<double>(sysconf(_SC_CLK_TCK))};
}

} // namespace kvasir::bench
