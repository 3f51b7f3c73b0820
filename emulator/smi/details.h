// `nvidia-smi -q`: everything about each GPU, as indented lines or as XML, all of it or by section (-d).
#ifndef METE_EMULATOR_SMI_DETAILS_H_
#define METE_EMULATOR_SMI_DETAILS_H_

#include <string>
#include <vector>

#include "emulator/smi/snapshot.h"

namespace mete::emulator::smi {

// The names that -d takes.
const std::vector<std::string>& DetailSections();

// `sections`: upper case, of DetailSections(); empty: everything but the supported clocks.
std::string Details(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen,
                    const std::vector<std::string>& sections, const std::string& date);
std::string DetailsXml(const SmiSnapshot& snapshot, const std::vector<size_t>& chosen,
                       const std::vector<std::string>& sections, const std::string& date);

}  // namespace mete::emulator::smi

#endif  // METE_EMULATOR_SMI_DETAILS_H_
