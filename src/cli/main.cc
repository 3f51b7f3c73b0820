// The program `mete`.
#include <string>
#include <vector>

#include "cli/command.h"

int main(int argc, char** argv) {
  return mete::cli::Main(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
