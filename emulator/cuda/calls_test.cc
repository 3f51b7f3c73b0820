// Every implemented function, called as calls.tsv says: validly, and with each argument null or made up in turn.
// Nothing that a program passes may crash the driver where the real one answers with an error.
#include <sys/wait.h>

#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "emulator/cuda/calls_objects.h"
#include "emulator/cuda/test_driver.h"
#include "symbols.h"

namespace mete::emulator::cuda {
namespace {

using Call = CUresult (*)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                          uint64_t, uint64_t, uint64_t);
constexpr uint64_t kMadeUp = 0xdead0000beef0;  // no memory is there

struct Row {
  std::string symbol;
  std::vector<std::string> arguments;
  int expected = 0;
  std::set<std::string> notes;
  bool Has(const std::string& note) const { return notes.contains(note); }
};

std::vector<Row> ReadRows(std::set<std::string>* elsewhere) {
  std::ifstream file(METE_CALLS);
  EXPECT_TRUE(file.good()) << METE_CALLS;
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string arguments, expected, notes;
    Row row;
    std::getline(fields, row.symbol, '\t');
    std::getline(fields, arguments, '\t');
    std::getline(fields, expected, '\t');
    std::getline(fields, notes, '\t');
    if (arguments == "-") {
      elsewhere->insert(row.symbol);
      continue;
    }
    row.expected = std::stoi(expected);
    if (arguments != "void") {
      for (size_t at = 0; (at = arguments.find_first_not_of(' ', at)) != std::string::npos;) {
        const bool quoted = arguments[at] == '"';
        size_t end = quoted ? arguments.find('"', at + 1) + 1 : arguments.find(' ', at);
        if (end == std::string::npos || end == 0) end = arguments.size();
        row.arguments.push_back(arguments.substr(at, end - at));
        at = end;
      }
    }
    std::istringstream words(notes);
    for (std::string word; words >> word;) row.notes.insert(word);
    rows.push_back(std::move(row));
  }
  return rows;
}

// What an object's place answers to null and to something made up; -1: not tried.
struct Answers {
  int null, made_up;
};

Answers AnswersOf(const std::string& argument) {
  auto is = [&argument](std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (argument == name) return true;
    }
    return false;
  };
  if (argument == "out" || argument[0] == '&' || argument[0] == '"') return {CUDA_ERROR_INVALID_VALUE, -1};
  if (argument.rfind("node", 0) == 0 || argument.rfind("graph", 0) == 0 ||
      is({"exec", "clone", "object", "held", "pool", "phys", "tex", "surf"}))
    return {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE};
  if (is({"stream", "stream2", "capturing"})) return {-1, CUDA_ERROR_INVALID_HANDLE};
  if (is({"ctx", "peer"})) return {-1, CUDA_ERROR_INVALID_CONTEXT};
  if (is({"dev"})) return {-1, CUDA_ERROR_INVALID_DEVICE};
  if (is({"hostfn", "callback"})) return {CUDA_ERROR_INVALID_VALUE, -1};
  if (is({"dptr", "dptr2", "low", "low2", "gptr", "poolptr", "managed", "mapped", "reserved", "host"}))
    return {-1, CUDA_ERROR_INVALID_VALUE};
  if (is({"registered"})) return {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED};
  if (is({"event", "ipcevent", "module", "function", "kernel", "library", "array", "line", "line2", "mipmap", "texref",
          "link", "linked", "extmem", "extsem"}))
    return {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE};
  return {-1, -1};
}

class CallsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TheFake();
    ASSERT_EQ(::cuInit(0), CUDA_SUCCESS);
    for (int i = 0; i < kSymbolCount; ++i) address_[kSymbols[i].symbol] = reinterpret_cast<Call>(kSymbols[i].address);
    rows_ = ReadRows(&elsewhere_);
  }
  CUresult Make(const Row& row, const std::vector<uint64_t>& a) {
    uint64_t v[12] = {};
    std::copy(a.begin(), a.end(), v);
    return address_[row.symbol](v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11]);
  }
  // The valid arguments; places for answers are zeroed.
  std::vector<uint64_t> Prepare(const Row& row, CallObjects* objects) {
    std::vector<uint64_t> values;
    places_.assign(12, std::vector<uint8_t>(4096));
    for (size_t i = 0; i < row.arguments.size(); ++i) {
      const std::string& a = row.arguments[i];
      if (a == "out" || a == "out?") {
        values.push_back(reinterpret_cast<uint64_t>(places_[i].data()));
      } else if (a == "null!") {
        values.push_back(0);
      } else if (a[0] == '"') {
        memcpy(places_[i].data(), a.data() + 1, a.size() - 2);
        values.push_back(reinterpret_cast<uint64_t>(places_[i].data()));
      } else if (isdigit(a[0]) != 0) {
        values.push_back(std::stoull(a));
      } else {
        values.push_back(objects->Get(a));
        EXPECT_TRUE(values.back() != 0 || a == "dev") << row.symbol << ": there is no " << a;
      }
    }
    return values;
  }
  std::map<std::string, Call> address_;
  std::vector<Row> rows_;
  std::set<std::string> elsewhere_;
  std::vector<std::vector<uint8_t>> places_;
};

TEST_F(CallsTest, TheTableIsComplete) {
  std::set<std::string> there = elsewhere_;
  for (const Row& row : rows_) EXPECT_TRUE(there.insert(row.symbol).second) << row.symbol << " stands there twice";
  for (const ListedSymbol& listed : kListed) {
    const std::string symbol = listed.symbol;
    const std::string end = symbol.size() > 5 ? symbol.substr(symbol.size() - 5) : "";
    if (end == "_ptsz" || end == "_ptds") continue;
    EXPECT_EQ(there.contains(symbol), listed.implemented) << symbol;
  }
  EXPECT_LE(elsewhere_.size(), 3u);
}

TEST_F(CallsTest, AnswerAsDocumented) {
  for (const Row& row : rows_) {
    SCOPED_TRACE(row.symbol);
    CallObjects objects;
    const std::vector<uint64_t> valid = Prepare(row, &objects);
    for (size_t i = 0; i < valid.size(); ++i) {
      const std::string n = std::to_string(i);
      const Answers answers = AnswersOf(row.arguments[i]);
      for (auto [value, expected, note] :
           {std::tuple{uint64_t{0}, answers.null, "null" + n},
            std::tuple{row.arguments[i] == "dev" ? 99 : kMadeUp, answers.made_up, "wild" + n}}) {
        int code = expected;
        for (const std::string& word : row.notes) {
          if (word.rfind(note + "=", 0) == 0) code = std::stoi(word.substr(note.size() + 1));
        }
        if (code < 0 || row.Has("skip" + n) || row.Has("wildok" + n)) continue;
        std::vector<uint64_t> changed = valid;
        changed[i] = value;
        EXPECT_EQ(Make(row, changed), code) << note;
        ASSERT_EQ(::cuCtxSetCurrent(objects.context()), CUDA_SUCCESS);
      }
    }
    if (!row.Has("noctx")) {
      CUcontext left = nullptr;
      while (::cuCtxPopCurrent_v2(&left) == CUDA_SUCCESS) {
      }
      EXPECT_EQ(Make(row, valid), CUDA_ERROR_INVALID_CONTEXT) << "without a context";
      ASSERT_EQ(::cuCtxSetCurrent(objects.context()), CUDA_SUCCESS);
    }
    EXPECT_EQ(Make(row, valid), row.expected) << "valid";
  }
}

// Lengths, sizes, counts and flags beyond all measure: the call answers, and none but those that the table names
// (`bigN`: argument N may be any number) takes the largest number for a good one.
TEST_F(CallsTest, NoNumberIsTooLarge) {
  constexpr uint64_t kNumbers[] = {0x7fffffff, 0x80000000, 0xffffffff, 1ull << 47, 1ull << 63, ~0ull};
  for (const Row& row : rows_) {
    SCOPED_TRACE(row.symbol);
    for (size_t i = 0; i < row.arguments.size(); ++i) {
      if (isdigit(row.arguments[i][0]) == 0 && row.arguments[i] != "textsize") continue;
      const std::string n = std::to_string(i);
      CallObjects objects;
      std::vector<uint64_t> changed = Prepare(row, &objects);
      CUresult last = CUDA_SUCCESS;
      for (const uint64_t number : kNumbers) {
        changed[i] = number;
        last = Make(row, changed);
        // A call may have made a context.
        for (CUcontext left = nullptr; ::cuCtxPopCurrent_v2(&left) == CUDA_SUCCESS;) {
          if (left != objects.context()) ::cuCtxDestroy_v2(left);
        }
        ASSERT_EQ(::cuCtxSetCurrent(objects.context()), CUDA_SUCCESS);
      }
      EXPECT_TRUE(last != CUDA_SUCCESS || row.Has("big" + n)) << "argument " << n << " may be any number";
      EXPECT_FALSE(last != CUDA_SUCCESS && row.Has("big" + n)) << "argument " << n << " gives " << last;
    }
  }
}

// A forked child finds the driver as a program does before cuInit.
TEST_F(CallsTest, NothingWorksBeforeInit) {
  CallObjects objects;
  std::vector<std::vector<uint64_t>> arguments;
  for (const Row& row : rows_) {
    // Objects only: places and texts are made anew in the child.
    arguments.push_back(Prepare(row, &objects));
  }
  const pid_t child = fork();
  if (child == 0) {
    int wrong = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      if (row.Has("noinit")) continue;
      std::vector<uint64_t> values = arguments[i];
      places_.assign(12, std::vector<uint8_t>(4096));
      for (size_t a = 0; a < values.size(); ++a) {
        const std::string& argument = row.arguments[a];
        if (argument.rfind("out", 0) == 0 || argument[0] == '"')
          values[a] = reinterpret_cast<uint64_t>(places_[a].data());
      }
      const CUresult result = Make(row, values);
      if (result == CUDA_ERROR_NOT_INITIALIZED) continue;
      fprintf(stderr, "%s: %d before cuInit\n", row.symbol.c_str(), static_cast<int>(result));
      ++wrong;
    }
    _exit(wrong == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace mete::emulator::cuda
