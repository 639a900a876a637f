#include "client.hpp"

#include "call.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>

namespace kvasir_python {

namespace {

using use = array_bytes::use;

/// Begins without the GIL: it may copy.
template <class Begin>
call begin(call::make_result make, std::optional<array_bytes> arrays, Begin how) {
  kvasir_call* begun = nullptr;
  {
    nb::gil_scoped_release released;
    begun = how(arrays ? arrays->buffers() : nullptr, arrays ? arrays->count() : 0);
  }
  return {begun, std::move(make), std::move(arrays)};
}

nb::object no_result(kvasir_call* ended) {
  kvasir_error error;
  if (kvasir_call_wait(ended, &error) != KVASIR_OK)
    raise(error);
  return nb::none();
}

/// (stored, resident)
nb::object stored_result(kvasir_call* ended) {
  kvasir_error error;
  size_t stored = 0;
  size_t resident = 0;
  if (kvasir_call_stored(ended, &stored, &resident, &error) != KVASIR_OK)
    raise(error);
  return nb::make_tuple(stored, resident);
}

/// (loaded, corrupt)
nb::object loaded_result(kvasir_call* ended) {
  kvasir_error error;
  size_t loaded = 0;
  size_t corrupt = 0;
  if (kvasir_call_loaded(ended, &loaded, &corrupt, &error) != KVASIR_OK)
    raise(error);
  return nb::make_tuple(loaded, corrupt);
}

nb::object status_result(kvasir_call* ended) {
  kvasir_error error;
  kvasir_status status{};
  status.struct_size = sizeof(status);
  if (kvasir_call_status(ended, &status, &error) != KVASIR_OK)
    raise(error);
  nb::dict result;
  result["capacity_bytes"] = status.capacity_bytes;
  result["usable_bytes"] = status.usable_bytes;
  result["used_bytes"] = status.used_bytes;
  result["staged_bytes"] = status.staged_bytes;
  result["held_bytes"] = status.held_bytes;
  result["objects"] = status.objects;
  result["write_leases"] = status.write_leases;
  result["read_leases"] = status.read_leases;
  result["evicted_objects"] = status.evicted_objects;
  result["corrupt_objects"] = status.corrupt_objects;
  result["chunks_stored"] = status.chunks_stored;
  result["chunks_no_room"] = status.chunks_no_room;
  result["lookups"] = status.lookups;
  result["chunks_asked"] = status.chunks_asked;
  result["chunks_held"] = status.chunks_held;
  result["prefixes_cut"] = status.prefixes_cut;
  return result;
}

/// The handles are shared with the calls that begin without the GIL.
struct prompt {
  struct state {
    std::shared_ptr<kvasir_prompt> handle;
    std::shared_mutex mutex; ///< Exclusive to extend it. Nobody waits for the GIL with it.
  };
  std::shared_ptr<state> shared_state;

  void extend(nb::handle tokens) {
    auto all = tokens_of(tokens);
    kvasir_error error;
    std::lock_guard guard{shared_state->mutex};
    if (kvasir_prompt_extend(shared_state->handle.get(), all.data(), all.size(), &error)
        != KVASIR_OK)
      raise(error);
  }

  size_t chunks() const { return kvasir_prompt_chunks(shared_state->handle.get()); }
  size_t tokens() const { return kvasir_prompt_tokens(shared_state->handle.get()); }
};

/// Calls `ask(const kvasir_prompt*)`.
template <class Ask>
kvasir_call* ask_of(const std::shared_ptr<prompt::state>& what, Ask ask) {
  std::shared_lock guard{what->mutex};
  return ask(what->handle.get());
}

struct prefix {
  std::shared_ptr<kvasir_prefix> handle;
  std::shared_ptr<const array_layout> layout;

  nb::list view() const {
    nb::list result;
    for (size_t i = 0; i < kvasir_prefix_chunks(handle.get()); ++i) {
      kvasir_error error;
      kvasir_chunk* chunk = nullptr;
      if (kvasir_prefix_chunk(handle.get(), i, &chunk, &error) != KVASIR_OK)
        raise(error);
      result.append(array_over(chunk, *layout));
    }
    return result;
  }
};

struct layers {
  std::shared_ptr<kvasir_layers> handle;
  std::shared_ptr<const array_layout> layout;

  call begin_put(size_t layer, nb::sequence arrays, uint32_t deadline_ms) {
    return begin(no_result, array_bytes{arrays, layout->dtype, layout->layer_shape, use::read},
                 [handle = handle, layer, deadline_ms](auto buffers, size_t count) {
                   return kvasir_layers_put(handle.get(), layer, buffers, count, deadline_ms);
                 });
  }

  call begin_commit(uint32_t deadline_ms) {
    return begin(stored_result, {}, [handle = handle, deadline_ms](auto, size_t) {
      return kvasir_layers_commit(handle.get(), deadline_ms);
    });
  }
};

class client {
public:
  client(kvasir_options options, const std::string& dtype) {
    options.struct_size = sizeof(options);
    options.dtype = dtype_from_name(dtype);
    auto shape = std::make_shared<array_layout>();
    shape->dtype = options.dtype;
    if (options.single_plane == 0) {
      shape->chunk_shape.push_back(2);
      shape->layer_shape.push_back(2);
    }
    shape->chunk_shape.insert(shape->chunk_shape.end(),
                              {options.layers, options.slots, options.hidden});
    shape->layer_shape.insert(shape->layer_shape.end(), {options.slots, options.hidden});
    layout_ = std::move(shape);
    kvasir_error error;
    kvasir_client* opened = nullptr;
    kvasir_code code;
    {
      nb::gil_scoped_release released;
      code = kvasir_open(&options, &opened, &error);
    }
    if (code != KVASIR_OK)
      raise(error);
    handle_ = shared(opened, kvasir_client_free);
  }

  void close() {
    nb::gil_scoped_release released;
    kvasir_client_close(handle_.get());
  }

  prompt make_prompt(nb::handle tokens, const std::optional<std::string>& salt) const {
    if (salt && salt->find('\0') != std::string::npos)
      raise(KVASIR_INVALID_ARGUMENT, "a salt has no zero bytes");
    auto all = tokens_of(tokens);
    kvasir_error error;
    kvasir_prompt* made = nullptr;
    if (kvasir_prompt_make(handle_.get(), all.data(), all.size(),
                           salt ? salt->c_str() : nullptr, &made, &error)
        != KVASIR_OK)
      raise(error);
    auto state = std::make_shared<prompt::state>();
    state->handle = shared(made, kvasir_prompt_free);
    return {std::move(state)};
  }

  call begin_lookup(const prompt& what, uint32_t deadline_ms) {
    auto make = [layout = layout_](kvasir_call* ended) {
      kvasir_error error;
      kvasir_prefix* found = nullptr;
      if (kvasir_call_prefix(ended, &found, &error) != KVASIR_OK)
        raise(error);
      return nb::cast(prefix{shared(found, kvasir_prefix_free), layout});
    };
    return begin(std::move(make), {},
                 [handle = handle_, what = what.shared_state, deadline_ms](auto, size_t) {
                   return ask_of(what, [&](auto prompt) {
                     return kvasir_lookup(handle.get(), prompt, deadline_ms);
                   });
                 });
  }

  call begin_store(const prompt& what, nb::sequence arrays, size_t first,
                   uint32_t deadline_ms) {
    return begin(
      stored_result, array_bytes{arrays, layout_->dtype, layout_->chunk_shape, use::read},
      [handle = handle_, what = what.shared_state, first, deadline_ms](auto buffers,
                                                                       size_t count) {
        return ask_of(what, [&](auto prompt) {
          return kvasir_store(handle.get(), prompt, first, buffers, count, deadline_ms);
        });
      });
  }

  call begin_load(const prompt& what, nb::sequence arrays, size_t first, uint32_t deadline_ms) {
    return begin(
      loaded_result, array_bytes{arrays, layout_->dtype, layout_->chunk_shape, use::write},
      [handle = handle_, what = what.shared_state, first, deadline_ms](auto buffers,
                                                                       size_t count) {
        return ask_of(what, [&](auto prompt) {
          return kvasir_load(handle.get(), prompt, first, buffers, count, deadline_ms);
        });
      });
  }

  call begin_load_held(const prefix& from, nb::sequence arrays, uint32_t deadline_ms) {
    return begin(
      loaded_result, array_bytes{arrays, layout_->dtype, layout_->chunk_shape, use::write},
      [handle = handle_, from = from.handle, deadline_ms](auto buffers, size_t count) {
        return kvasir_load_held(handle.get(), from.get(), buffers, count, deadline_ms);
      });
  }

  call begin_load_layer(const prefix& from, size_t layer, nb::sequence arrays,
                        uint32_t deadline_ms) {
    return begin(
      no_result, array_bytes{arrays, layout_->dtype, layout_->layer_shape, use::write},
      [handle = handle_, from = from.handle, layer, deadline_ms](auto buffers, size_t count) {
        return kvasir_load_layer(handle.get(), from.get(), layer, buffers, count, deadline_ms);
      });
  }

  call begin_layers(const prompt& what, size_t first, size_t count, uint32_t deadline_ms) {
    auto make = [layout = layout_](kvasir_call* ended) {
      kvasir_error error;
      kvasir_layers* made = nullptr;
      if (kvasir_call_layers(ended, &made, &error) != KVASIR_OK)
        raise(error);
      return nb::cast(layers{shared(made, kvasir_layers_free), layout});
    };
    return begin(
      std::move(make), {},
      [handle = handle_, what = what.shared_state, first, count, deadline_ms](auto, size_t) {
        return ask_of(what, [&](auto prompt) {
          return kvasir_begin_store(handle.get(), prompt, first, count, deadline_ms);
        });
      });
  }

  call begin_status(uint32_t deadline_ms) {
    return begin(status_result, {}, [handle = handle_, deadline_ms](auto, size_t) {
      return kvasir_get_status(handle.get(), deadline_ms);
    });
  }

private:
  std::shared_ptr<const array_layout> layout_;
  std::shared_ptr<kvasir_client> handle_;
};

/// Names as of `kvasir_options`.
void open(client* self, const std::string& model, uint32_t world_size, uint32_t rank,
          const std::string& dtype, bool single_plane, uint32_t layer_count, uint32_t slots,
          uint32_t hidden, uint32_t block_size, uint64_t pool_bytes, bool shared_memory,
          bool verify_loads, const std::string& eviction,
          const std::optional<std::string>& node, uint32_t copy_threads, uint32_t max_pending,
          uint64_t max_inline_copy_bytes) {
  kvasir_options options{};
  options.model = model.c_str();
  options.world_size = world_size;
  options.rank = rank;
  options.single_plane = single_plane ? 1 : 0;
  options.layers = layer_count;
  options.slots = slots;
  options.hidden = hidden;
  options.block_size = block_size;
  options.pool_bytes = pool_bytes;
  options.sharing = shared_memory ? KVASIR_SHARED : KVASIR_PRIVATE;
  options.unverified_loads = verify_loads ? 0 : 1;
  options.eviction = eviction.c_str();
  options.node = node ? node->c_str() : nullptr;
  options.copy_threads = copy_threads;
  options.max_pending = max_pending;
  options.max_inline_copy_bytes = max_inline_copy_bytes;
  new (self) client{options, dtype};
}

} // namespace

void bind_client(nb::module_& module) {
  nb::class_<prompt>(module, "Prompt")
    .def("extend", &prompt::extend)
    .def_prop_ro("chunks", &prompt::chunks)
    .def_prop_ro("tokens", &prompt::tokens);
  nb::class_<prefix>(module, "Prefix")
    .def_prop_ro("chunks",
                 [](const prefix& self) { return kvasir_prefix_chunks(self.handle.get()); })
    .def_prop_ro("tokens",
                 [](const prefix& self) { return kvasir_prefix_tokens(self.handle.get()); })
    .def("view", &prefix::view)
    .def("release", [](prefix& self) { self.handle = nullptr; })
    .def("__enter__", [](nb::object self) { return self; })
    .def("__exit__", [](prefix& self, nb::args) { self.handle = nullptr; });
  nb::class_<layers>(module, "Layers")
    .def("begin_put", &layers::begin_put)
    .def("begin_commit", &layers::begin_commit);
  using namespace nb::literals;
  nb::class_<client>(module, "Client", nb::is_weak_referenceable())
    .def("__init__", &open, nb::kw_only(), "model"_a, "world_size"_a, "rank"_a, "dtype"_a,
         "single_plane"_a, "layers"_a, "slots"_a, "hidden"_a, "block_size"_a, "pool_bytes"_a,
         "shared_memory"_a, "verify_loads"_a, "eviction"_a, "node"_a.none(), "copy_threads"_a,
         "max_pending"_a, "max_inline_copy_bytes"_a)
    .def("close", &client::close)
    .def("prompt", &client::make_prompt, "tokens"_a, "salt"_a.none())
    .def("begin_lookup", &client::begin_lookup)
    .def("begin_store", &client::begin_store)
    .def("begin_load", &client::begin_load)
    .def("begin_load_held", &client::begin_load_held)
    .def("begin_load_layer", &client::begin_load_layer)
    .def("begin_layers", &client::begin_layers)
    .def("begin_status", &client::begin_status);
}

} // namespace kvasir_python
