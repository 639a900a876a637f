#pragma once

#include "mp_client.hpp"
#include "value_stamp.hpp"

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace kvasir::bench {

enum class mp_operation {
  ping,
  miss,     ///< lookup, wait_prefetch_status, end_session of a prompt that is not stored
  hit,      ///< the same and free_lookup_locks, of a stored chunk
  store,    ///< prepare_store, the copy, commit_store
  retrieve, ///< prepare_retrieve, the copy, commit_retrieve
};

/// What one client does again and again.
struct mp_task {
  mp_operation what = mp_operation::ping;
  mp::layout shape;
  std::size_t token_count = 2048; ///< of the prompt of `miss`
  std::size_t key_count = 8;      ///< prompts that are gone through in turn
  bool first_touch = false;       ///< Each transfer is the first to touch its pages.
  bool verify = true;             ///< false for a server that only echoes
  std::uint64_t nonce = 0;        ///< of the run
  std::uint32_t client_index = 0;
};

/// One client and its prompts. Of each round only `timed` is measured.
///
/// Threading: as `mp_client`.
class mp_worker_task {
public:
  mp_worker_task(mp_client& client, const mp_task& task);

  /// Registers and stores what `hit` and `retrieve` need.
  void preload();

  void before(std::size_t round);
  void timed(std::size_t round);
  void after(std::size_t round);

  /// After `store`: retrieves what no client cleared and looks at its bytes.
  /// @pre all clients have ended their last round
  void verify();

  /// Answers that were wrong, and chunks that were not taken or came back otherwise.
  std::uint64_t bad_count() const { return bad_count_; }

private:
  bool moves_chunks() const;
  void expect(bool good);
  void look_up(const encoded_prompt& about, std::size_t expected_chunks);
  void store(std::size_t key_index);
  void retrieve(std::size_t key_index);
  value_stamp stamp_of(std::size_t key_index) const;

  mp_client& client_;
  const mp_task task_;
  std::string model_;
  std::vector<encoded_prompt> prompts_;
  std::vector<std::uint64_t> versions_; ///< of the chunk last stored, per prompt
  std::vector<char> outgoing_;
  std::vector<char> incoming_;
  std::uint64_t bad_count_ = 0;
};

} // namespace kvasir::bench
