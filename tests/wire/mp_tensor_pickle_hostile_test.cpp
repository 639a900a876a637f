#include "fuzz/mp_properties.hpp"
#include "support/pickle_text.hpp"
#include "wire/corpus.hpp"
#include "wire/golden.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <random>

using namespace kvasir;
namespace pt = pickle_text;

namespace {

caf::expected<std::vector<mp::tensor_view>> read(const std::string& pickle) {
  const auto bytes = pt::as_bytes(pickle);
  const auto* broken = mp::properties::check_tensor_list(bytes);
  CHECK_MESSAGE(broken == nullptr, broken);
  return mp::read_tensor_list(bytes);
}

caf::expected<std::vector<mp::tensor_view>> read(const pt::tensor& tensor) {
  return read(pt::list(tensor.str()));
}

caf::expected<std::vector<mp::tensor_view>> read(const pt::storage& storage) {
  pt::tensor tensor;
  tensor.bytes = pt::bytes(storage.str());
  return read(tensor);
}

/// Is it refused with `code`, and does the context say `what`?
template <class T>
void check_refused(const T& input, const std::string& what, errc code = errc::malformed_frame) {
  CAPTURE(what);
  const auto views = read(input);
  REQUIRE_FALSE(views);
  CHECK(views.error() == code);
  const auto text = to_string(views.error());
  CAPTURE(text);
  CHECK(text.find(what) != std::string::npos);
}

pt::tensor changed(const std::function<void(pt::tensor&)>& change) {
  pt::tensor result;
  change(result);
  return result;
}

pt::storage changed_storage(const std::function<void(pt::storage&)>& change) {
  pt::storage result;
  change(result);
  return result;
}

/// Of bytes, with a storage of `size`.
pt::tensor int8_tensor(size_t size, const std::string& offset, const std::string& shape,
                       const std::string& strides) {
  pt::storage storage;
  storage.type = "ctorch\nCharStorage\n";
  storage.count = pt::number(static_cast<int64_t>(size));
  storage.count_again = pt::le(size, 8);
  storage.raw.assign(size, 'x');
  pt::tensor result;
  result.bytes = pt::bytes(storage.str());
  result.offset = offset;
  result.shape = shape;
  result.strides = strides;
  return result;
}

} // namespace

TEST_SUITE("mp tensor pickle hostile") {
  TEST_CASE("the hand-made list that the cases below break is good") {
    const auto views = read(pt::tensor{});
    REQUIRE(views);
    REQUIRE(views->size() == 1);
    CHECK(views->front().dtype == tensor_dtype::float16);
    CHECK(views->front().size_bytes == 24);
  }

  TEST_CASE("a call of anything but a tensor's parts is refused by name") {
    check_refused(pt::list("cos\nsystem\n" + pt::text("id") + "\x85R"), "os system");
    check_refused(pt::list("cbuiltins\neval\n" + pt::text("1") + "\x85R"), "builtins eval");
    check_refused(pt::list("\x8c\x05posix\x8c\x06system\x93" + pt::text("id") + "\x85R"),
                  "posix system");
    check_refused(pt::list("ctorch\nload\n" + pt::text("x") + "\x85R"), "torch load");
    check_refused(pt::list("ctorch.storage\n_load_from_bytes.x\n)R"), "_load_from_bytes.x");
    check_refused(pt::list("ctorch\n_utils._rebuild_tensor_v2\n)R"), "torch _utils");
    check_refused(pt::list("ctorch._utils\n_rebuild_tensor\n)R"), "_rebuild_tensor");
    // Control characters of a name do not get into a log.
    check_refused(pt::list("c\x1b[2J\na\tb\n)R"), "?[2J a?b");
  }

  TEST_CASE("the classes that a list may name cannot be called") {
    for (const auto* callee :
         {"ctorch\nHalfStorage\n", "ctorch.storage\nUntypedStorage\n", "ctorch\nfloat16\n"})
      check_refused(pt::list(std::string{callee} + ")R"), "may not be called");
    check_refused(pt::list(pt::text("eval") + ")R"), "may not be called");
    check_refused(pt::list("ccollections\nOrderedDict\nNR"), "may not be called");
  }

  TEST_CASE("every opcode outside the whitelist is refused") {
    // INST, OBJ, NEWOBJ, NEWOBJ_EX, BUILD, EXT1, POP, DUP, PERSID, INT, STRING, UNICODE, ...
    const std::string allowed = "(.N\x88\x89JKM\x8aX\x8c\x8d"
                                "BC\x8e]})t\x85\x86\x87"
                                "aesuc\x93RQ\x94qrhj\x80\x95";
    CHECK(allowed.size() == 37);
    for (unsigned opcode = 0; opcode < 256; ++opcode)
      if (allowed.find(static_cast<char>(opcode)) == std::string::npos)
        check_refused(std::string{"\x80\x02]"} + static_cast<char>(opcode) + "a.",
                      "opcode " + std::to_string(opcode) + " ");
  }

  TEST_CASE("nesting is bounded in any form") {
    std::string tuples = "N";
    for (int i = 0; i < 200; ++i)
      tuples += '\x85';
    check_refused(pt::list(tuples), "tuples within tuples");
    check_refused(pt::list(std::string(200, '(') + "N" + std::string(200, 't')),
                  "tuples within tuples");
    check_refused(pt::list(std::string(100000, '(')), "marks");
    check_refused(pt::list(std::string(100000, ']')), "lists or dicts");
    check_refused(pt::list(std::string(100000, '}')), "lists or dicts");
    check_refused(pt::list(std::string(100000, 'N')), "stack");
    check_refused("\x80\x02]q" + std::string(1, '\0') + "h" + std::string(1, '\0') + "a.",
                  "no tensor");
  }

  TEST_CASE("a bomb of memo references has no more room than a list") {
    // Each tuple refers ten times to the one before: ten million values if copied.
    std::string bomb = "N\x94";
    for (char level = 0; level < 7; ++level) {
      bomb += '(';
      for (int i = 0; i < 10; ++i)
        bomb += std::string{'h'} + level;
      bomb += "t\x94";
    }
    check_refused("\x80\x04](" + bomb + "e.", "no tensor");
    check_refused("\x80\x04]N" + std::string(1000000, '\x94') + ".", "too many opcodes");
    std::string items = "\x80\x04]";
    for (int i = 0; i < 300000; ++i)
      items += "Na";
    check_refused(items + ".", "too many opcodes");
  }

  TEST_CASE("memo references lead to what was memoized before") {
    using namespace std::string_literals;
    check_refused(pt::list("h\0"s), "nothing is memoized under 0");
    check_refused(pt::list("j\xff\xff\xff\xff"), "nothing is memoized under 4294967295");
    check_refused(pt::list("Nq\x01"), "out of sequence");
    check_refused(pt::list("Nr\xff\xff\xff\xff"), "out of sequence");
    check_refused(pt::list("Nq\0Nq\0"s), "out of sequence");
    // A tensor may be in the list twice.
    const auto views = read("\x80\x02](" + pt::tensor{}.str() + "r"s + pt::le(0, 4) + "j"s
                            + pt::le(0, 4) + "e.");
    REQUIRE(views);
    REQUIRE(views->size() == 2);
    CHECK((*views)[0].offset_bytes == (*views)[1].offset_bytes);
  }

  TEST_CASE("opcodes without their operands on the stack are refused") {
    using namespace std::string_literals;
    for (const auto* opcodes : {".", "a.", "s.", "R.", "Q.", "\x93.", "\x94.", "\x85.", "\x86.",
                                "\x87.", "(\x85.", "](a.", "](R.", "N(\x94."})
      check_refused("\x80\x02"s + opcodes,
                    opcodes == "."s ? "another number of values" : "too few values");
    for (const auto* opcodes : {"t.", "]e.", "}u."})
      check_refused("\x80\x02"s + opcodes, "no mark");
    check_refused("\x80\x02]].", "another number of values");
    check_refused("\x80\x02](.", "another number of values");
    check_refused("\x80\x02NNa.", "something else than a list");
    check_refused("\x80\x02](NNu.", "something else than a list");
    check_refused("\x80\x02}(Nu.", "something else than a list");
    check_refused("\x80\x02}Na.", "something else than a list");
    check_refused("\x80\x02NQ.", "persistent id");
    check_refused("\x80\x02NN\x93.", "no text");
    check_refused("\x80\x02" + pt::text("torch") + "N\x93.", "no text");
    check_refused("\x80\x06].", "protocol 6");
    check_refused("\x80\x02\x80\x02].", "within a stream");
    check_refused("\x80\x02" + std::string(100, 'c') + "\n\n.", "long name");
    check_refused("\x80\x02]\x95" + pt::le(2, 8) + ".", "a frame longer");
    CHECK(read("\x80\x04]\x95" + pt::le(1, 8) + "."));
    CHECK(read(std::string{"]."}));
  }

  TEST_CASE("a length that is longer than the input is refused at once") {
    for (const auto* opcode : {"\x8d", "\x8e", "X", "B", "\x8c", "C", "\x8a"})
      for (const auto length : {uint64_t{0xff}, uint64_t{UINT32_MAX}, UINT64_MAX}) {
        CAPTURE(opcode);
        check_refused(std::string{"\x80\x04]"} + opcode + pt::le(length, 8), "cut off");
      }
  }

  TEST_CASE("a list cut off anywhere, or with a byte behind it, is refused") {
    for (const auto& x : golden::vectors("mp/pickle_payload.json", "cases"))
      for (const auto* field : {"torch_pickle_hex", "minimal_writer_hex"}) {
        const auto whole = golden::from_hex(x[field].get<std::string>());
        for (size_t size = 0; size < whole.size(); ++size) {
          // A block of its own, so that a sanitizer sees one byte too many.
          const std::vector<std::byte> cut{whole.begin(),
                                           whole.begin() + static_cast<std::ptrdiff_t>(size)};
          REQUIRE_FALSE(mp::read_tensor_list(cut));
        }
        auto longer = whole;
        longer.push_back(std::byte{'.'});
        CHECK_FALSE(mp::read_tensor_list(longer));
      }
  }

  TEST_CASE("what is not a list of tensors is refused") {
    check_refused(std::string{"\x80\x04N."}, "no list");
    check_refused(std::string{"\x80\x04}."}, "no list");
    check_refused(pt::list("N"), "no tensor");
    check_refused(pt::list("ccollections\nOrderedDict\n)R"), "no tensor");
    check_refused(changed([](auto& x) { x.rest = "N"; }), "no tensor");
    check_refused(changed([](auto& x) { x.rebuild = "ctorch._utils\n_rebuild_tensor_v3\n"; }),
                  "no tensor");
    check_refused(changed([](auto& x) { x.shape = "N"; }), "offset, shape or strides");
    check_refused(changed([](auto& x) { x.strides = "N"; }), "offset, shape or strides");
    check_refused(changed([](auto& x) { x.offset = "N"; }), "offset, shape or strides");
    check_refused(changed([](auto& x) { x.gradient = "\x88"; }), "gradient");
    check_refused(changed([](auto& x) { x.gradient = "N"; }), "gradient");
    check_refused(changed([](auto& x) { x.hooks = "N"; }), "hooks");
    check_refused(changed([](auto& x) { x.hooks = "ccollections\nOrderedDict\nN\x85R"; }),
                  "hooks");
    check_refused(changed([](auto& x) { x.bytes = pt::text("text"); }), "not bytes");
    check_refused(changed([](auto& x) { x.load = "ccollections\nOrderedDict\n"; }),
                  "without a storage");
  }

  TEST_CASE("a storage that does not say what torch writes is refused") {
    const auto check = [](const std::function<void(pt::storage&)>& change, const char* what) {
      check_refused(changed_storage(change), what);
    };
    check([](auto& x) { x.magic = "\x80\x02M\xe9\x03."; }, "magic");
    check([](auto& x) { x.magic[5] ^= 1; }, "magic");
    check([](auto& x) { x.magic = "\x80\x02\x8a\x09" + x.magic.substr(4, 9) + "."; }, "magic");
    check([](auto& x) { x.version = "\x80\x02M\xea\x03."; }, "version");
    check([](auto& x) { x.machine = "\x80\x02N."; }, "machine");
    check([](auto& x) { x.machine = "\x80\x02}."; }, "little-endian");
    check([](auto& x) { x.machine = "\x80\x02}" + pt::text("little_endian") + "\x89s."; },
          "little-endian");
    check([](auto& x) { x.machine = "\x80\x02}" + pt::text("little_endian") + "Ns."; },
          "little-endian");
    check([](auto& x) { x.kind = pt::text("module"); }, "no storage on the CPU");
    check([](auto& x) { x.location = pt::text("cuda:0"); }, "no storage on the CPU");
    check([](auto& x) { x.view = pt::tuple({1, 2, 3}); }, "no storage on the CPU");
    check([](auto& x) { x.view = "NN"; }, "no storage on the CPU");
    check([](auto& x) { x.key = pt::number(0); }, "no storage on the CPU");
    check([](auto& x) { x.type = "ctorch\nfloat16\n"; }, "class of storage");
    check([](auto& x) { x.type = "N"; }, "class of storage");
    check([](auto& x) { x.type = "ctorch\nComplexFloatStorage\n"; }, "ComplexFloatStorage");
    check([](auto& x) { x.keys = "\x80\x02]" + pt::text("1") + "a."; }, "another storage");
    check([](auto& x) { x.keys = "\x80\x02]."; }, "another storage");
    check([](auto& x) { x.keys = "\x80\x02](" + pt::text("0") + pt::text("0") + "e."; },
          "another storage");
    check([](auto& x) { x.keys = "\x80\x02N."; }, "another storage");
    check([](auto& x) { x.keys = "\x80\x02i."; }, "opcode 105");
    check([](auto& x) { x.machine = "\x80\x02" + std::string(100, '('); }, "marks");
    check([](auto& x) { x.kind = "cos\nsystem\n"; }, "os system");
  }

  TEST_CASE("a storage has exactly the bytes that its count says, twice") {
    const auto check
      = [](const std::function<void(pt::storage&)>& change, const char* what = "another size") {
          check_refused(changed_storage(change), what);
        };
    check([](auto& x) { x.raw.pop_back(); });
    check([](auto& x) { x.raw += 'r'; });
    check([](auto& x) { x.raw.clear(); });
    check([](auto& x) { x.raw.clear(), x.count_again.pop_back(); }, "no elements");
    check([](auto& x) { x.count = pt::number(13); });
    check([](auto& x) { x.count_again = pt::le(13, 8); });
    check([](auto& x) { x.count = pt::number(-1), x.count_again = pt::le(UINT64_MAX, 8); });
    check([](auto& x) { x.count = "N"; });
    check([](auto& x) { x.count = pt::number(13), x.count_again = pt::le(13, 8); });
    check([](auto& x) { x.count = pt::number(1 << 30), x.count_again = pt::le(1 << 30, 8); });
    // Twice 2^63 + 12 would be 24 if it wrapped.
    check([](auto& x) {
      x.count = pt::number(INT64_MIN + 12);
      x.count_again = pt::le((uint64_t{1} << 63) + 12, 8);
    });
    check([](auto& x) {
      x.type = "ctorch\nDoubleStorage\n";
      x.count = pt::number((int64_t{1} << 61) + 3); // 2^64 + 24 bytes
      x.count_again = pt::le((uint64_t{1} << 61) + 3, 8);
    });
  }

  TEST_CASE("a view lies within its storage, which may be larger") {
    const auto number = [](int64_t x) {
      return pt::number(x);
    };
    const auto row = [](int64_t x) {
      return pt::tuple({x});
    };
    const auto views = read(int8_tensor(100, number(90), row(10), row(1)));
    REQUIRE(views);
    const auto whole = read(int8_tensor(100, number(0), row(100), row(1)));
    REQUIRE(whole);
    CHECK(views->front().offset_bytes == whole->front().offset_bytes + 90);
    CHECK(views->front().size_bytes == 10);
    struct {
      int64_t offset;
      int64_t size;
    } const beyond[] = {{91, 10},       {0, 101},       {101, 0},       {INT64_MAX, 10},
                        {INT64_MAX, 0}, {0, INT64_MAX}, {1, INT64_MAX}, {INT64_MAX, INT64_MAX}};
    for (const auto& x : beyond) {
      CAPTURE(x.offset);
      CAPTURE(x.size);
      check_refused(int8_tensor(100, number(x.offset), row(x.size), row(1)),
                    "beyond its storage");
    }
    check_refused(int8_tensor(100, number(-1), row(10), row(1)), "offset");
    check_refused(int8_tensor(100, number(0), row(-1), row(1)), "a dimension");
    check_refused(int8_tensor(100, number(0), row(INT64_MIN), row(1)), "a dimension");
    check_refused(int8_tensor(100, number(0), row(10), row(-1)), "a dimension");
    check_refused(int8_tensor(100, number(0), "(Nt", row(1)), "a dimension");
    // An offset counts elements, not bytes.
    check_refused(changed([](auto& x) {
                    x.offset = pt::number(1);
                    x.shape = pt::tuple({12});
                    x.strides = pt::tuple({1});
                  }),
                  "beyond its storage");
  }

  TEST_CASE("a shape whose product overflows is refused") {
    const auto big = int64_t{1} << 32;
    for (const auto& dims : {pt::tuple({big, big}), pt::tuple({big, big, 1}),
                             pt::tuple({INT64_MAX, INT64_MAX}), pt::tuple({2, big, big / 2})})
      check_refused(int8_tensor(100, pt::number(0), dims, dims), "beyond its storage");
    // float16: 2^63 elements are 2^64 bytes.
    check_refused(changed([](auto& x) {
                    x.shape = pt::tuple({int64_t{1} << 62, 2});
                    x.strides = pt::tuple({2, 1});
                  }),
                  "beyond its storage");
  }

  TEST_CASE("only contiguous row-major tensors of at most eight dimensions are read") {
    const auto check = [](const std::string& shape, const std::string& strides) {
      return read(int8_tensor(24, pt::number(0), shape, strides));
    };
    CHECK(check(pt::tuple({2, 3, 4}), pt::tuple({12, 4, 1})));
    CHECK(check(pt::tuple({2, 1, 12}), pt::tuple({12, 999, 1}))); // as torch: 1 has no stride
    CHECK(check(pt::tuple({1, 1}), pt::tuple({0, 0})));
    CHECK(check(pt::tuple({0, 3}), pt::tuple({7, 5}))); // nor has nothing
    CHECK(check("(t", "(t"));
    CHECK(check(pt::tuple({1, 1, 1, 1, 1, 1, 1, 24}), pt::tuple({1, 1, 1, 1, 1, 1, 1, 1})));
    const auto refused = [](const std::string& shape, const std::string& strides) {
      check_refused(int8_tensor(24, pt::number(0), shape, strides), "tensor list",
                    errc::layout_mismatch);
    };
    refused(pt::tuple({2, 3, 4}), pt::tuple({1, 2, 6}));
    refused(pt::tuple({2, 3, 4}), pt::tuple({12, 4, 2}));
    refused(pt::tuple({2, 3, 4}), pt::tuple({0, 0, 0}));
    refused(pt::tuple({2, 3, 4}), pt::tuple({4, 1}));
    refused(pt::tuple({2, 3, 4}), pt::tuple({12, 4, 1, 1}));
    refused(pt::tuple({2, 3}), pt::tuple({4, 1})); // a gap after each row
    const auto nine = pt::tuple({1, 1, 1, 1, 1, 1, 1, 1, 1});
    refused(nine, nine);
  }

  TEST_CASE("the form with a dtype takes it over bytes only") {
    pt::storage untyped;
    untyped.type = "ctorch.storage\nUntypedStorage\n";
    untyped.count = pt::number(24);
    untyped.count_again = pt::le(24, 8);
    pt::tensor tensor;
    tensor.rebuild = "ctorch._utils\n_rebuild_tensor_v3\n";
    tensor.bytes = pt::bytes(untyped.str());
    tensor.rest = "ctorch\nuint16\n";
    const auto views = read(tensor);
    REQUIRE(views);
    CHECK(views->front().dtype == tensor_dtype::uint16);
    CHECK(views->front().size_bytes == 24);
    check_refused(changed([&](auto& x) {
                    x = tensor;
                    x.rest = "ctorch\nHalfStorage\n";
                  }),
                  "over a storage");
    check_refused(changed([&](auto& x) {
                    x = tensor;
                    x.rest = "N";
                  }),
                  "over a storage");
    check_refused(changed([&](auto& x) {
                    x = tensor;
                    x.rest = "ctorch\nuint128\n";
                  }),
                  "torch uint128");
    check_refused(changed([&](auto& x) {
                    x = tensor;
                    x.bytes = pt::bytes(pt::storage{}.str());
                  }),
                  "over a storage");
    check_refused(changed([&](auto& x) {
                    x = tensor;
                    x.rest = "ctorch\nuint32\n"; // 48 bytes of 24
                  }),
                  "beyond its storage");
  }

  TEST_CASE("numbers of every width are read, signed where Python has them signed") {
    using namespace std::string_literals;
    const auto row = [](const std::string& x) {
      return '(' + x + 't';
    };
    for (const auto& seven : {"K\x07"s, "M\x07\0"s, "J\x07\0\0\0"s, "\x8a\x01\x07"s,
                              "\x8a\x02\x07\0"s, pt::number(7)}) {
      const auto views = read(int8_tensor(24, seven, row(seven), row("K\x01")));
      REQUIRE(views);
      CHECK(views->front().size_bytes == 7);
    }
    const auto zero = read(int8_tensor(24, "\x8a\0"s, row("K\x18"), row("K\x01")));
    REQUIRE(zero);
    for (const auto& negative : {"J\xff\xff\xff\xff"s, "\x8a\x01\xff"s, "\x8a\x02\0\x80"s})
      check_refused(int8_tensor(24, negative, row("K\x01"), row("K\x01")), "offset");
    const auto unsigned255 = read(int8_tensor(300, "K\xff", row("K\x01"), row("K\x01")));
    REQUIRE(unsigned255);
    check_refused(
      int8_tensor(24, "\x8a\x09" + std::string(9, '\0'), row("K\x01"), row("K\x01")), "offset");
  }

  TEST_CASE("what the fuzzer starts from and once found keeps holding") {
    CHECK(corpus::replay("tensor_pickle",
                         [](std::string_view text) {
                           return mp::properties::check_tensor_list(golden::as_bytes(text));
                         })
          > 10);
  }

  TEST_CASE("random changes of real lists never break a property") {
    std::mt19937 random{7};
    std::vector<std::vector<std::byte>> lists;
    for (const auto& x : golden::vectors("mp/pickle_payload.json", "cases"))
      for (const auto* field : {"torch_pickle_hex", "minimal_writer_hex"})
        lists.push_back(golden::from_hex(x[field].get<std::string>()));
    for (int i = 0; i < 20000; ++i) {
      auto bytes = lists[random() % lists.size()];
      for (auto n = random() % 3 + 1; n > 0; --n)
        bytes[random() % bytes.size()] = static_cast<std::byte>(random());
      const auto* broken = mp::properties::check_tensor_list(bytes);
      REQUIRE_MESSAGE(broken == nullptr, broken);
    }
  }
}
