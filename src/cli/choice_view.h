// Prints what a choice of mechanism was made from: the reasoning for every GPU × mechanism, as the broker's answer to
// `plan` tells it (share/choice_json.h). Pure; any thread.
#ifndef METE_CLI_CHOICE_VIEW_H_
#define METE_CLI_CHOICE_VIEW_H_

#include <string>

#include "base/json.h"
#include "base/status.h"

namespace mete::cli {

std::string ChoiceText(const Json& choice, size_t width);
// OK, or why nothing can be granted.
Status ChoiceStatus(const Json& choice);

}  // namespace mete::cli

#endif  // METE_CLI_CHOICE_VIEW_H_
