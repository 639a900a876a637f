#include "call.hpp"

#include <utility>
#include <vector>

namespace kvasir_python {

namespace {

void run_done(void* user) {
  nb::gil_scoped_acquire held;
  auto done = nb::steal<nb::callable>(static_cast<PyObject*>(user));
  try {
    done();
  } catch (nb::python_error& error) {
    error.discard_as_unraisable(done);
  }
}

/// Calls under way that were collected as garbage in a `done`, where none may be waited for, and
/// their arrays. With the GIL.
struct remains {
  std::optional<array_bytes> arrays;
  std::shared_ptr<kvasir_call> handle;
};

std::vector<remains>& left_behind() {
  static auto& all = *new std::vector<remains>;
  return all;
}

} // namespace

call::~call() {
  if (!handle_ || ready())
    return;
  cancel();
  wait();
  if (!ready())
    left_behind().push_back({std::move(arrays_), std::move(handle_)});
}

call::call(kvasir_call* begun, make_result make, std::optional<array_bytes> arrays)
  : arrays_(std::move(arrays)),
    make_(std::move(make)),
    handle_(shared(begun, kvasir_call_free)) {
  std::erase_if(left_behind(),
                [](const remains& each) { return kvasir_call_ready(each.handle.get()) != 0; });
}

nb::object call::result() {
  wait();
  return make_(handle_.get());
}

void call::wait() {
  nb::gil_scoped_release released;
  kvasir_call_wait(handle_.get(), nullptr);
}

void call::then(nb::callable done) {
  kvasir_error error;
  auto user = done.release().ptr();
  kvasir_code code;
  {
    nb::gil_scoped_release released;
    code = kvasir_call_then(handle_.get(), run_done, user, &error);
  }
  if (code != KVASIR_OK) {
    nb::steal(user);
    raise(error);
  }
}

void bind_call(nb::module_& module) {
  nb::class_<call>(module, "Call")
    .def("ready", &call::ready)
    .def("result", &call::result)
    .def("wait", &call::wait)
    .def("then", &call::then)
    .def("cancel", &call::cancel);
}

} // namespace kvasir_python
