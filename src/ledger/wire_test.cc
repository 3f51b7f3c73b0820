#include "ledger/wire.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace mete::ledger {
namespace {

struct Wire : ::testing::Test {
  void SetUp() override { ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0); }
  void TearDown() override {
    close(ends[0]);
    close(ends[1]);
  }
  int ends[2];
};

TEST_F(Wire, CarriesAMessageWithDescriptors) {
  AttachReply reply = {HeaderFor(MessageType::kAttached, sizeof(AttachReply)), 5, 6, "ok"};
  const int fds[3] = {ends[0], ends[1], 0};
  ASSERT_EQ(SendPacket(ends[0], &reply, sizeof(reply), fds, 3), 0);
  char buffer[1024];
  Packet packet;
  ASSERT_EQ(ReceivePacket(ends[1], buffer, sizeof(buffer), 0, &packet), 0);
  EXPECT_EQ(packet.size, sizeof(reply));
  ASSERT_EQ(packet.fd_count, 3u);
  EXPECT_NE(fcntl(packet.fds[0], F_GETFD) & FD_CLOEXEC, 0);
  AttachReply got;
  ASSERT_TRUE(Decode(buffer, packet.size, &got));
  EXPECT_EQ(got.slot, 5u);
  EXPECT_STREQ(got.message, "ok");
  AttachRequest request;
  EXPECT_FALSE(Decode(buffer, packet.size, &request));
  CloseFds(&packet);
  EXPECT_EQ(packet.fd_count, 0u);
}

TEST_F(Wire, SurplusDescriptorsAndLongPacketsAreRefusedAndClosed) {
  char bytes[64] = {};
  EXPECT_EQ(SendPacket(ends[0], bytes, sizeof(bytes), nullptr, kMaxMessageFds + 1), -EINVAL);
  Packet packet;
  char buffer[16];
  const int fds[2] = {ends[0], ends[1]};
  const int before = dup(0);
  close(before);
  ASSERT_EQ(SendPacket(ends[0], bytes, sizeof(bytes), fds, 2), 0);
  EXPECT_EQ(ReceivePacket(ends[1], buffer, sizeof(buffer), 0, &packet), -EMSGSIZE);
  // Six descriptors in one packet, by hand.
  alignas(cmsghdr) char control[CMSG_SPACE(6 * sizeof(int))] = {};
  iovec part = {bytes, sizeof(bytes)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(6 * sizeof(int));
  for (size_t i = 0; i < 6; ++i) memcpy(CMSG_DATA(header) + i * sizeof(int), &ends[0], sizeof(int));
  ASSERT_GT(sendmsg(ends[0], &message, 0), 0);
  char room[128];
  EXPECT_EQ(ReceivePacket(ends[1], room, sizeof(room), 0, &packet), -EMSGSIZE);
  const int after = dup(0);
  close(after);
  EXPECT_EQ(before, after) << "a descriptor leaked";
}

TEST_F(Wire, SaysWhenNothingIsThereAndWhenTheOtherSideLeft) {
  char buffer[16];
  Packet packet;
  EXPECT_EQ(ReceivePacket(ends[1], buffer, sizeof(buffer), MSG_DONTWAIT, &packet), -EAGAIN);
  shutdown(ends[0], SHUT_RDWR);
  EXPECT_EQ(ReceivePacket(ends[1], buffer, sizeof(buffer), 0, &packet), 0);
  EXPECT_EQ(packet.size, 0u);
  EXPECT_EQ(SendPacket(ends[0], buffer, sizeof(buffer), nullptr, 0), -EPIPE);
}

TEST(Decode, ChecksEveryFieldAndTerminatesStrings) {
  AttachRequest request = {};
  request.header = HeaderFor(MessageType::kAttach, sizeof(request));
  memset(request.program, 'x', sizeof(request.program));
  AttachRequest got;
  ASSERT_TRUE(Decode(&request, sizeof(request), &got));
  EXPECT_EQ(strlen(got.program), sizeof(got.program) - 1);
  EXPECT_FALSE(Decode(&request, sizeof(request) - 1, &got));
  AttachRequest bad = request;
  bad.header.magic ^= 1;
  EXPECT_FALSE(Decode(&bad, sizeof(bad), &got));
  bad = request;
  bad.header.version += 1;
  EXPECT_FALSE(Decode(&bad, sizeof(bad), &got));
  bad = request;
  bad.header.type = 77;
  EXPECT_EQ(TypeOf(&bad, sizeof(bad)), 0u);
  EXPECT_EQ(TypeOf(nullptr, 0), 0u);
}

}  // namespace
}  // namespace mete::ledger
