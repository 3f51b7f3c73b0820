// The tables of data/, compiled into the program as text. Constant; any thread.
#ifndef METE_GPU_EMBEDDED_H_
#define METE_GPU_EMBEDDED_H_

#include <string_view>

namespace mete::gpu::embedded {

extern const std::string_view kBoards;
extern const std::string_view kPromises;
extern const std::string_view kMechanisms;
extern const std::string_view kMig;

}  // namespace mete::gpu::embedded

#endif  // METE_GPU_EMBEDDED_H_
