"""Both ends of the QUIC performance protocol (draft-banks-quic-performance-00), by aioquic.

usage: perf.py server --listen ADDR:PORT
       perf.py client --server ADDR:PORT [--down BYTES] [--up BYTES] [--streams N]

The server prints one line, "up" and where it listens, and runs until its input ends. The client
prints how many bytes came.
"""

import argparse
import asyncio
import datetime
import ssl
import struct
import sys

from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamDataReceived, StreamReset
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

# The name of the protocol (§2.1), and the bytes that say how many are wanted back (§2.3.1).
ALPN = "perf"
HEAD = struct.Struct(">Q")
# For anything that should take a second or two.
PATIENCE = 60


def is_one_way(stream):
    """Whether only one end writes to the stream of this number (RFC 9000 §2.1)."""
    return stream & 2 != 0


class Server(QuicConnectionProtocol):
    """Answers each stream with as many bytes as its first eight ask for."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.heads = {}

    def quic_event_received(self, event):
        if isinstance(event, StreamReset):
            self.heads.pop(event.stream_id, None)
        elif isinstance(event, StreamDataReceived):
            head = self.heads.get(event.stream_id, b"")
            self.heads[event.stream_id] = (head + event.data[: HEAD.size])[: HEAD.size]
            if event.end_stream:
                self.answer(event.stream_id, self.heads.pop(event.stream_id))

    def answer(self, stream, head):
        if len(head) < HEAD.size:
            return
        (size,) = HEAD.unpack(head)
        if is_one_way(stream):
            stream = self._quic.get_next_available_stream_id(is_unidirectional=True)
        self._quic.send_stream_data(stream, bytes(size), end_stream=True)
        self.transmit()


class Client(QuicConnectionProtocol):
    """Asks on one stream after the other, and counts what comes."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.received = 0
        self.ended = asyncio.Event()

    def quic_event_received(self, event):
        if isinstance(event, StreamDataReceived):
            self.received += len(event.data)
        if isinstance(event, ConnectionTerminated) or getattr(event, "end_stream", False):
            self.ended.set()

    async def ask(self, size, payload, one_way):
        self.ended.clear()
        stream = self._quic.get_next_available_stream_id(is_unidirectional=one_way)
        self._quic.send_stream_data(stream, HEAD.pack(size) + bytes(payload), end_stream=True)
        self.transmit()
        await asyncio.wait_for(self.ended.wait(), PATIENCE)


async def run_server(host, port):
    configuration = QuicConfiguration(is_client=False, alpn_protocols=[ALPN])
    configuration.certificate, configuration.private_key = self_signed()
    server = await serve(host, port, configuration=configuration, create_protocol=Server)
    host, port = server._transport.get_extra_info("sockname")[:2]
    print("up", f"{host}:{port}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


async def run_client(host, port, down, up, streams):
    configuration = QuicConfiguration(is_client=True, alpn_protocols=[ALPN], server_name=ALPN)
    configuration.verify_mode = ssl.CERT_NONE
    async with connect(host, port, configuration=configuration, create_protocol=Client) as client:
        for _ in range(streams):
            await client.ask(down, up, one_way=False)
        if down > 0:
            await client.ask(down, 0, one_way=True)
        print("received", client.received)


def self_signed():
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, ALPN)])
    now, hour = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(hours=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - hour)
        .not_valid_after(now + hour)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(ALPN)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def main():
    parser = argparse.ArgumentParser()
    ends = parser.add_subparsers(dest="end", required=True)
    server = ends.add_parser("server")
    server.add_argument("--listen", required=True)
    client = ends.add_parser("client")
    client.add_argument("--server", required=True)
    for option, usual in (("--down", 0), ("--up", 0), ("--streams", 1)):
        client.add_argument(option, type=int, default=usual)
    args = parser.parse_args()
    host, port = (args.listen if args.end == "server" else args.server).rsplit(":", 1)
    if args.end == "server":
        asyncio.run(run_server(host, int(port)))
    else:
        asyncio.run(run_client(host, int(port), args.down, args.up, args.streams))


main()
