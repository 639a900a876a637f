// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <caf/expected.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace kvasir {

/// The payload memory of this node: one range of addresses, shared with the engines of the host
/// or private. It holds payload bytes only; books and locks live in the daemon, so that a
/// client that dies or scribbles can break nothing but payload (which checksums find).
///
///   open --> usable 0 --grow--> ... --grow--> usable = capacity --destructor--> unlinked
///
/// Memory is usable only once it was allocated and faulted in by `grow`: sparse shared memory
/// would end in SIGBUS when /dev/shm fills up, and the first touch is ten times slower than the
/// second. Clients see the whole size from the start and get slots within the usable part only.
///
/// Names: the segment is created under an anchor, `kvasir_anchor_<uid>_<boot id>`, locked, and
/// then linked under its public name. The anchor lets `republish` restore a public name that
/// another process unlinked, and marks an explicitly named segment as ours for the next start.
/// Owner-is-dead check: the owner holds `flock(LOCK_EX)` for life, which the kernel ends with
/// the process, in whatever pid namespace; a segment of our uid whose lock is free is stale.
///
/// Threading: `grow` may be called from one thread at a time, beside any other thread that
/// calls the const functions or uses the memory. `republish` and the destructor belong to the
/// owner. Blocking: `open` sweeps /dev/shm; `grow` takes tens of milliseconds. The others do
/// not wait. Errors: each carries one line of text that names the segment or the two numbers
/// compared.
class shm_pool {
public:
  enum class sharing : uint8_t {
    automatic, ///< Shared if possible, otherwise private and `fallback_reason()` says why.
    on,        ///< Shared, or `open` fails.
    off,       ///< Private anonymous memory.
  };

  struct options {
    uint64_t capacity_bytes = 0; ///< Rounded down to a multiple of 4096; at least 4096.
    sharing mode = sharing::automatic;
    /// Name below /dev/shm, without a slash; empty: `lmcache_l1_pool_kvasir_<uid>_<boot id>`.
    std::string name{};
    uint64_t step_bytes = 64ull << 20; ///< What one `grow` adds; rounded up to 4096.
  };

  /// Removes segments of dead owners, checks that the memory exists, and maps the pool. Nothing
  /// is usable before the first `grow`.
  /// @returns the pool, or
  ///   - `errc::invalid_argument` if the capacity is below 4096 bytes or the name is unusable,
  ///   - `errc::io_error` if /dev/shm, the memory cgroup or the machine cannot hold the
  ///   capacity
  ///     (text has both numbers), if an explicit name is taken by something that is not a stale
  ///     segment of ours (text has path and owner; also with `automatic`: a client told that
  ///     name would attach to a stranger's memory), or if a system call fails.
  static caf::expected<std::unique_ptr<shm_pool>> open(options opts);

  /// Withdraws, then unmaps the segment. Processes that mapped it keep their mapping.
  ~shm_pool();
  shm_pool(const shm_pool&) = delete;
  shm_pool& operator=(const shm_pool&) = delete;

  /// Unlinks the segment's names as far as they still refer to it: nobody finds it any more, who
  /// has mapped it keeps it. Idempotent; belongs to the owner.
  void withdraw();

  /// Allocates and faults in the next step; new memory reads as zero.
  /// @returns the new usable size (the old one when it is the capacity already), or
  ///   - `errc::out_of_memory` if /dev/shm or the cgroup has no room now: the usable part stays
  ///     as it was and a later call may succeed,
  ///   - `errc::io_error` if the system refuses otherwise.
  caf::expected<uint64_t> grow();

  /// The first byte; constant while the pool lives. Only `usable_bytes()` from here may be
  /// used.
  std::byte* data() const { return data_; }
  uint64_t capacity_bytes() const { return capacity_bytes_; }
  uint64_t usable_bytes() const { return usable_bytes_.load(std::memory_order_acquire); }
  bool is_shared() const { return fd_ >= 0; }

  /// Another open file of the segment, to be lent to a process: this one's carries the lock that says
  /// that its owner lives. @returns -1 with errno if the kernel refuses, or if private.
  int reopen() const;

  /// The public name, without a slash; empty if private.
  const std::string& name() const { return name_; }

  /// Why `automatic` became private; empty otherwise.
  const std::string& fallback_reason() const { return fallback_reason_; }

  /// Public and anchor names of dead owners' segments that `open` removed.
  const std::vector<std::string>& swept() const { return swept_; }

  /// Whether the public name still leads to this segment. False if private. One system call.
  bool segment_present() const;

  /// Links the segment under its public name again after another process unlinked it.
  /// @returns true if the name leads to this segment afterwards; false if it is private, the
  /// name is taken by something else, or the anchor is gone too.
  bool republish();

  /// Whether another open file of this segment exists, mapped or not, in whatever pid namespace.
  /// False if private; true if the kernel will not tell. Two system calls; an open(2) of the
  /// segment at that moment waits for the second (with O_NONBLOCK it fails with EWOULDBLOCK).
  /// Source: fcntl(2): a write lease is granted only to the sole opener of a file.
  bool open_elsewhere() const;

private:
  struct segment; // owns the Boost objects, known to the .cpp only

  shm_pool();
  caf::error open_shared(const options& opts);
  caf::error open_private();
  bool refers_to_us(const std::string& name) const;

  std::unique_ptr<segment> segment_;
  std::byte* data_ = nullptr;
  uint64_t capacity_bytes_ = 0;
  uint64_t step_bytes_ = 0;
  std::atomic<uint64_t> usable_bytes_ = 0;
  int fd_ = -1; // owned by segment_; -1 = private
  int owner_pid_ = 0;
  std::string name_;
  std::string anchor_;
  std::string fallback_reason_;
  std::vector<std::string> swept_;
};

} // namespace kvasir
