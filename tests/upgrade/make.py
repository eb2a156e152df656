#!/usr/bin/env python3
"""Writes a data folder with a thalweg binary, and what must be read back from it, as one readable file.

  tests/upgrade/make.py BINARY > tests/upgrade/format-N.txt

Run it with the release that is about to become the previous one. `crates/thalweg/tests/upgrade.rs` unpacks every such file, serves it
with the present binary and asks again.
"""
import http.client, os, shutil, subprocess, sys, tempfile, time

BINARY = sys.argv[1]
FLAGS = ["--journal-segment-bytes", "64KiB", "--journal-bound-bytes", "512KiB", "--reserve-bytes", "0", "--window-bytes", "64KiB"]
KEPT = ["content-type", "etag", "stream-next-offset", "stream-closed", "stream-up-to-date", "stream-ttl", "stream-expires-at",
        "producer-epoch", "producer-seq", "producer-expected-seq", "producer-received-seq"]
ROW = 64


class Server:
    def __init__(self, data, settle):
        ready = data + ".ready"
        if os.path.exists(ready):
            os.remove(ready)
        self.process = subprocess.Popen(
            [BINARY, "serve", "--listen", "127.0.0.1:0", "--data", data, "--ready-file", ready, "--settle-after", settle] + FLAGS,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            if os.path.exists(ready) and open(ready).read().strip():
                break
            time.sleep(0.05)
        self.address = open(ready).read().strip()

    def ask(self, method, path, headers=(), body=b""):
        connection = http.client.HTTPConnection(self.address)
        connection.request(method, path, body=body or None, headers=dict(headers))
        answer = connection.getresponse()
        body = answer.read()
        headers = {k.lower(): v for k, v in answer.getheaders()}
        connection.close()
        return answer.status, headers, body

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait()


def must(got, *wanted):
    assert got[0] in wanted, got
    return got


def make(data):
    s = "/v1/stream/"
    text, octets, json = (("content-type", t) for t in ("text/plain", "application/octet-stream", "application/json"))
    producer = lambda seq, epoch=0: [text, ("producer-id", "p"), ("producer-epoch", str(epoch)), ("producer-seq", str(seq))]
    server = Server(data, "100ms")
    for name, kind in (("text", text), ("octets", octets), ("json", json), ("closed", text), ("producers", text), ("source", text),
                       ("gone", text), ("deleted", text)):
        must(server.ask("PUT", s + name, [kind]), 201)
    must(server.ask("PUT", s + "empty", [text]), 201)
    must(server.ask("PUT", s + "ttl", [text, ("stream-ttl", "9000000000")], b"long"), 201)
    must(server.ask("PUT", s + "dated", [json, ("stream-expires-at", "2999-01-01T00:00:00Z")], b'[{"far":true}]'), 201)
    must(server.ask("POST", s + "text", [text], "süß, ".encode()), 200, 204)
    must(server.ask("POST", s + "octets", [octets], bytes(range(256))), 200, 204)
    must(server.ask("POST", s + "json", [json], b'[{"n":1},[2],"three",4]'), 200, 204)
    must(server.ask("POST", s + "closed", [text, ("stream-closed", "true")], b"the end"), 200, 204)
    for seq in range(3):
        must(server.ask("POST", s + "producers", producer(seq), b"p%d " % seq), 200, 204)
    for n in range(5):
        must(server.ask("POST", s + "source", [text, ("stream-seq", "%03d" % n)], b"source %d, " % n), 200, 204)
    must(server.ask("POST", s + "gone", [text], b"kept by its fork, "), 200, 204)
    must(server.ask("POST", s + "deleted", [text], b"must not come back"), 200, 204)
    must(server.ask("PUT", s + "fork", [text, ("stream-forked-from", s + "source")]), 201)
    must(server.ask("PUT", s + "heir", [text, ("stream-forked-from", s + "gone")]), 201)
    must(server.ask("POST", s + "heir", [text], b"and on"), 200, 204)
    must(server.ask("DELETE", s + "gone"), 204)
    must(server.ask("DELETE", s + "deleted"), 204)
    time.sleep(1.5)
    server.stop()
    # A second run: later appends stay in the journal.
    server = Server(data, "1h")
    must(server.ask("POST", s + "text", [text], b"unsettled"), 200, 204)
    must(server.ask("POST", s + "json", [json], b'{"late":[1.50,"\\u00e9"]}'), 200, 204)
    must(server.ask("POST", s + "producers", producer(3), b"p3 "), 200, 204)
    must(server.ask("POST", s + "producers", producer(0, 1), b"epoch 1 "), 200, 204)
    must(server.ask("POST", s + "fork", [text], b"of its own"), 200, 204)
    must(server.ask("POST", s + "source", [text], b"not for the fork"), 200, 204)
    must(server.ask("PUT", s + "late", [text], b"only in the journal"), 201)
    server.kill()


def questions():
    s = "/v1/stream/"
    names = ["text", "octets", "json", "closed", "producers", "source", "gone", "deleted", "empty", "ttl", "dated", "fork", "heir", "late"]
    for name in names:
        yield "GET", s + name + "?offset=-1", [], b""
        yield "HEAD", s + name, [], b""
        yield "GET", s + name + "?offset=now", [], b""
    for seq, epoch in ((3, 0), (0, 1), (5, 1)):
        yield ("POST", s + "producers", [("content-type", "text/plain"), ("producer-id", "p"), ("producer-epoch", str(epoch)),
                                         ("producer-seq", str(seq))], b"again")
    yield "POST", s + "source", [("content-type", "text/plain"), ("stream-seq", "003")], b"regression"
    yield "POST", s + "closed", [("content-type", "text/plain")], b"too late"
    yield "POST", s + "text", [("content-type", "text/plain")], b", and new"
    yield "GET", s + "text?offset=-1", [], b""


def main():
    work = tempfile.mkdtemp(prefix="thalweg-make-")
    try:
        data = work + "/data"
        make(data)
        version = subprocess.run([BINARY, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        print(f"# A data folder written by {version}, and answers that it must give. Made by tests/upgrade/make.py.")
        print("# `file PATH BYTES`, then rows `at OFFSET HEX`; what no row says is zero.")
        print("# `ask METHOD PATH`, with `send NAME: VALUE` and `with HEX`; then `status`, `header NAME: VALUE` and `body HEX` of the answer.")
        for folder, _, files in sorted(os.walk(data)):
            for name in sorted(files):
                path = os.path.join(folder, name)
                content = open(path, "rb").read()
                short = os.path.relpath(path, data)
                if short == "RUN":  # It names the machine's boot.
                    content = b"durable 00000000-0000-0000-0000-000000000000\n"
                if short in ("LOCK", "reserve", "LINEAGE", "subscriptions.keys"):
                    continue
                print("file", short, len(content))
                for at in range(0, len(content), ROW):
                    row = content[at:at + ROW].rstrip(b"\0")
                    if row:
                        print("at", at, row.hex())
        # Asked after a restart: recovery must give the earlier content.
        copy = work + "/copy"
        shutil.copytree(data, copy)
        server = Server(copy, "1h")
        for method, path, headers, body in questions():
            status, answered, content = server.ask(method, path, headers, body)
            print("ask", method, path)
            for name, value in headers:
                print(f"send {name}: {value}")
            if body:
                print("with", body.hex())
            print("status", status)
            for name in KEPT:
                if name in answered:
                    print(f"header {name}: {answered[name]}")
            if method == "GET":
                print("body", content.hex())
        server.stop()
    finally:
        shutil.rmtree(work)


main()
