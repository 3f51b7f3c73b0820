#include "interceptor/connection.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "ledger/pages.h"
#include "ledger/wire.h"

namespace mete::interceptor {
namespace {

using ledger::AttachReply;
using ledger::MessageType;

constexpr int kAnswerMs = 10'000;  // how long a broker may take to answer; a loaded machine is slow, not dead
constexpr int kFirstOwnFd = 400;   // programs close and reuse low numbers

char grant_directory[PATH_MAX];

// The path is taken when the library is loaded, before the program can change its directory.
__attribute__((constructor(101))) void FindGrantDirectory() {
  Dl_info info;
  if (dladdr(grant_directory, &info) == 0 || info.dli_fname == nullptr) return;
  char path[PATH_MAX];
  size_t used = 0;
  if (info.dli_fname[0] != '/') {
    if (getcwd(path, sizeof path - 1) == nullptr) return;
    used = strlen(path);
    path[used++] = '/';
  }
  const size_t length = strlen(info.dli_fname);
  if (used + length >= sizeof path) return;
  memcpy(path + used, info.dli_fname, length + 1);
  if (char* slash = strrchr(path, '/')) {
    *slash = '\0';
    memcpy(grant_directory, path, strlen(path) + 1);
  }
}

__attribute__((format(printf, 2, 3))) bool Fail(Why* why, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(why->text, sizeof why->text, format, arguments);
  va_end(arguments);
  return false;
}

// Connects to DIR/broker.sock, through /proc when the path is longer than a socket address takes.
int Dial(Why* why) {
  if (grant_directory[0] == '\0') {
    Fail(why, "cannot find the directory this library was loaded from");
    return -1;
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  int directory = -1;
  int written = snprintf(address.sun_path, sizeof address.sun_path, "%s/broker.sock", grant_directory);
  if (written >= static_cast<int>(sizeof address.sun_path)) {
    directory = open(grant_directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/broker.sock", directory);
  }
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  bool connected = false;
  if (fd >= 0) {
    do connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    while (!connected && errno == EINTR);
  }
  const int error = errno;
  if (directory >= 0) close(directory);
  if (connected) return fd;
  if (fd >= 0) close(fd);
  Fail(why, "no broker answers at %s/broker.sock (%s): is its share still there? Start this program with 'mete run'",
       grant_directory, strerror(error));
  return -1;
}

bool Ask(int socket, const void* message, size_t size, int passed_fd, AttachReply* reply, ledger::Packet* packet,
         Why* why) {
  const int error = ledger::SendPacket(socket, message, size, &passed_fd, passed_fd >= 0 ? 1 : 0);
  if (error != 0) return Fail(why, "cannot speak to the broker of %s (%s)", grant_directory, strerror(-error));
  pollfd ready{socket, POLLIN, 0};
  int answered;
  do answered = poll(&ready, 1, kAnswerMs);
  while (answered < 0 && errno == EINTR);
  if (answered <= 0) return Fail(why, "the broker of %s does not answer", grant_directory);
  char bytes[sizeof(AttachReply)];
  const int received = ledger::ReceivePacket(socket, bytes, sizeof bytes, MSG_DONTWAIT, packet);
  if (received == -EMSGSIZE)
    return Fail(why, "the broker of %s answered with a message that is too long", grant_directory);
  if (received != 0 || packet->size == 0) {
    return Fail(why, "the broker of %s closed the connection without an answer", grant_directory);
  }
  if (const char* reason = CheckReply(bytes, packet->size, reply)) {
    return Fail(why, "the broker of %s answered with %s", grant_directory, reason);
  }
  if (reply->header.type == static_cast<uint32_t>(MessageType::kRefused)) return Fail(why, "%s", reply->message);
  return true;
}

bool MapPages(const AttachReply& reply, const ledger::Packet& packet, bool observe, Attachment* attachment, Why* why) {
  const size_t wanted = observe ? 2 : 3;
  if (packet.fd_count != wanted) {
    return Fail(why, "the broker of %s sent %zu descriptors instead of %zu", grant_directory, packet.fd_count, wanted);
  }
  ledger::PageError error = ledger::MapLimits(packet.fds[0], &attachment->limits);
  if (error != ledger::PageError::kNone) {
    return Fail(why, "cannot use the limits page of %s: %s", grant_directory, ledger::Describe(error));
  }
  error = ledger::MapLedger(packet.fds[1], &attachment->ledger);
  if (error != ledger::PageError::kNone) {
    ledger::Unmap(attachment->limits);
    return Fail(why, "cannot use the ledger of %s: %s", grant_directory, ledger::Describe(error));
  }
  if (const char* reason = CheckPages(*attachment->limits, *attachment->ledger, observe ? 0 : reply.slot)) {
    ledger::Unmap(attachment->limits);
    ledger::Unmap(attachment->ledger);
    return Fail(why, "the broker of %s handed out %s", grant_directory, reason);
  }
  attachment->slot = reply.slot;
  attachment->generation = reply.generation;
  attachment->gpu_count = attachment->limits->gpu_count;
  return true;
}

// Sends a message, checks the answer and maps the pages in it.
bool Converse(const void* message, size_t size, int passed_fd, bool observe, Attachment* attachment, Why* why) {
  const int socket = Dial(why);
  if (socket < 0) return false;
  ledger::Packet packet;
  AttachReply reply;
  const bool done =
      Ask(socket, message, size, passed_fd, &reply, &packet, why) && MapPages(reply, packet, observe, attachment, why);
  if (!done) {
    ledger::CloseFds(&packet);
    close(socket);
    return false;
  }
  close(packet.fds[0]);  // the mapping of the limits is enough
  attachment->ledger_fd = OwnFd(packet.fds[1]);
  if (!observe) attachment->doorbell = OwnFd(packet.fds[2]);
  attachment->connection = OwnFd(socket);
  return true;
}

void SetProgram(char (&program)[64]) {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  memset(program, 0, sizeof program);
  if (length <= 0) return;
  path[length] = '\0';
  const char* slash = strrchr(path, '/');
  snprintf(program, sizeof program, "%.63s", slash == nullptr ? path : slash + 1);
}

}  // namespace

OwnFd::OwnFd(int fd) : fd_(fd) {
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, kFirstOwnFd);
  if (high >= 0) {
    close(fd);
    fd_ = high;
  }
  struct stat status;
  if (fstat(fd_, &status) == 0) {
    device_ = status.st_dev;
    inode_ = status.st_ino;
  }
}

int OwnFd::Get() const {
  struct stat status;
  if (fd_ < 0 || fstat(fd_, &status) != 0 || status.st_dev != device_ || status.st_ino != inode_) return -1;
  return fd_;
}

void OwnFd::Close() {
  const int fd = Get();
  fd_ = -1;
  if (fd >= 0) close(fd);
}

const char* GrantDirectory() { return grant_directory; }

bool Attach(MessageType type, Attachment* attachment, Why* why) {
  ledger::AttachRequest request;
  request.header = ledger::HeaderFor(type, sizeof request);
  SetProgram(request.program);
  return Converse(&request, sizeof request, -1, type == MessageType::kObserve, attachment, why);
}

bool Reattach(const Attachment& old, Attachment* attachment, Why* why) {
  const int ledger_fd = old.ledger_fd.Get();
  if (ledger_fd < 0) return Fail(why, "the program closed mete's descriptor of the ledger");
  ledger::ReattachRequest request;
  request.header = ledger::HeaderFor(MessageType::kReattach, sizeof request);
  request.slot = old.slot;
  request.generation = old.generation;
  memcpy(request.share_id, old.limits->share_id, sizeof request.share_id);
  SetProgram(request.program);
  return Converse(&request, sizeof request, ledger_fd, false, attachment, why);
}

bool Connected(const Attachment& attachment) {
  const int fd = attachment.connection.Get();
  if (fd < 0) return true;  // closed by the program, not by the broker: the slot lives on by our pid
  char byte;
  ssize_t got;
  do got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  while (got < 0 && errno == EINTR);
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
}

bool AskForAudit(const Attachment& attachment) {
  const int fd = attachment.connection.Get();
  const ledger::AuditRequest request{ledger::HeaderFor(MessageType::kAudit, sizeof request)};
  return fd >= 0 && ledger::SendPacket(fd, &request, sizeof request, nullptr, 0, MSG_DONTWAIT) == 0;
}

void Ring(const Attachment& attachment) {
  const int fd = attachment.doorbell.Get();
  if (fd < 0) return;
  const uint64_t one = 1;
  ssize_t done;
  do done = write(fd, &one, sizeof one);
  while (done < 0 && errno == EINTR);
}

const char* CheckReply(const void* bytes, size_t size, AttachReply* reply) {
  if (!ledger::Decode(bytes, size, reply)) return "something that is not an answer of this version of mete";
  for (char& c : reply->message) {
    if (c != '\0' && (static_cast<unsigned char>(c) < ' ' || c == 127)) c = ' ';  // it goes to a terminal
  }
  if (reply->slot != ledger::kNoSlot && reply->slot >= ledger::kMaxSlots) return "a slot out of range";
  return nullptr;
}

const char* CheckPages(const ledger::LimitsPage& limits, const ledger::LedgerPage& ledger, uint32_t slot) {
  if (ledger.gpu_count != limits.gpu_count) return "pages that do not agree on the number of GPUs";
  if (slot >= ledger::kMaxSlots) return "no slot";
  return nullptr;
}

void Complain(const char* text) {
  char line[512];
  const int length = snprintf(line, sizeof line, "mete: %s\n", text);
  if (length <= 0) return;
  const size_t size = static_cast<size_t>(length) < sizeof line ? static_cast<size_t>(length) : sizeof line - 1;
  if (write(STDERR_FILENO, line, size) < 0) return;  // nobody listens
}

}  // namespace mete::interceptor
