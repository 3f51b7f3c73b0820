// A choice of mechanism as JSON: what `mete run --dry-run` shows of plan/choice.h. Pure; any thread.
#ifndef METE_SHARE_CHOICE_JSON_H_
#define METE_SHARE_CHOICE_JSON_H_

#include "base/json.h"
#include "plan/choice.h"

namespace mete::share {

Json ToJson(const plan::Choice& choice);

}  // namespace mete::share

#endif  // METE_SHARE_CHOICE_JSON_H_
