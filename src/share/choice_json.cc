#include "share/choice_json.h"

#include <algorithm>

namespace mete::share {

Json ToJson(const plan::Choice& choice) {
  Json json;
  json["granted"] = choice.status.ok();
  if (choice.status.ok()) {
    json["mechanism"] = gpu::Name(choice.mechanism);
  } else {
    json["status"] = static_cast<int>(ExitCodeFor(choice.status));
    json["refusal"] = Message(choice.status);
  }
  if (!choice.nearest.empty()) json["nearest"] = choice.nearest;
  json["proposals"] = choice.proposals;
  json["reasons"] = Json::array();
  for (size_t i = 0; i < choice.reasons.size(); ++i) {
    const plan::Reason& reason = choice.reasons[i];
    Json promises = Json::array();
    for (const plan::PromiseReason& promise : reason.promises) {
      promises.push_back(
          {{"promise", gpu::Name(promise.promise)}, {"holds", Name(promise.holds)}, {"because", promise.because}});
    }
    json["reasons"].push_back(
        {{"gpu", reason.gpu},
         {"board", reason.gpu_name},
         {"mechanism", gpu::Name(reason.mechanism)},
         {"variant", reason.variant},
         {"verdict", Name(reason.verdict)},
         {"chosen", std::find(choice.chosen.begin(), choice.chosen.end(), i) != choice.chosen.end()},
         {"gives", reason.gives},
         {"why", reason.why},
         {"promises", promises}});
  }
  return json;
}

}  // namespace mete::share
