// How well the MIG planner places, as a table: loss (compute slices refused / asked for) for every mix of requests,
// against every static order, first fit and the order of NVIDIA's resource driver, and against one who knows the
// future.
//
//   mig_experiment [--seeds 10] [--arrivals 4000] [BOARD…]
//
// Simulated: no GPU is involved. The same arguments print the same table.
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "base/table.h"
#include "plan/mig/experiment/compare.h"

namespace mete::plan::mig {
namespace {

std::string Percents(const Spread& spread) {
  return fmt::format("{:.2f} [{:.2f}–{:.2f}]", 100 * spread.mean, 100 * spread.low, 100 * spread.high);
}

void PrintBoard(const std::string& id, int seeds, size_t arrivals) {
  const gpu::MigBoard* board = gpu::MigTables::BuiltIn().Find(id);
  if (board == nullptr) {
    fmt::print(stderr, "mig_experiment: no MIG table for {}\n", id);
    std::exit(2);
  }
  const States states = *States::Of(*Geometry::Of(*board));
  const Comparison comparison = Compare(states, seeds, arrivals);
  fmt::print("\n{}: loss in %, mean [least–most] of {} seeds, {} requests each\n", id, seeds, arrivals);
  Table table({{"mix"},
               {"GPUs", Align::kRight},
               {"load", Align::kRight},
               {"mete", Align::kRight},
               {"best order", Align::kRight},
               {"mete − best", Align::kRight},
               {"first fit", Align::kRight},
               {"unsorted", Align::kRight},
               {"worst order", Align::kRight},
               {"which order is best"}});
  for (const Row& row : comparison.rows) {
    table.AddRow({(row.mix.adversarial ? "! " : "") + row.mix.name, std::to_string(row.mix.gpus),
                  fmt::format("{:.1f}", row.mix.load), Percents(row.mete), Percents(row.best),
                  fmt::format("{:+.1f} %", 100 * row.worse_than_best), fmt::format("{:.2f}", 100 * row.first_fit.mean),
                  fmt::format("{:.2f}", 100 * row.unsorted.mean), fmt::format("{:.2f}", 100 * row.worst.mean),
                  row.best_order});
  }
  fmt::print("{}", table.Render(0, 2));
  fmt::print("  mean over all mixes (!: adversarial):");
  double least = 1;
  std::string which;
  for (const auto& [name, mean] : comparison.means) {
    if (name == "mete" || name.rfind("down", 0) != 0) fmt::print(" {} {:.2f};", name, 100 * mean);
    if (name != "mete" && mean < least) least = mean, which = name;
  }
  fmt::print(" the best single order is {} with {:.2f}\n", which, 100 * least);
}

// Against one who knows the stream, on one GPU and streams short enough to enumerate.
void PrintClairvoyant(const std::string& id, int seeds) {
  const States states = *States::Of(*Geometry::Of(*gpu::MigTables::BuiltIn().Find(id)));
  const size_t arrivals = states.size() > 1000 ? 20 : 40;
  const NamedPolicy mete = Mete(states);
  const NamedPolicy first_fit = Baselines(states, 1).front();
  fmt::print("\n{}: distance to the optimum that knows the future, one GPU, {} requests, loss in %\n", id, arrivals);
  Table table({{"mix"},
               {"load", Align::kRight},
               {"mete", Align::kRight},
               {"first fit", Align::kRight},
               {"optimum that serves what fits", Align::kRight},
               {"optimum that may refuse", Align::kRight}});
  for (const Mix& mix : MixesFor(states.geometry())) {
    if (mix.gpus != 1) continue;
    double ours = 0, first = 0, serving = 0, refusing = 0;
    for (int seed = 0; seed < seeds; ++seed) {
      const Stream stream = MakeStream(states.geometry(), mix, static_cast<uint64_t>(1000 + seed), arrivals);
      ours += Loss(states, stream, 1, mete.make(0)) / seeds;
      first += Loss(states, stream, 1, first_fit.make(0)) / seeds;
      serving += ClairvoyantLoss(states, stream, false) / seeds;
      refusing += ClairvoyantLoss(states, stream, true) / seeds;
    }
    const auto cell = [](double loss) { return fmt::format("{:.2f}", 100 * loss); };
    table.AddRow({(mix.adversarial ? "! " : "") + mix.name, fmt::format("{:.1f}", mix.load), cell(ours), cell(first),
                  cell(serving), cell(refusing)});
  }
  fmt::print("{}", table.Render(0, 2));
}

int Main(int argc, char** argv) {
  int seeds = 10;
  size_t arrivals = 4000;
  std::vector<std::string> boards;
  for (int i = 1; i < argc; ++i) {
    const bool value = i + 1 < argc;
    if (std::strcmp(argv[i], "--seeds") == 0 && value) {
      seeds = std::max(1, std::atoi(argv[++i]));
    } else if (std::strcmp(argv[i], "--arrivals") == 0 && value) {
      arrivals = static_cast<size_t>(std::max(1, std::atoi(argv[++i])));
    } else if (argv[i][0] == '-') {
      fmt::print(stderr, "usage: mig_experiment [--seeds N] [--arrivals N] [BOARD…]\n");
      return 2;
    } else {
      boards.emplace_back(argv[i]);
    }
  }
  if (boards.empty()) boards = {"a100-sxm4-40gb", "h100-sxm5-80gb", "a30"};
  fmt::print("SIMULATED: requests and lifetimes are drawn, no GPU is involved.\n");
  for (const std::string& board : boards) PrintBoard(board, seeds, arrivals);
  for (const std::string& board : boards) PrintClairvoyant(board, seeds);
  return 0;
}

}  // namespace
}  // namespace mete::plan::mig

int main(int argc, char** argv) { return mete::plan::mig::Main(argc, argv); }
