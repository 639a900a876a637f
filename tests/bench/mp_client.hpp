#pragma once

#include "mp_wire.hpp"
#include "socket_io.hpp"

#include <zmq.hpp>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace kvasir::bench {

/// A prompt with everything that its requests consist of, encoded once: the server is measured,
/// not the encoding of the same tokens again and again.
struct encoded_prompt {
  explicit encoded_prompt(const mp::prompt& from);

  std::string lookup_key;
  std::string worker_key;
  std::string request_id;
};

/// One client of an MP server, with a socket of its own: scheduler and worker of an engine in
/// one. Each call sends one request and waits for its reply. `give_up` is called when no reply
/// comes in time, or when it says that the request was refused.
///
/// Threading: not thread-safe; belongs to one thread at a time.
class mp_client {
public:
  mp_client(zmq::context_t& context, const endpoint& server, std::chrono::seconds timeout);
  ~mp_client();

  mp_client(const mp_client&) = delete;
  mp_client& operator=(const mp_client&) = delete;

  void ping();
  std::size_t chunk_tokens();

  /// Drops what is neither locked nor being written.
  void clear();

  /// Registers as a worker and maps the segment, if there is one.
  void register_instance(std::string_view model, const mp::layout& shape);

  /// Whether chunks travel through shared memory.
  bool uses_segment() const { return segment_.data() != nullptr; }

  /// Makes the next access to each page of the segment a page fault, as in a process that just
  /// mapped it.
  void forget_pages();

  /// @returns chunks found; they stay locked.
  std::size_t lookup(const encoded_prompt& about);
  void free_locks(const encoded_prompt& about);
  void end_session(const encoded_prompt& about);

  /// Stores the one chunk of a prompt.
  /// @returns whether it was taken; also false if it was in the cache already.
  bool store(const encoded_prompt& about, std::span<const char> chunk);

  /// Copies the one chunk of a prompt, locked by a lookup, into `into`.
  /// @returns whether it was there.
  bool retrieve(const encoded_prompt& about, std::span<char> into);

private:
  bool store_in_slot(const encoded_prompt& about, std::span<const char> chunk,
                     std::string_view reply);
  bool store_inline(const encoded_prompt& about, std::span<const char> chunk);
  bool copy_out(const mp::prepared_retrieve& prepared, std::span<char> into) const;
  std::span<char> in_segment(const mp::slot& slot, std::size_t size) const;
  void map_segment(const mp::segment_info& info);

  /// @returns the result's frame, empty if there is none
  zmq::message_t ask(mp::operation what, std::initializer_list<std::string_view> arguments);
  zmq::message_t ask(mp::operation what, std::initializer_list<std::string_view> arguments,
                     zmq::message_t& last);
  void send_head(const std::string& operation,
                 std::initializer_list<std::string_view> arguments, bool more);
  zmq::message_t receive(const std::string& operation);

  zmq::socket_t socket_;
  std::uint64_t next_uid_ = 0;
  std::string uid_; ///< of the request under way
  std::string instance_;
  mp::inline_envelope envelope_;
  std::span<char> segment_;
};

} // namespace kvasir::bench
