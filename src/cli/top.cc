// `mete top`: what of each GPU is promised to whom, used, and free; live on a terminal, once elsewhere.
#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "base/table.h"
#include "base/text.h"
#include "cli/broker_client.h"
#include "cli/commands.h"
#include "cli/top_screen.h"
#include "cli/top_view.h"

namespace mete::cli {
namespace {

constexpr double kLeastSeconds = 0.1, kMostSeconds = 3600;

// As the C library reads it, without a locale of ours: the first of these that is set decides.
Glyphs GlyphsHere() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string lower = ToLower(value);
    return lower.find("utf-8") != std::string::npos || lower.find("utf8") != std::string::npos ? Glyphs::kUnicode
                                                                                               : Glyphs::kAscii;
  }
  return Glyphs::kAscii;
}

StatusOr<Top> Take(const nvml::Library& library, share::Client& client) {
  share::Command command;
  command.op = share::Op::kList;
  METE_ASSIGN_OR_RETURN(const Json list, client.Call(command));
  return TakeTop(library, list);
}

// The node may be taken down, and another one come up, while a picture stands.
Status StillThere(const std::string& driver_root, const share::Places& places) {
  METE_ASSIGN_OR_RETURN(const share::Places now, PlacesOfNode(driver_root));
  if (now.node != places.node) return Lacks("the node {} has gone; run `mete top` again", places.driver_root);
  return OkStatus();
}

Status Live(const std::string& driver_root, const share::Places& places, const nvml::Library& library,
            share::Client& client, double seconds) {
  const std::chrono::milliseconds time(std::llround(seconds * 1000));
  METE_ASSIGN_OR_RETURN(Top top, Take(library, client));  // what is wrong at once is said without a screen
  METE_ASSIGN_OR_RETURN(const auto screen, Screen::Take());
  for (;;) {
    screen->Show(TopText(top, Screen::SizeNow().columns, GlyphsHere()) +
                 fmt::format("\nq ends; every {:g} s\n", seconds));
    if (!screen->Wait(time)) return OkStatus();
    StatusOr<Top> next = Take(library, client);
    METE_RETURN_IF_ERROR(StillThere(driver_root, places));
    METE_RETURN_IF_ERROR(next.status());
    top = *std::move(next);
  }
}

StatusOr<int> RunTop(const std::vector<std::string>& words) {
  CLI::App app("What of each GPU is promised to whom, used, and free: live on a terminal, once elsewhere.");
  Common common;
  AddCommon(app, common);
  bool once = false;
  double seconds = 1;
  app.add_flag("--once", once, "Print it once, although this is a terminal");
  app.add_option("--interval", seconds, "Seconds between two pictures (0.1 to 3600; default 1)")
      ->option_text("SECONDS")
      ->check(CLI::Range(kLeastSeconds, kMostSeconds));
  METE_ASSIGN_OR_RETURN(const bool go, ParseWords(app, "top", words));
  if (!go) return 0;
  METE_ASSIGN_OR_RETURN(const share::Places places, PlacesOfNode(common.driver_root));
  METE_ASSIGN_OR_RETURN(const auto library, nvml::Library::Open(places.driver_root));
  share::Client client = ClientOf(places);
  if (!once && !common.json && Screen::OnTerminal()) {
    METE_RETURN_IF_ERROR(Live(common.driver_root, places, *library, client, seconds));
    return 0;
  }
  METE_ASSIGN_OR_RETURN(const Top top, Take(*library, client));
  if (common.json) {
    PrintJson(TopJson(top));
  } else {
    Print(TopText(top, TerminalWidth(STDOUT_FILENO), GlyphsHere()));
  }
  return 0;
}

}  // namespace

const Command kTop{"top", "what of each GPU is promised to whom, used, and free, live", Group::kLook, RunTop};

}  // namespace mete::cli
