// Looks at the node for a choice of mechanism (plan/choice.h), and prints what the choice was made from: the reasoning
// for every GPU × mechanism. Plain values; one thread.
#ifndef METE_CLI_CHOICE_VIEW_H_
#define METE_CLI_CHOICE_VIEW_H_

#include <string>
#include <vector>

#include "base/json.h"
#include "cli/inventory.h"
#include "plan/choice.h"

namespace mete::cli {

// What NVML says of the GPUs and the broker's list (`Op::kList`) of who holds what on them.
std::vector<plan::GpuView> ViewsOf(const Inventory& inventory, const Json& shares);

std::string ChoiceText(const plan::Choice& choice, size_t width);
Json ChoiceJson(const plan::Choice& choice);

}  // namespace mete::cli

#endif  // METE_CLI_CHOICE_VIEW_H_
