#include "backends/peer_process.hpp"

#include "unit/shm_fixture.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <thread>

using namespace shm_fixture;
using kvasir::mapping_state;
using kvasir::maps_segment;
using kvasir::peer_of_socket;
using kvasir::process_id;
using kvasir::process_of;

namespace {

/// Bytes between a test and its child: who waits for whom.
class signal_pipe {
public:
  signal_pipe() { REQUIRE(::pipe(ends_.data()) == 0); }
  ~signal_pipe() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  void send() {
    if (::write(ends_[1], "x", 1) != 1)
      std::abort();
  }
  void wait() {
    char c = 0;
    if (::read(ends_[0], &c, 1) != 1)
      std::abort();
  }

private:
  std::array<int, 2> ends_{};
};

/// A child that runs `body` until it is told to stop, and is killed at the latest here.
class child {
public:
  template <class Body>
  explicit child(Body body) : pid_(::fork()) {
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      body();
      ::_exit(0);
    }
  }
  ~child() { reap(); }

  pid_t pid() const { return pid_; }

  /// Ends it; it stays as a zombie.
  void kill() {
    ::kill(pid_, SIGKILL);
    siginfo_t ended{};
    REQUIRE(::waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT) == 0);
  }

  void reap() {
    if (pid_ < 0)
      return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

private:
  pid_t pid_;
};

int tcp_socket(int family) {
  auto fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(fd >= 0);
  return fd;
}

/// A listener of one family, and connections to it. Descriptors are closed at the end.
struct tcp_fixture {
  std::vector<int> fds;

  ~tcp_fixture() {
    for (auto fd : fds)
      ::close(fd);
  }

  /// @returns the listener, or -1 if there is no such family here. Sets `port`.
  int listen(int family) {
    auto fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 any{};
    any.sin6_family = static_cast<sa_family_t>(family); // The rest is 0 in either family.
    if (fd < 0 || ::bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof(any)) != 0)
      return -1;
    REQUIRE(::listen(fd, 4) == 0);
    fds.push_back(fd);
    sockaddr_in6 bound{};
    socklen_t size = sizeof(bound);
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) == 0);
    port = bound.sin6_port; // At the same place in both families.
    return fd;
  }

  int connect(const char* address) const {
    sockaddr_in ipv4{};
    sockaddr_in6 ipv6{};
    ipv4.sin_port = ipv6.sin6_port = port;
    int fd = -1;
    if (::inet_pton(AF_INET, address, &ipv4.sin_addr) == 1) {
      ipv4.sin_family = AF_INET;
      fd = tcp_socket(AF_INET);
      return ::connect(fd, reinterpret_cast<sockaddr*>(&ipv4), sizeof(ipv4)) == 0 ? fd : -1;
    }
    ::inet_pton(AF_INET6, address, &ipv6.sin6_addr);
    ipv6.sin6_family = AF_INET6;
    fd = tcp_socket(AF_INET6);
    return ::connect(fd, reinterpret_cast<sockaddr*>(&ipv6), sizeof(ipv6)) == 0 ? fd : -1;
  }

  int accept(int listener) {
    fds.push_back(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(fds.back() >= 0);
    return fds.back();
  }

  in_port_t port = 0;
};

struct map_fixture {
  std::unique_ptr<shm_pool> pool = must_open(shared(mib));
  signal_pipe to_child;
  signal_pipe to_test;

  void* map() const {
    auto fd = ::open(path_of(pool->name()).c_str(), O_RDWR | O_CLOEXEC);
    auto result = ::mmap(nullptr, mib, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (result == MAP_FAILED)
      std::abort();
    ::close(fd);
    return result;
  }

  /// Takes away the mapping that a child inherits.
  void unmap_inherited() const { ::munmap(pool->data(), pool->capacity_bytes()); }

  mapping_state state_of(const child& process) const {
    auto id = process_of(process.pid());
    REQUIRE(id);
    return maps_segment(*id, pool->name());
  }
};

} // namespace

TEST_CASE("a process is known by its pid and its start, whatever it is called") {
  auto self = process_of(::getpid());
  REQUIRE(self);
  CHECK(self->pid == ::getpid());
  CHECK(self->start_time > 0);
  CHECK(process_of(::getpid()) == self);
  char name[16] = {};
  REQUIRE(::prctl(PR_SET_NAME, name) == 0);
  for (auto odd : {") R 1 (x", "a b\nc d", "\n"}) {
    REQUIRE(::prctl(PR_SET_NAME, odd) == 0);
    CHECK(process_of(::getpid()) == self);
  }
  ::prctl(PR_SET_NAME, "kvasir_tests");
  CHECK_FALSE(process_of(0));
  CHECK_FALSE(process_of(-1));
}

TEST_CASE_FIXTURE(tcp_fixture, "the peer of a TCP connection is found, whatever the family") {
  struct {
    int family;
    const char* address;
  } cases[]
    = {{AF_INET, "127.0.0.1"},  {AF_INET, "127.0.0.2"},         {AF_INET6, "::1"},
       {AF_INET6, "127.0.0.1"}, {AF_INET6, "::ffff:127.0.0.1"}, {AF_INET, "::ffff:127.0.0.1"}};
  for (auto [family, address] : cases) {
    auto listener = listen(family);
    if (listener < 0) {
      MESSAGE("skipped: no such family on this host: " << address);
      continue;
    }
    CAPTURE(address);
    signal_pipe connected;
    child client{[&, to = address] {
      auto fd = connect(to);
      connected.send();
      while (fd >= 0)
        ::pause();
    }};
    connected.wait();
    auto peer = peer_of_socket(accept(listener));
    REQUIRE(peer);
    CHECK(peer == process_of(client.pid()));
    CHECK(peer->pid != ::getpid());
  }
}

TEST_CASE_FIXTURE(tcp_fixture, "a process may be its own peer") {
  auto listener = listen(AF_INET);
  auto fd = connect("127.0.0.1");
  REQUIRE(fd >= 0);
  fds.push_back(fd);
  auto accepted = accept(listener);
  CHECK(peer_of_socket(accepted) == process_of(::getpid()));
  CHECK(peer_of_socket(fd) == process_of(::getpid()));
}

TEST_CASE_FIXTURE(tcp_fixture,
                  "of several processes that share a connection the oldest is its peer") {
  auto listener = listen(AF_INET);
  auto fd = connect("127.0.0.1");
  REQUIRE(fd >= 0);
  fds.push_back(fd);
  auto accepted = accept(listener);
  child heir{[] {
    ::pause();
  }}; // Has a copy of each descriptor.
  CHECK(peer_of_socket(accepted) == process_of(::getpid()));
}

TEST_CASE_FIXTURE(tcp_fixture, "a peer that is gone, or none at all, is nobody") {
  auto listener = listen(AF_INET);
  CHECK_FALSE(peer_of_socket(listener));
  CHECK_FALSE(peer_of_socket(-1));
  CHECK_FALSE(peer_of_socket(STDIN_FILENO));
  auto fd = connect("127.0.0.1");
  REQUIRE(fd >= 0);
  auto accepted = accept(listener);
  ::close(fd);
  CHECK_FALSE(peer_of_socket(accepted));
}

TEST_CASE("the peer of a Unix socket is who connected") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  CHECK(peer_of_socket(ends[0]) == process_of(::getpid()));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE_FIXTURE(map_fixture, "a process maps the segment until it unmaps it") {
  child client{[&] {
    unmap_inherited();
    to_test.send();
    to_child.wait();
    auto mapped = map();
    to_test.send();
    to_child.wait();
    ::munmap(mapped, mib);
    to_test.send();
    ::pause();
  }};
  to_test.wait();
  CHECK(state_of(client) == mapping_state::no);
  to_child.send();
  to_test.wait();
  CHECK(state_of(client) == mapping_state::yes);
  auto name = path_of(pool->name());
  SUBCASE("also when its name was published again") {
    REQUIRE(::unlink(name.c_str()) == 0);
    CHECK(state_of(client) == mapping_state::yes);
    REQUIRE(pool->republish());
    CHECK(state_of(client) == mapping_state::yes);
  }
  SUBCASE("also when another file has its name") {
    REQUIRE(::unlink(name.c_str()) == 0);
    ::close(::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    CHECK(state_of(client) == mapping_state::yes);
    ::unlink(name.c_str());
  }
  to_child.send();
  to_test.wait();
  CHECK(state_of(client) == mapping_state::no);
}

TEST_CASE_FIXTURE(map_fixture, "a process that is gone maps nothing, nor does a later one") {
  child client{[&] {
    to_test.send();
    ::pause();
  }};
  to_test.wait();
  auto id = process_of(client.pid());
  REQUIRE(id);
  CHECK(maps_segment(*id, pool->name()) == mapping_state::yes); // Inherited.
  CHECK(maps_segment({id->pid, id->start_time + 1}, pool->name()) == mapping_state::no);
  client.kill();
  CHECK(maps_segment(*id, pool->name()) == mapping_state::no);
  client.reap();
  CHECK(maps_segment(*id, pool->name()) == mapping_state::no);
}

TEST_CASE_FIXTURE(map_fixture, "a process whose first thread alone ended may still map it") {
  child client{[&] {
    std::thread rest{[&] {
      to_test.send();
      ::pause();
    }};
    ::syscall(SYS_exit, 0);
  }};
  to_test.wait();
  auto id = process_of(client.pid());
  REQUIRE(id);
  CHECK(maps_segment(*id, pool->name()) != mapping_state::no);
}

TEST_CASE_FIXTURE(map_fixture, "another user's process is not visible") {
  auto self = process_of(::getpid());
  REQUIRE(self);
  constexpr uid_t nobody = 65534;
  check_unless_skipped(in_child([&] {
    if (::setuid(nobody) != 0)
      return 77;
    auto state = maps_segment(*self, pool->name());
    return state == mapping_state::not_visible ? 0 : 1;
  }));
}
