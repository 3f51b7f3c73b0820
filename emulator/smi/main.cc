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
  if (code == smi::kOk) {
    switch (request.action) {
      case smi::Action::kHelp: fputs(smi::Usage().c_str(), stdout); return 0;
      case smi::Action::kHelpGpuFields: fputs(smi::GpuFieldHelp().c_str(), stdout); return 0;
      case smi::Action::kHelpAppFields: fputs(smi::AppFieldHelp().c_str(), stdout); return 0;
      default: break;
    }
    std::unique_ptr<smi::SmiSource> source;
    code = smi::OpenNvml(&source, &message);
    while (code == smi::kOk) {
      std::string text;
      code = smi::Answer(request, source.get(), &text, &message);
      fputs(text.c_str(), stdout);
      if (fflush(stdout) != 0 || !request.loop_ms) break;
      if (request.format) request.format->header = false;  // once
      usleep(static_cast<useconds_t>(*request.loop_ms) * 1000);
    }
  }
  // The tool speaks on stdout, and programs read it there.
  if (code != smi::kOk) printf("%s\n", message.c_str());
  return code;
}
