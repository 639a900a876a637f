#include "mp_operations.hpp"

namespace kvasir::bench {

namespace {

std::vector<std::uint32_t> random_tokens(std::size_t count, std::mt19937_64& random) {
  std::vector<std::uint32_t> result(count);
  for (auto& token : result)
    token = static_cast<std::uint32_t>(random() >> 33); // any vocabulary fits into 31 bits
  return result;
}

} // namespace

mp_worker_task::mp_worker_task(mp_client& client, const mp_task& task)
  : client_(client),
    task_(task),
    model_("bench/" + std::to_string(task.nonce) + "-" + std::to_string(task.client_index)),
    versions_(task.key_count, 0) {
  std::mt19937_64 random{task.nonce + task.client_index};
  auto token_count
    = task.what == mp_operation::miss ? task.token_count : task.shape.chunk_tokens;
  for (std::size_t i = 0; i < task.key_count; ++i) {
    auto tokens = random_tokens(token_count, random);
    prompts_.emplace_back(mp::prompt{model_, tokens, model_ + "-" + std::to_string(i)});
  }
  if (moves_chunks() || task.what == mp_operation::hit) {
    outgoing_.assign(task.shape.chunk_bytes(), static_cast<char>('a' + task.client_index % 26));
    incoming_.resize(task.shape.chunk_bytes());
  }
}

bool mp_worker_task::moves_chunks() const {
  return task_.what == mp_operation::store || task_.what == mp_operation::retrieve;
}

void mp_worker_task::preload() {
  if (!task_.verify || task_.what == mp_operation::ping)
    return;
  client_.register_instance(model_, task_.shape);
  if (task_.what == mp_operation::hit || task_.what == mp_operation::retrieve)
    for (std::size_t i = 0; i < task_.key_count; ++i)
      store(i);
}

void mp_worker_task::before(std::size_t round) {
  auto key_index = round % task_.key_count;
  if (task_.what == mp_operation::retrieve)
    look_up(prompts_[key_index], 1);
  // A chunk that is in the cache would not be stored again.
  if (task_.what == mp_operation::store && key_index == 0)
    client_.clear();
  if (task_.first_touch)
    client_.forget_pages();
}

void mp_worker_task::timed(std::size_t round) {
  auto key_index = round % task_.key_count;
  switch (task_.what) {
    case mp_operation::ping:
      return client_.ping();
    case mp_operation::miss:
      look_up(prompts_[key_index], 0);
      return client_.end_session(prompts_[key_index]);
    case mp_operation::hit:
      look_up(prompts_[key_index], 1);
      client_.free_locks(prompts_[key_index]);
      return client_.end_session(prompts_[key_index]);
    case mp_operation::store:
      return store(key_index);
    case mp_operation::retrieve:
      return retrieve(key_index);
  }
}

void mp_worker_task::after(std::size_t round) {
  if (moves_chunks())
    client_.end_session(prompts_[round % task_.key_count]);
}

void mp_worker_task::verify() {
  if (task_.what != mp_operation::store)
    return;
  for (std::size_t i = 0; i < task_.key_count; ++i) {
    if (client_.lookup(prompts_[i]) == 1)
      retrieve(i);
    client_.end_session(prompts_[i]);
  }
}

void mp_worker_task::expect(bool good) {
  if (!good && task_.verify)
    ++bad_count_;
}

void mp_worker_task::look_up(const encoded_prompt& about, std::size_t expected_chunks) {
  expect(client_.lookup(about) == expected_chunks);
}

void mp_worker_task::store(std::size_t key_index) {
  ++versions_[key_index];
  stamp_of(key_index).write_to(outgoing_);
  expect(client_.store(prompts_[key_index], outgoing_));
}

void mp_worker_task::retrieve(std::size_t key_index) {
  auto middle = incoming_.size() / 2;
  expect(client_.retrieve(prompts_[key_index], incoming_)
         && stamp_of(key_index).is_in(incoming_) && incoming_[middle] == outgoing_[middle]);
}

value_stamp mp_worker_task::stamp_of(std::size_t key_index) const {
  return {task_.nonce, task_.client_index, static_cast<std::uint32_t>(key_index),
          versions_[key_index]};
}

} // namespace kvasir::bench
