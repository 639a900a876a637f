// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include "support/mp_chunks.hpp"

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.hpp>

#include <chrono>
#include <map>
#include <memory>
#include <unordered_map>

/// A small client of the MP protocol of its own kind: it shares no encoder with the server (but
/// for the pickles), keeps no state that it is not asked to keep, and does nothing in secret.
///
/// Threading: a client belongs to one thread. Nothing here fails a test by itself.
namespace kvasir::test {

using json = nlohmann::json;

// -- the pool ---------------------------------------------------------------------------

/// A mapping of the server's segment, as a worker has it. Valid until it ends, whatever becomes of
/// the segment.
class pool_view {
public:
  explicit pool_view(const std::string& name) {
    auto fd = open(("/dev/shm/" + name).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    struct stat found {};
    if (fd < 0 || fstat(fd, &found) != 0)
      return;
    size_ = static_cast<size_t>(found.st_size);
    auto mapped = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    data_ = mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
  }

  ~pool_view() {
    if (data_ != nullptr)
      munmap(data_, size_);
  }

  pool_view(const pool_view&) = delete;
  pool_view& operator=(const pool_view&) = delete;

  explicit operator bool() const { return data_ != nullptr; }
  size_t size() const { return size_; }
  std::span<std::byte> at(uint64_t offset, uint64_t length) const {
    return offset + length <= size_ ? std::span{data_ + offset, length}
                                    : std::span<std::byte>{};
  }

private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// -- answers ----------------------------------------------------------------------------

struct mp_reply {
  enum class kind : uint8_t {
    silence, ///< Within the client's patience.
    error,   ///< Another operation than the one asked: LMCache's clients fail at once.
    nothing, ///< No result.
    value,
  };

  kind what = kind::silence;
  json value;

  explicit operator bool() const { return what != kind::silence; }
  bool is_true() const { return what == kind::value && value == true; }
  bool is_false() const { return what == kind::value && value == false; }
};

struct slot_place {
  uint32_t index = 0; ///< Of the chunk, from the range's first.
  uint64_t offset = 0;
  uint64_t length = 0;
};

struct store_slots {
  bool answered = false;
  bool no_buffers = false; ///< To be sent inline, or: it will fail.
  std::vector<slot_place> slots;
};

struct retrieve_slots {
  bool answered = false;
  bool success = false;
  std::vector<slot_place> slots;
  bytes data; ///< A pickle, if it came inline.
};

// -- the client -------------------------------------------------------------------------

class mp_client {
public:
  static constexpr std::chrono::seconds patience{20};

  /// @param unread how many replies wait in here at most; 0: ZeroMQ's thousand
  explicit mp_client(uint16_t port, std::shared_ptr<zmq::context_t> context = {},
                     int unread = 0)
    : context_(context ? std::move(context) : std::make_shared<zmq::context_t>(1)),
      socket_(*context_, zmq::socket_type::dealer) {
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::sndhwm, 0);
    if (unread > 0)
      socket_.set(zmq::sockopt::rcvhwm, unread);
    socket_.connect("tcp://127.0.0.1:" + std::to_string(port));
  }

  // -- messages ---

  /// Any frames, without a thought.
  void send(const std::vector<std::string>& frames) {
    for (size_t i = 0; i < frames.size(); ++i)
      socket_.send(zmq::buffer(frames[i]),
                   i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }

  /// As `send`, without a copy: the frames must stay until the answer is there. A large copy that
  /// is freed once it was sent holds up what is sent next.
  void send_in_place(std::vector<std::string>& frames) {
    for (size_t i = 0; i < frames.size(); ++i)
      socket_.send(
        zmq::message_t{frames[i].data(), frames[i].size(), [](void*, void*) {}, nullptr},
        i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }

  /// The next message, empty if none comes.
  std::vector<std::string> receive(std::chrono::milliseconds limit = patience) {
    std::vector<std::string> result;
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(limit.count()));
    for (auto more = true; more;) {
      zmq::message_t frame;
      if (!socket_.recv(frame, zmq::recv_flags::none))
        return {};
      more = frame.more();
      result.push_back(frame.to_string());
    }
    return result;
  }

  static std::string packed(const json& value) {
    std::string result;
    json::to_msgpack(value, result);
    return result;
  }

  /// Asks, does not wait. @returns the uid.
  std::string ask(const json& operation, const std::vector<std::string>& arguments) {
    auto uid = packed(next_uid_++);
    std::vector<std::string> frames{uid, packed(operation)};
    frames.insert(frames.end(), arguments.begin(), arguments.end());
    operations_[uid] = frames[1];
    send(frames);
    return uid;
  }

  /// The answer to what was asked with this uid; others that come meanwhile are kept.
  mp_reply answer(const std::string& uid, std::chrono::milliseconds limit = patience) {
    auto deadline = std::chrono::steady_clock::now() + limit;
    for (;;) {
      if (auto node = replies_.extract(uid))
        return std::move(node.mapped());
      auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0)
        return {};
      auto frames = receive(left);
      if (frames.size() >= 2)
        replies_.emplace(frames[0], read(frames));
    }
  }

  mp_reply call(const json& operation, const std::vector<json>& arguments = {}) {
    std::vector<std::string> frames;
    for (auto& argument : arguments)
      frames.push_back(packed(argument));
    return answer(ask(operation, frames));
  }

  // -- instances ---

  /// Registers an instance and, unless told otherwise, maps the pool that it was told of.
  bool enroll(uint64_t instance, const mp_layout& how = {}, const std::string& model = "m",
              uint32_t world_size = 1, bool attach = true) {
    json wanted{{"instance_id", instance},        {"model_name", model},
                {"world_size", world_size},       {"block_size", chunk_tokens},
                {"num_layers", how.layers},       {"hidden_dim_size", how.hidden},
                {"dtype_str", how.dtype},         {"use_mla", how.single_plane},
                {"num_physical_slots", how.slots}};
    auto reply = call("register_kv_cache_engine_driven_context", {wanted});
    if (reply.what != mp_reply::kind::value)
      return false;
    layout = how;
    instance_id = instance;
    auto name = reply.value.at("shm_name").get<std::string>();
    pool = attach && !name.empty() ? std::make_shared<pool_view>(name) : nullptr;
    return true;
  }

  mp_reply leave() { return call("unregister_kv_cache_engine_driven_context", {instance_id}); }

  mp_reply ping() { return call("ping", {instance_id}); }

  // -- lookups ---

  static json key_of(const chunk_range& range, bool of_worker) {
    return {{"model_name", range.model},
            {"world_size", range.world_size},
            {"worker_id", of_worker ? json(range.rank) : json()},
            {"token_ids", range.tokens()},
            {"start", size_t{range.first} * chunk_tokens},
            {"end", size_t{range.last} * chunk_tokens + (of_worker ? 0 : range.extra_tokens)},
            {"request_id", range.request},
            {"cache_salt", range.salt},
            {"request_configs", nullptr},
            {"num_kv_readers", range.readers}};
  }

  /// @returns the chunks found, -1 without an answer.
  int lookup(const chunk_range& range) {
    auto key = key_of(range, false);
    if (call("lookup", {key, 1}).what != mp_reply::kind::nothing)
      return -1;
    auto deadline = std::chrono::steady_clock::now() + patience;
    while (std::chrono::steady_clock::now() < deadline) {
      auto status = call("query_prefetch_status", {range.request});
      if (status.what == mp_reply::kind::value)
        return status.value.get<int>();
      if (status.what != mp_reply::kind::nothing)
        return -1;
    }
    return -1;
  }

  mp_reply free_locks(const chunk_range& range) {
    return call("free_lookup_locks", {key_of(range, false), 1});
  }

  mp_reply end_session(const std::string& request) { return call("end_session", {request}); }

  // -- stores ---

  store_slots prepare_store(const chunk_range& range) {
    return read_store(call("prepare_store", {key_of(range, true), instance_id}));
  }

  mp_reply commit_store(const chunk_range& range, const std::string& data = {}) {
    return answer(ask_commit(range, data));
  }

  std::string ask_commit(const chunk_range& range, const std::string& data) {
    return ask("commit_store",
               {packed(key_of(range, true)), packed(instance_id),
                packed(json::binary(std::vector<uint8_t>{data.begin(), data.end()}))});
  }

  /// Writes what belongs into these slots.
  void fill(const chunk_range& range, const store_slots& plan) {
    for (auto& slot : plan.slots)
      fill_value(pool->at(slot.offset, slot.length),
                 range.value_seed(range.first + slot.index));
  }

  /// As LMCache's worker does: into slots if it maps the pool, else by a commit that has all.
  /// @returns whether it was told that everything is stored.
  bool store(const chunk_range& range) {
    auto plan = prepare_store(range);
    if (!plan.answered)
      return false;
    if (!pool)
      return commit_store(range, inline_data(range)).is_true();
    if (plan.no_buffers)
      return commit_store(range).is_true();
    if (plan.slots.empty())
      return true;
    fill(range, plan);
    return commit_store(range).is_true();
  }

  std::string inline_data(const chunk_range& range) const {
    return pickled(chunk_values(range, layout), layout.type(), layout.dims());
  }

  // -- retrieves ---

  retrieve_slots prepare_retrieve(const chunk_range& range) {
    return read_retrieve(call("prepare_retrieve", {key_of(range, true), instance_id}));
  }

  mp_reply commit_retrieve(const chunk_range& range) {
    return call("commit_retrieve", {key_of(range, true), instance_id});
  }

  /// The chunks of a plan, copied from wherever they are.
  std::vector<bytes> chunks_of(const retrieve_slots& plan) const {
    std::vector<bytes> result;
    if (pool && !plan.slots.empty()) {
      for (auto& slot : plan.slots) {
        auto found = pool->at(slot.offset, slot.length);
        result.emplace_back(found.begin(), found.end());
      }
      return result;
    }
    if (auto tensors = mp::read_tensor_list(plan.data))
      for (auto& tensor : *tensors) {
        auto found = std::span{plan.data}.subspan(tensor.offset_bytes, tensor.size_bytes);
        result.emplace_back(found.begin(), found.end());
      }
    return result;
  }

  /// Both steps, with a copy between them. @returns nothing if it failed.
  std::optional<std::vector<bytes>> retrieve(const chunk_range& range) {
    auto plan = prepare_retrieve(range);
    auto chunks = chunks_of(plan);
    commit_retrieve(range);
    return plan.success ? std::optional{std::move(chunks)} : std::nullopt;
  }

  /// @returns whether a retrieve gives exactly the chunks of this range.
  bool retrieves_exactly(const chunk_range& range) {
    return retrieve(range) == chunk_values(range, layout);
  }

  /// Looks up, retrieves what was promised and ends the session.
  /// @returns the chunks that were found and exact; -1 without an answer, -2 if the retrieve was
  /// refused, -3 if any byte was wrong.
  int exact_prefix(chunk_range range) {
    auto found = lookup(range);
    range.extra_tokens = 0;
    if (found > 0) {
      range.last = static_cast<uint32_t>(found);
      auto chunks = retrieve(range);
      if (!chunks)
        found = -2;
      else if (*chunks != chunk_values(range, layout))
        found = -3;
    }
    end_session(range.request);
    return found;
  }

  mp_layout layout;
  uint64_t instance_id = 0;
  std::shared_ptr<pool_view> pool; ///< Null: inline.

  static store_slots read_store(const mp_reply& reply) {
    store_slots result;
    result.answered = reply.what == mp_reply::kind::value;
    if (!result.answered)
      return result;
    auto& context = reply.value.at("context");
    result.no_buffers = !context.contains("slots");
    if (result.no_buffers)
      return result;
    result.slots = read_slots(context);
    for (size_t i = 0; i < result.slots.size(); ++i)
      result.slots[i].index = context.at("chunk_indices").at(i).get<uint32_t>();
    return result;
  }

  static retrieve_slots read_retrieve(const mp_reply& reply) {
    retrieve_slots result;
    result.answered = reply.what == mp_reply::kind::value;
    if (!result.answered)
      return result;
    result.success = reply.value.at("success").get<bool>();
    auto& data = reply.value.at("data").get_binary();
    auto raw = reinterpret_cast<const std::byte*>(data.data());
    result.data.assign(raw, raw + data.size());
    if (reply.value.at("context").contains("slots"))
      result.slots = read_slots(reply.value.at("context"));
    return result;
  }

private:
  static std::vector<slot_place> read_slots(const json& context) {
    std::vector<slot_place> result;
    for (auto& slot : context.at("slots"))
      result.push_back({static_cast<uint32_t>(result.size()), slot.at("offset").get<uint64_t>(),
                        slot.at("length").get<uint64_t>()});
    return result;
  }

  mp_reply read(const std::vector<std::string>& frames) {
    mp_reply result;
    auto asked = operations_.find(frames[0]);
    if (asked == operations_.end() || asked->second != frames[1]) {
      result.what = mp_reply::kind::error;
      return result;
    }
    // A stream goes on until it says nothing.
    static const auto stream = packed("subscribe_kv_events");
    if (frames[1] != stream || frames.size() == 2)
      operations_.erase(asked);
    result.what = frames.size() > 2 ? mp_reply::kind::value : mp_reply::kind::nothing;
    if (frames.size() > 2)
      result.value = json::from_msgpack(frames[2]);
    return result;
  }

  std::shared_ptr<zmq::context_t> context_;
  zmq::socket_t socket_;
  uint64_t next_uid_ = 0;
  std::unordered_map<std::string, std::string> operations_; ///< Asked and not answered, by uid.
  std::multimap<std::string, mp_reply> replies_;            ///< That nobody asked for yet.
};

} // namespace kvasir::test
