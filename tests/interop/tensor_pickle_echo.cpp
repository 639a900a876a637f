// Reads pickled tensors, all of one dtype and shape, from standard input with kvasir's reader and
// writes them to standard output with its writer. Part of tensor_pickle_check.py.

#include "messages/tensor_pickle.hpp"

#include <cstdio>
#include <iostream>
#include <iterator>

int main() {
  const std::string pickle{std::istreambuf_iterator<char>{std::cin}, {}};
  const auto bytes = std::as_bytes(std::span{pickle});
  const auto views = kvasir::mp::read_tensor_list(bytes);
  if (!views) {
    std::cerr << to_string(views.error()) << '\n';
    return 1;
  }
  // An empty list has no tensor to ask.
  const auto like = views->empty() ? kvasir::mp::tensor_view{} : views->front();
  const auto writer
    = kvasir::mp::tensor_list_writer::make(like.dtype, like.shape, views->size());
  if (!writer) {
    std::cerr << to_string(writer.error()) << '\n';
    return 1;
  }
  const auto put = [](std::span<const std::byte> piece) {
    std::fwrite(piece.data(), 1, piece.size(), stdout);
  };
  for (size_t i = 0; i < views->size(); ++i) {
    const auto& view = (*views)[i];
    if (view.dtype != like.dtype || view.shape != like.shape) {
      std::cerr << "tensors of several dtypes or shapes\n";
      return 1;
    }
    put(writer->piece(i));
    put(bytes.subspan(view.offset_bytes, view.size_bytes));
  }
  put(writer->piece(views->size()));
  return std::fflush(stdout) == 0 ? 0 : 1;
}
