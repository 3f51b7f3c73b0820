#!/usr/bin/env python3
"""A hostile client of a node's engine: raw packets of every kind, broken headers, a scribbled ring. The engine survives and drops the
client; a tenant beside it goes on as if nothing had been."""
import json
import mmap
import os
import random
import re
import socket
import struct

from harness import ROOT, World, main, require, until

PROTOCOL = (ROOT / "emulator/engine/protocol.h").read_text()
MAGIC, VERSION = 0x65476D65, int(re.search(r"kProtocolVersion = (\d+)", PROTOCOL)[1])
KINDS = len(re.findall(r"^  k\w+(?: = 1)?,", PROTOCOL.split("enum class MessageType")[1].split("};")[0], re.M))
HELLO, CREATE_CONTEXT, OPEN_STREAM, STOP = 1, 2, 11, 17
OWNER_ONLY = (15, STOP, 18, 19, 21, 22, 26, 35)  # of the node's own uid, as this test is: what they do is allowed


def request(kind, gpu=0, value=0, context=0, amount=0, text=b"", magic=MAGIC, version=VERSION, size=168):
    return struct.pack("<IIIIIIQQ128s", magic, version, kind, size, gpu, value, context, amount, text)


class Hostile:
    def __init__(self, world):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(str(world.node / "run/engine.sock"))
        self.socket.settimeout(30)
        self.fds = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
        for fd in self.fds:
            os.close(fd)

    def ask(self, packet):
        """The reply, or None: the engine hung up."""
        try:
            self.socket.send(packet)
            reply, fds, _, _ = socket.recv_fds(self.socket, 1 << 18, 3)
        except (ConnectionResetError, BrokenPipeError):
            return None
        self.fds += fds
        return reply or None

    def page(self):
        require(self.ask(request(HELLO)), "no answer to hello")
        return mmap.mmap(self.fds[0], 0)


class Beside:
    """A world with an honest tenant that must never notice."""

    def __enter__(self):
        self.world = World().__enter__()
        self.engine = json.loads(self.world.ok("emulate", "status", "--json").stdout)["pid"]
        self.tenant = self.world.start("tenant", "work", environment=self.world.without_mete())
        require("launched" in self.tenant.stdout.readline(), "the honest tenant did not begin")
        return self.world

    def __exit__(self, kind, value, trace):
        try:
            if kind is None:
                status = json.loads(self.world.ok("emulate", "status", "--json").stdout)
                require(status["pid"] == self.engine, "the engine is another")
                require(self.tenant.poll() is None, "the honest tenant ended")
                before = status["submissions"]
                until(lambda: json.loads(self.world.ok("emulate", "status", "--json").stdout)["submissions"] > before, "the honest tenant goes on")
                until(lambda: json.loads(self.world.ok("emulate", "status", "--json").stdout)["gpus"][0]["contexts"] == 1, "contexts of the hostile client are gone")
        finally:
            self.tenant.kill()
            self.tenant.wait()
            self.world.__exit__(kind, value, trace)


def packets_that_are_no_requests_end_the_connection():
    with Beside() as world:
        for packet in (b"", b"x", request(HELLO)[:-1], request(HELLO) + b"x", request(HELLO, magic=1), request(HELLO, version=99), request(0), request(KINDS + 1), request(HELLO, size=1), os.urandom(168)):
            with Hostile(world) as client:
                if packet == b"":
                    client.socket.shutdown(socket.SHUT_WR)
                    require(client.socket.recv(1) == b"", "an empty packet was answered")
                else:
                    require(client.ask(packet) is None, "answered although it is no request", packet)


def every_kind_of_request_with_arbitrary_arguments():
    with Beside() as world:
        random.seed(20261129)
        for kind in range(1, KINDS + 1):
            if kind in OWNER_ONLY:
                continue
            with Hostile(world) as client:
                client.ask(request(HELLO))
                context = struct.unpack_from("<Q", client.ask(request(CREATE_CONTEXT)), 24)[0]
                stream = struct.unpack_from("<Q", client.ask(request(OPEN_STREAM, context=context)), 24)[0]
                for _ in range(200):
                    reply = client.ask(request(kind, random.choice((0, 1, 2**32 - 1)), random.choice((0, stream, random.getrandbits(32))), random.choice((0, context, random.getrandbits(64))),
                                               random.choice((0, 1, 2**63, 2**64 - 1)), random.randbytes(128)))
                    require(reply is not None, f"hung up on a well-formed request of kind {kind}")
                    require(struct.unpack_from("<II", reply) == (MAGIC, VERSION) and struct.unpack_from("<I", reply, 16)[0] == len(reply), "a reply that is none", reply[:40])


def scribbled_pages_hurt_only_their_own_client():
    with Beside() as world:
        random.seed(7)
        for round_ in range(12):
            with Hostile(world) as client:
                page = client.page()
                context = struct.unpack_from("<Q", client.ask(request(CREATE_CONTEXT)), 24)[0]
                client.ask(request(OPEN_STREAM, context=context))
                if round_ == 0:  # a ring that claims more than it can hold
                    struct.pack_into("<Q", page, 64, 2**40)
                else:
                    for _ in range(2000):
                        at = random.randrange(0, len(page) - 64)
                        page[at:at + 64] = random.randbytes(64)
                    struct.pack_into("<Q", page, 64, random.randrange(0, 4096))
                os.write(client.fds[2], struct.pack("<Q", 1))
                client.ask(request(13))
                page.close()


def who_does_not_read_its_replies_is_dropped():
    with Beside() as world:
        with Hostile(world) as client:
            client.socket.settimeout(0.2)
            sent = 0
            try:
                while sent < 100_000:
                    client.socket.send(request(16))
                    sent += 1
            except (BrokenPipeError, ConnectionResetError, socket.timeout):
                pass
            require(sent < 100_000, "the engine kept answering one that never reads")


def many_connections_do_not_crowd_out_the_rest():
    with Beside() as world:
        crowd = [Hostile(world) for _ in range(200)]
        for one in crowd:
            one.ask(request(HELLO))
        fresh = world.run("tenant", "free", environment=world.without_mete())
        require(fresh.returncode == 0, "no room for an honest client", fresh.stdout, fresh.stderr)
        for one in crowd:
            one.__exit__()


if __name__ == "__main__":
    main([packets_that_are_no_requests_end_the_connection, every_kind_of_request_with_arbitrary_arguments, scribbled_pages_hurt_only_their_own_client, who_does_not_read_its_replies_is_dropped,
          many_connections_do_not_crowd_out_the_rest])
