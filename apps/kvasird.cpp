#include "actors/daemon.hpp"

#include <unistd.h>

#include <cstdio>

int main(int argc, char** argv) {
  auto parsed = kvasir::parse_command_line(argc, argv, environ);
  if (auto refusal = std::get_if<kvasir::refused>(&parsed)) {
    std::fprintf(stderr, "%s\n", refusal->line.c_str());
    return kvasir::exit_usage;
  }
  if (auto print = std::get_if<kvasir::print_text>(&parsed)) {
    std::fputs(print->text.c_str(), stdout);
    return std::fflush(stdout) == 0 ? 0 : 1;
  }
  return kvasir::run_daemon(std::get<kvasir::run_node>(parsed));
}
