// Decides what a request gets on a node, or why nothing. Pure: the same values give the same answer. Any thread.
//
//   METE_ASSIGN_OR_RETURN(plan::Grant grant, plan::Resolve(request, occupancy));
//
// Errors: Usage and NoSuch for a request that cannot be read, Refused for one that what is held forbids; the message
// says who holds what and the largest request that would fit.
#ifndef METE_PLAN_RESOLVE_H_
#define METE_PLAN_RESOLVE_H_

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "plan/values.h"

namespace mete::plan {

// Memory that shares can hold on this GPU at all.
Bytes Usable(const GpuOccupancy& gpu);
// The largest quota that could still be promised here to a share of no holding yet.
Bytes LargestQuota(const GpuOccupancy& gpu);
// The largest compute promise that could still be made here.
Percent LargestCompute(const GpuOccupancy& gpu);

// A tenant of the GPU that nothing limits, so that no promise to another can be kept beside it; null: there is none.
const Holding* Unlimited(const GpuOccupancy& gpu);

// Interception alone: chooses GPUs and sizes. Without `gpu`, the GPU on which the request fits and which is then left
// with the least unpromised memory (so that large requests still fit elsewhere); a request without memory goes where
// the most is left.
StatusOr<Grant> Resolve(const Request& request, const Occupancy& occupancy);

// May the named share hold `wanted` on this GPU instead of what it holds? Its own holding does not count against it.
Status Fits(const GpuOccupancy& gpu, const std::string& share, std::optional<Bytes> memory,
            std::optional<Compute> compute);

// What each holding of the GPU gets now, in the order of gpu.holdings. Quotas are as promised; a share without one is
// capped at its part of the memory not promised to others. Promised compute is its own weight; the percent not promised
// is the weight of the others together, at least 1 hundredth each.
std::vector<Allotment> Allot(const GpuOccupancy& gpu);

// 1 to 32 of a-z 0-9 . _ -, starting with a letter or digit (Usage).
Status CheckShareName(std::string_view name);

// Reads "30%", "30%,soft", "30,hard"; alone it means hard (Usage).
StatusOr<Compute> ParseCompute(std::string_view text);
// Reads "report", "freeze" or "kill" (Usage).
StatusOr<OnBypass> ParseOnBypass(std::string_view text);
std::string ToString(OnBypass answer);
// Reads "default", "short", "medium" or "long" (Usage).
StatusOr<TimeSlice> ParseTimeSlice(std::string_view text);
std::string ToString(TimeSlice slice);
std::string ToString(const Compute& compute);  // "30 % hard"
std::string ToString(ComputeMode mode);        // "work-conserving", "hard", "soft"

}  // namespace mete::plan

#endif  // METE_PLAN_RESOLVE_H_
