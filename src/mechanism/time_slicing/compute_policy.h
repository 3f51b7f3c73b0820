// What `nvidia-smi compute-policy -l` prints, read: the class of time slices of each GPU. Pure; any thread.
#ifndef METE_MECHANISM_TIME_SLICING_COMPUTE_POLICY_H_
#define METE_MECHANISM_TIME_SLICING_COMPUTE_POLICY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "plan/values.h"

namespace mete::mechanism {

// By GPU index; nothing for a GPU without classes. What is no row of the table is passed over.
std::map<uint32_t, std::optional<plan::TimeSlice>> ParseComputePolicies(std::string_view text);

}  // namespace mete::mechanism

#endif  // METE_MECHANISM_TIME_SLICING_COMPUTE_POLICY_H_
