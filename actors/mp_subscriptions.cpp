#include "actors/mp_job.hpp"
#include "messages/mp_reply.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

/// The event streams of the MP door. A client has one credit when it subscribes, and gives one for
/// each batch that it takes; the first batch comes at once, later ones when there is news.
namespace kvasir {

namespace {

constexpr size_t max_subscriptions = 1'024;
constexpr ptrdiff_t max_subscriptions_per_client = 16;

/// Then it is asked again.
constexpr std::chrono::minutes longest_silence{10};

} // namespace

void mp_door::serve(job of, mp::subscribe_kv_events_request& request) {
  auto former = std::find_if(subscriptions_.begin(), subscriptions_.end(), [&](auto& each) {
    return each.second.instance == request.instance_id;
  });
  if (former != subscriptions_.end())
    end_subscription(former->first);
  auto of_client = std::count_if(subscriptions_.begin(), subscriptions_.end(),
                                 [&](auto& each) { return each.second.client == of.client; });
  if (subscriptions_.size() >= max_subscriptions
      || of_client >= max_subscriptions_per_client) {
    refuse(of);
    return;
  }
  counters_.add(mp_count::streams);
  auto id = ++last_subscription_;
  subscription made;
  made.instance = request.instance_id;
  made.client = of.client;
  made.model = std::move(request.model_name);
  made.cursor = request.cursor;
  made.max_events = request.max_events;
  made.request = std::move(of.request);
  made.request.arguments.clear();
  subscriptions_.emplace(id, std::move(made));
  read_events(id, false);
}

/// A frame of flow control: an empty operation, and `ack` or `cancel` behind it.
void mp_door::control_subscription(const mp_request& request) {
  auto word = request.arguments.empty() ? std::string_view{}
                                        : request.arguments.front().to_string_view();
  for (auto& [id, each] : subscriptions_) {
    if (each.request.peer != request.peer || each.request.uid != request.uid)
      continue;
    if (word == "ack") {
      if (!std::exchange(each.credit, true) && !each.reading)
        read_events(id, true);
    } else {
      end_subscription(id);
    }
    return;
  }
}

void mp_door::read_events(uint64_t id, bool wait) {
  auto& each = subscriptions_.at(id);
  each.reading = true;
  calls_.ask<kv_event_batch>(
    options_.events, read_kv_events{id, each.model, each.cursor, each.max_events, wait},
    longest_silence, [this, id](io_reply<kv_event_batch>& reply) { on_events(id, reply); });
}

void mp_door::on_events(uint64_t id, io_reply<kv_event_batch>& reply) {
  auto i = subscriptions_.find(id);
  if (i == subscriptions_.end())
    return;
  auto& each = i->second;
  each.reading = false;
  if (!reply) {
    if (reply.error() == errc::timed_out)
      read_events(id, true);
    else if (reply.error() != errc::not_reserved)
      end_subscription(id);
    return;
  }
  each.cursor = reply.value.next_cursor;
  auto text = mp::encode_event_batch(each.model, reply.value);
  zmq::message_t frame{text.data(), text.size()};
  each.credit = false;
  if (!socket_)
    return;
  auto sent = socket_->send(each.request, &frame);
  count_sent(each.request, sent);
  if (sent != mp_socket::sent::yes)
    end_subscription(id);
}

void mp_door::end_subscription(uint64_t id) {
  auto node = subscriptions_.extract(id);
  if (node.empty())
    return;
  unit_.send(options_.events, end_kv_reader{id});
  send(node.mapped().request, nullptr);
}

void mp_door::end_subscriptions_of(client_id client) {
  std::vector<uint64_t> ended;
  for (auto& [id, each] : subscriptions_)
    if (each.client == client)
      ended.push_back(id);
  for (auto id : ended)
    end_subscription(id);
}

} // namespace kvasir
