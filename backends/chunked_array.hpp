// kvasir: an actor-model KV-cache runtime.  SPDX-License-Identifier: Apache-2.0

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace kvasir {

/// An array that grows without ever moving an element: chunks of 4096 and a small directory.
/// Growing to millions costs no copy of the whole, so no request pauses for it.
///
/// Threading: not thread-safe. Memory: never shrinks.
template <class T>
class chunked_array {
public:
  /// Makes `index` valid; new elements are value-initialised.
  void ensure(uint32_t index) {
    while (capacity() <= index)
      chunks_.push_back(std::make_unique<T[]>(chunk_size));
  }

  /// @pre `index < capacity()`.
  T& operator[](uint32_t index) { return chunks_[index / chunk_size][index % chunk_size]; }
  const T& operator[](uint32_t index) const {
    return chunks_[index / chunk_size][index % chunk_size];
  }

  size_t capacity() const { return chunks_.size() * chunk_size; }

private:
  static constexpr size_t chunk_size = 4096;

  std::vector<std::unique_ptr<T[]>> chunks_;
};

} // namespace kvasir
