#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>

namespace kvasir::bench {

/// User and system time that this process has used.
std::chrono::duration<double> own_cpu_time();

/// User and system time of another process (in steps of the kernel's clock tick, 10 ms), or
/// none when it cannot be read.
std::optional<std::chrono::duration<double>> cpu_time_of(pid_t pid);

} // namespace kvasir::bench
