// nvidia-smi of the emulated node. See README.md beside this file.
#include <unistd.h>

#include <cstdio>

#include "emulator/smi/command.h"

int main(int count, char** words) {
  namespace smi = mete::emulator::smi;
  smi::Request request;
  std::string message;
  smi::Exit code =
      smi::ParseRequest(std::vector<std::string>(words + (count > 0 ? 1 : 0), words + count), &request, &message);
  if (code == smi::kOk && request.action == smi::Action::kHelp) {
    fputs(smi::Usage().c_str(), stdout);
    return 0;
  }
  if (code == smi::kOk && request.action == smi::Action::kHelpFields) {
    fputs(smi::FieldHelp(request.table).c_str(), stdout);
    return 0;
  }
  FILE* out = stdout;
  if (code == smi::kOk && !request.file.empty()) {
    out = fopen(request.file.c_str(), "we");
    if (out == nullptr) {
      printf("cannot write the file %s; name another with -f\n", request.file.c_str());
      return smi::kInvalidArgument;
    }
  }
  if (code == smi::kOk) {
    std::unique_ptr<smi::SmiSource> source;
    code = smi::OpenNvml(&source, &message);
    for (int round = 1; code == smi::kOk || code == smi::kGpuLost; ++round) {
      std::string text;
      code = smi::Answer(request, source.get(), &text, &message);
      fputs(text.c_str(), out);
      if (fflush(out) != 0 || !request.loop_ms || (request.count && round >= *request.count)) break;
      request.first = false;
      usleep(static_cast<useconds_t>(*request.loop_ms) * 1000);
    }
  }
  if (out != stdout) fclose(out);
  // The tool speaks on stdout, and programs read it there.
  if (code != smi::kOk) printf("%s\n", message.c_str());
  return code;
}
