"""Counts the instructions per request of the benchmark server, with callgrind.

usage: instructions.py [--axum] BINARY [BINARY...]

Every binary is a release build of `onceward-bench`; with several, each is compared with the first. The server uses actix-web, or axum with
`--axum`. Unlike CPU time, the count hardly depends on other load on the machine. Requests are sent one after another over a few connections,
so each command to Redis is its own batch, which costs more than under load.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# The path and the expected status of each case.
CASES = {
    "bare": ("/orders", 201),
    "token, memory": ("/orders", 201),
    "token, Redis": ("/orders", 201),
    "forged, Redis": ("/orders", 403),
    "issue, Redis": ("/token", 201),
    "key, retryable, memory": ("/keyed", 201),
    "key, retryable, Redis": ("/keyed", 201),
    "key, at most once, Redis": ("/keyed-at-most-once", 201),
    "replay, Redis": ("/keyed", 201),
    "remembered, Redis": ("/remembered", 201),
    "interval, Redis": ("/spaced", 201),
}
WARM_UP, REQUESTS = 300, 1500
# An order, and a valid body for `POST /token`: the body of the other benchmarks.
BODY = b'{"action":"POST /shops/north/customers/4711/baskets/0815/orders/express/insured","ttl":"20m"}'
KEY_LENGTH = 36


class Connection:
    def __init__(self, address):
        host, port = address.removeprefix("http://").split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.rest = b""

    def send(self, path, expected, token, key):
        head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nAccept: application/json\r\nIdempotency-Key: {key}\r\nOnceward-Token: {token}\r\n"
        self.socket.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(BODY)}\r\n\r\n".encode() + BODY)
        while b"\r\n\r\n" not in self.rest:
            self.rest += self.socket.recv(65536)
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])
        while len(self.rest) < length:
            self.rest += self.socket.recv(65536)
        self.rest = self.rest[length:]
        status = int(head.split(b" ", 2)[1])
        assert status == expected, head


def instructions(binary, case, redis, framework):
    """Starts the server of one case under callgrind, and returns its instructions per request."""
    with tempfile.TemporaryDirectory() as folder:
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out.%p", "--log-file=/dev/null"]
        command = [*valgrind, binary, "serve", case, redis, folder, str(WARM_UP + REQUESTS), *framework]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            address = server.stdout.readline().strip()
            tokens = Path(folder, "0").read_text().split()
            few = tokens[:WARM_UP]
            connections = [Connection(address) for _ in range(4)]

            def send(chosen):
                for at, token in enumerate(chosen):
                    connections[at % len(connections)].send(*CASES[case], token, token[:KEY_LENGTH])

            send(few)
            is_replay = case.startswith("replay")
            subprocess.run(["callgrind_control", "-z", str(server.pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            send(few * (REQUESTS // WARM_UP) if is_replay else tokens[WARM_UP:])
            subprocess.run(["callgrind_control", "-d", str(server.pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            dumps = sorted(Path(folder).glob("out.*"), key=os.path.getmtime)
            totals = [re.search(r"(?m)^(?:totals|summary): (\d+)", dump.read_text()) for dump in dumps]
            return max(int(total[1]) for total in totals if total) / REQUESTS
        finally:
            server.kill()
            server.wait()


def main():
    framework = ["axum"] if "--axum" in sys.argv else []
    binaries = [argument for argument in sys.argv[1:] if argument != "--axum"]
    if not binaries:
        sys.exit(__doc__)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        redis = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            print("instructions per request")
            for case in CASES:
                counts = [instructions(binary, case, f"redis://127.0.0.1:{port}", framework) for binary in binaries]
                shown = [f"{count:>10,.0f}" for count in counts]
                compared = [f"{(count / counts[0] - 1) * 100:+.1f} %" for count in counts[1:]]
                print(f"{case:<24}", *shown, *compared, flush=True)
        finally:
            redis.terminate()
            redis.wait()


if __name__ == "__main__":
    main()
