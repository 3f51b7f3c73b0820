// What a program prints for its user, and whether all of it has arrived: a full disk must not look like success.
//
//   Print("GPU {}: {}\n", index, name);
//   ...
//   if (Status written = FinishOutput(); !written.ok()) return Fail(written);   // once, before the program ends
//
// Standard output only. One thread; a failed write is kept until FinishOutput tells it, and never thrown.
#ifndef METE_BASE_OUTPUT_H_
#define METE_BASE_OUTPUT_H_

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/status.h"

namespace mete {

void Print(std::string_view text);
template <typename First, typename... Rest>
void Print(fmt::format_string<First, Rest...> text, First&& first, Rest&&... rest) {
  Print(std::string_view(fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...)));
}

// Lacks if anything printed since the program began, by whatever means, could not be written.
Status FinishOutput();

}  // namespace mete

#endif  // METE_BASE_OUTPUT_H_
