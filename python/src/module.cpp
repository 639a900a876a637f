#include "call.hpp"
#include "client.hpp"

#include <nanobind/stl/string.h>

namespace kvasir_python {

void raise(int32_t code, std::string_view text) {
  auto error = nb::module_::import_("kvasir.errors")
                 .attr("error_of")(code, nb::str(text.data(), text.size()));
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

} // namespace kvasir_python

NB_MODULE(_kvasir, module) {
  kvasir_python::bind_call(module);
  kvasir_python::bind_client(module);
  module.def("version", [] {
    const auto version = kvasir_version();
    return std::to_string(version >> 16) + "." + std::to_string(version >> 8 & 0xff) + "."
           + std::to_string(version & 0xff);
  });
}
