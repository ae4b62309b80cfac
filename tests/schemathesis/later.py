"""A tool that answers every call with 202, and says with what it may report: `GET /RUN_ID` gives the callback of a run."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

callbacks = {}


class Desk(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        call = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        callbacks[call["run_id"]] = call["callback"]
        self.answer(202, b"")

    def do_GET(self):
        self.answer(200, json.dumps(callbacks[self.path.strip("/")]).encode())

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


service = ThreadingHTTPServer(("127.0.0.1", 0), Desk)
print(f"http://127.0.0.1:{service.server_port}", flush=True)
sys.stdout.close()
service.serve_forever()
