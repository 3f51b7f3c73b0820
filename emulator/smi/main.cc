// nvidia-smi of the emulated node. See README.md beside this file.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "emulator/smi/command.h"

namespace {

// Whether all that was printed so far has arrived; a flush that succeeds does not forgive an earlier write.
bool Written(FILE* out) { return fflush(out) == 0 && ferror(out) == 0; }

// Said on stderr, for stdout may be what fails.
int CannotWrite(const std::string& file, int why) {
  fprintf(stderr, "nvidia-smi: %s could not be written: %s\n", file.empty() ? "the output" : file.c_str(),
          why != 0 ? strerror(why) : "an earlier write failed");
  return mete::emulator::smi::kOther;
}

int PrintHelp(const std::string& text) {
  errno = 0;
  fputs(text.c_str(), stdout);
  return Written(stdout) ? 0 : CannotWrite("", errno);
}

}  // namespace

int main(int count, char** words) {
  namespace smi = mete::emulator::smi;
  smi::Request request;
  std::string message;
  smi::Exit code =
      smi::ParseRequest(std::vector<std::string>(words + (count > 0 ? 1 : 0), words + count), &request, &message);
  if (code == smi::kOk && request.action == smi::Action::kHelp) return PrintHelp(smi::Usage());
  if (code == smi::kOk && request.action == smi::Action::kHelpFields) return PrintHelp(smi::FieldHelp(request.table));
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
      errno = 0;
      fputs(text.c_str(), out);
      if (!Written(out)) return CannotWrite(request.file, errno);
      if (!request.loop_ms || (request.count && round >= *request.count)) break;
      request.first = false;
      usleep(static_cast<useconds_t>(*request.loop_ms) * 1000);
    }
  }
  if (out != stdout && fclose(out) != 0) return CannotWrite(request.file, errno);
  // The tool speaks on stdout, and programs read it there.
  if (code != smi::kOk) {
    errno = 0;
    printf("%s\n", message.c_str());
    if (!Written(stdout)) CannotWrite("", errno);
  }
  return code;
}
