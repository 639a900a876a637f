#include "mp_client.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace kvasir::bench {

namespace {

constexpr double status_timeout_s = 10;

} // namespace

encoded_prompt::encoded_prompt(const mp::prompt& from)
  : lookup_key(mp::encode_lookup_key(from)),
    worker_key(mp::encode_worker_key(from)),
    request_id(mp::encode(from.request_id)) {}

mp_client::mp_client(zmq::context_t& context, const endpoint& server,
                     std::chrono::seconds timeout)
  : socket_(context, zmq::socket_type::dealer) {
  auto timeout_ms = static_cast<int>(std::chrono::milliseconds{timeout}.count());
  socket_.set(zmq::sockopt::rcvtimeo, timeout_ms);
  socket_.set(zmq::sockopt::sndtimeo, timeout_ms);
  socket_.set(zmq::sockopt::linger, 0);
  socket_.connect("tcp://" + server.host + ":" + std::to_string(server.port));
}

mp_client::~mp_client() {
  if (!instance_.empty())
    ask(mp::operation::unregister_context, {instance_});
  if (uses_segment())
    ::munmap(segment_.data(), segment_.size());
}

void mp_client::ping() {
  ask(mp::operation::ping, {mp::encode_nil()});
}

std::size_t mp_client::chunk_tokens() {
  auto tokens = mp::decode_unsigned(ask(mp::operation::get_chunk_size, {}).to_string_view());
  if (!tokens)
    give_up("the server's chunk size is no number");
  return static_cast<std::size_t>(*tokens);
}

void mp_client::clear() {
  ask(mp::operation::clear, {mp::encode(false)});
}

void mp_client::register_instance(std::string_view model, const mp::layout& shape) {
  auto id = std::uint64_t{std::random_device{}()} << 31 | std::random_device{}() >> 1;
  auto reply
    = ask(mp::operation::register_context, {mp::encode_registration(id, model, shape)});
  auto info = mp::decode_segment(reply.to_string_view());
  if (!info)
    give_up("the answer to a registration is no segment");
  instance_ = mp::encode(id);
  envelope_ = mp::make_inline_envelope(shape);
  if (!info->name.empty())
    map_segment(*info);
}

void mp_client::map_segment(const mp::segment_info& info) {
  auto path = "/dev/shm/" + info.name;
  int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0)
    give_up_errno("open " + path);
  struct stat file {};
  if (::fstat(fd, &file) != 0 || static_cast<std::size_t>(file.st_size) < info.size_bytes)
    give_up(path + " is smaller than the server says");
  auto* address = ::mmap(nullptr, info.size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED)
    give_up_errno("map " + path);
  ::close(fd);
  segment_ = {static_cast<char*>(address), info.size_bytes};
}

void mp_client::forget_pages() {
  // Of a shared mapping only the page table's entries go.
  if (uses_segment() && ::madvise(segment_.data(), segment_.size(), MADV_DONTNEED) != 0)
    give_up_errno("forget the segment's pages");
}

std::size_t mp_client::lookup(const encoded_prompt& about) {
  ask(mp::operation::lookup, {about.lookup_key, mp::encode(std::uint64_t{1})});
  auto found = ask(mp::operation::wait_prefetch_status,
                   {about.request_id, mp::encode(status_timeout_s)});
  return static_cast<std::size_t>(mp::decode_unsigned(found.to_string_view()).value_or(0));
}

void mp_client::free_locks(const encoded_prompt& about) {
  ask(mp::operation::free_lookup_locks, {about.lookup_key, mp::encode(std::uint64_t{1})});
}

void mp_client::end_session(const encoded_prompt& about) {
  ask(mp::operation::end_session, {about.request_id});
}

bool mp_client::store(const encoded_prompt& about, std::span<const char> chunk) {
  auto prepared = ask(mp::operation::prepare_store, {about.worker_key, instance_});
  return uses_segment() ? store_in_slot(about, chunk, prepared.to_string_view())
                        : store_inline(about, chunk);
}

bool mp_client::store_in_slot(const encoded_prompt& about, std::span<const char> chunk,
                              std::string_view reply) {
  auto slots = mp::decode_prepared_store(reply);
  if (!slots || slots->size() != 1)
    return false;
  auto slot = in_segment(slots->front(), chunk.size());
  std::memcpy(slot.data(), chunk.data(), chunk.size());
  constexpr std::string_view no_bytes{"\xc4\0", 2};
  auto reply_to_commit
    = ask(mp::operation::commit_store, {about.worker_key, instance_, no_bytes});
  return mp::decode_true(reply_to_commit.to_string_view());
}

bool mp_client::store_inline(const encoded_prompt& about, std::span<const char> chunk) {
  const auto& [head, tail] = envelope_;
  zmq::message_t data{head.size() + chunk.size() + tail.size()};
  auto* at = static_cast<char*>(data.data());
  at = std::copy(head.begin(), head.end(), at);
  std::memcpy(at, chunk.data(), chunk.size());
  std::copy(tail.begin(), tail.end(), at + chunk.size());
  auto reply = ask(mp::operation::commit_store, {about.worker_key, instance_}, data);
  return mp::decode_true(reply.to_string_view());
}

bool mp_client::retrieve(const encoded_prompt& about, std::span<char> into) {
  auto reply = ask(mp::operation::prepare_retrieve, {about.worker_key, instance_});
  auto prepared = mp::decode_prepared_retrieve(reply.to_string_view());
  auto copied = prepared && prepared->success && copy_out(*prepared, into);
  ask(mp::operation::commit_retrieve, {about.worker_key, instance_});
  return copied;
}

bool mp_client::copy_out(const mp::prepared_retrieve& prepared, std::span<char> into) const {
  if (!uses_segment()) {
    auto chunk = mp::find_inline_chunk(prepared.data, into.size());
    if (chunk)
      std::memcpy(into.data(), chunk->data(), into.size());
    return chunk.has_value();
  }
  if (prepared.slots.size() != 1)
    return false;
  std::memcpy(into.data(), in_segment(prepared.slots.front(), into.size()).data(), into.size());
  return true;
}

std::span<char> mp_client::in_segment(const mp::slot& slot, std::size_t size) const {
  if (slot.length != size || slot.offset > segment_.size()
      || slot.length > segment_.size() - slot.offset)
    give_up("a slot is of another size, or not in the segment");
  return segment_.subspan(slot.offset, slot.length);
}

zmq::message_t mp_client::ask(mp::operation what,
                              std::initializer_list<std::string_view> arguments) {
  auto operation = mp::encode_operation(what);
  send_head(operation, arguments, false);
  return receive(operation);
}

zmq::message_t mp_client::ask(mp::operation what,
                              std::initializer_list<std::string_view> arguments,
                              zmq::message_t& last) {
  auto operation = mp::encode_operation(what);
  send_head(operation, arguments, true);
  if (!socket_.send(last, zmq::send_flags::none))
    give_up("the server takes no more requests");
  return receive(operation);
}

void mp_client::send_head(const std::string& operation,
                          std::initializer_list<std::string_view> arguments, bool more) {
  uid_ = mp::encode(next_uid_++);
  auto remaining = arguments.size() + (more ? 1 : 0);
  auto send = [this](std::string_view frame, bool last) {
    auto flags = last ? zmq::send_flags::none : zmq::send_flags::sndmore;
    if (!socket_.send(zmq::buffer(frame), flags))
      give_up("the server takes no more requests");
  };
  send(uid_, false);
  send(operation, remaining == 0);
  for (auto argument : arguments)
    send(argument, --remaining == 0);
}

zmq::message_t mp_client::receive(const std::string& operation) {
  zmq::message_t uid;
  zmq::message_t echoed;
  if (!socket_.recv(uid))
    give_up("no reply in time");
  if (uid.to_string_view() != uid_ || !uid.more())
    give_up("a reply to another request");
  (void)socket_.recv(echoed);
  if (echoed.to_string_view() != operation)
    give_up("the server refused operation " + operation);
  zmq::message_t result;
  for (auto more = echoed.more(); more; more = result.more())
    (void)socket_.recv(result);
  return result;
}

} // namespace kvasir::bench
