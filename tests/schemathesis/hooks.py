"""Gives requests the names of things that exist, and counts the answers of every operation.

Of four requests three get the name of something that can be asked for in this way; the fourth stays as it was drawn.
"""

import atexit
import json
import os
import threading
import time
import uuid
from collections import Counter, defaultdict

import requests
import schemathesis
from schemathesis.generation.meta import TestPhase

URL = os.environ["HOLDPOINT_URL"]
WAIT_SECONDS = 20
# Beyond this number of successes of one operation what exists already is asked for again.
ENOUGH = 40

session = requests.Session()
session.headers["Authorization"] = f"Bearer {os.environ['HOLDPOINT_TOKEN']}"
lock = threading.RLock()
tally = defaultdict(Counter)
turns = Counter()


def ask(method, path, body=None):
    answer = session.request(method, URL + path, json=body, timeout=WAIT_SECONDS)
    assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
    return answer.json() if answer.content else None


def new_thread():
    return ask("POST", "/v1/threads", {})["id"]


def new_run(text, status):
    """A run of which something is held, or which has ended; looked at until it is so."""
    posted = ask("POST", f"/v1/threads/{new_thread()}/messages", {"agent": "clerk", "text": text})
    until = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < until:
        run = ask("GET", f"/v1/runs/{posted['run_id']}")
        if run["status"] == status:
            return run
    raise AssertionError(f"a run that receives {text!r} never is {status}")


def held(text="hold"):
    return new_run(text, "waiting_approval")


def approval(run):
    return run["pending"][0]["approval_id"]


def decided_run():
    run = held()
    return run["id"], {"decisions": [{"call_id": run["pending"][0]["call_id"], "action": "resume"}]}


def new_grant():
    thread = new_thread()
    ask("POST", f"/v1/threads/{thread}/auto-approve", {"enabled": True})
    grants = ask("GET", "/v1/grants?limit=1000")["grants"]
    return next(grant["id"] for grant in grants if grant["thread_id"] == thread)


def chat(text="hello"):
    """A body of the AI SDK for a chat that does not exist yet."""
    message = {"id": str(uuid.uuid4()), "role": "user", "parts": [{"type": "text", "text": text}]}
    return {"id": str(uuid.uuid4()), "messages": [message], "trigger": "submit-message"}


def agent_input():
    """A body of AG-UI for a thread that does not exist yet."""
    message = {"id": str(uuid.uuid4()), "role": "user", "content": "hello"}
    return {"threadId": str(uuid.uuid4()), "runId": str(uuid.uuid4()), "messages": [message], "tools": [], "context": []}


def chat_path():
    return {"agent": "clerk", "chat_id": held()["thread_id"]}


# By the name of the operation: what its path can name (None if it names nothing), created again where a request uses it up,
# and a body that fits.
FRESH = {
    "create_token": lambda: (None, {"ttl": "15m"}),
    "ai_sdk_chat": lambda: ("clerk", chat()),
    "ai_sdk_messages": lambda: (chat_path(), None),
    "ai_sdk_resume": lambda: (chat_path(), None),
    "ai_sdk_stop": lambda: (chat_path(), {}),
    "ag_ui_run": lambda: ("clerk", agent_input()),
    "copilotkit_run": lambda: ("clerk", agent_input()),
    "copilotkit_connect": lambda: ("clerk", agent_input()),
    "copilotkit_stop": lambda: ({"agent": "clerk", "thread_id": held()["thread_id"]}, {}),
    "copilotkit_single": lambda: (None, {"method": "info"}),
    "approve": lambda: (approval(held()), {"note": "fine"}),
    "reject": lambda: (approval(held()), {"reason": "no", "then": "continue"}),
    "answer": lambda: (approval(held("ask")), {"result": "blue"}),
    "decide": decided_run,
    "interrupt_run": lambda: (held()["id"], {}),
    "delete_thread": lambda: (new_thread(), None),
    "post_message": lambda: (new_thread(), {"agent": "clerk", "text": "hello"}),
    "auto_approve": lambda: (new_thread(), None),
    "revoke_grant": lambda: (new_grant(), None),
}
LASTING = {
    "show_agent": lambda: ["clerk"],
    "show_thread": lambda: [run["thread_id"] for run in runs()],
    "list_messages": lambda: [run["thread_id"] for run in runs()],
    "show_approval": lambda: [approval(run) for run in runs() if run["pending"] and run["pending"][0].get("approval_id")],
}
RUN_READERS = ["show_run", "list_calls", "run_events", "show_state", "show_transcript"]
kept_runs = []


def runs():
    """One of each kind, kept while everything else continues; replaced where a request has deleted its thread."""
    with lock:
        if any(session.get(f"{URL}/v1/runs/{run['id']}", timeout=WAIT_SECONDS).status_code != 200 for run in kept_runs):
            kept_runs.clear()
        if not kept_runs:
            decided = held()
            ask("POST", f"/v1/approvals/{approval(decided)}/approve", {})
            others = [held("ask"), new_run("pick", "waiting_tool"), new_run("hello", "completed")]
            kept_runs.extend([held(), *others, decided])
        return kept_runs


def operation_of(case):
    return case.operation.definition.raw["operationId"]


def successes(operation):
    return sum(count for status, count in tally[operation].items() if status < 300)


def existing(operation, turn):
    """What the path can name, and a body for it where one is needed to succeed."""
    if operation in FRESH and successes(operation) < ENOUGH:
        return FRESH[operation]()
    if operation in LASTING:
        names = LASTING[operation]()
        return names[turn % len(names)], None
    if operation in RUN_READERS:
        names = [run["id"] for run in runs()]
        return names[turn % len(names)], None
    return None, None


def is_as_described(case, location):
    """Whether this part of the request was drawn to fit the document."""
    for place, component in case.meta.components.items():
        if place.value == location:
            return component.mode.is_positive
    return True


@schemathesis.hook
def filter_query(context, query):
    """The name of a key has no control characters and is short, which the document does not say of `by`."""
    by = (query or {}).get("by")
    return not isinstance(by, str) or (by.isprintable() and 0 < len(by) <= 64)


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta is None or case.method.lower() != case.operation.method.lower():
        return
    # There what one answer names is asked for next, and nothing else.
    if case.meta.phase.name == TestPhase.STATEFUL:
        return
    operation = operation_of(case)
    name, body = None, None
    with lock:
        turn = turns[operation]
        turns[operation] += 1
        if turn % 4 != 3 and (not case.path_parameters or is_as_described(case, "path")):
            name, body = existing(operation, turn)
    if isinstance(name, dict):
        case.path_parameters = name
    elif name is not None and case.path_parameters:
        case.path_parameters = {key: name for key in case.path_parameters}
    # The body stays as it was drawn in every third request, and wherever it was drawn to be wrong.
    if body is not None and turn % 3 != 2 and case.meta.generation.mode.is_positive:
        case.body, case.media_type = body, "application/json"
    if turn % 2 == 0 and case.query and "cursor" in case.query and is_as_described(case, "query"):
        case.query = {key: value for key, value in case.query.items() if key != "cursor"}


@schemathesis.hook
def after_call(context, case, response):
    with lock:
        tally[operation_of(case)][response.status_code] += 1


@atexit.register
def write_tally():
    with open(os.environ["SCHEMATHESIS_TALLY"], "w", encoding="utf-8") as file:
        json.dump({operation: dict(counts) for operation, counts in tally.items()}, file)
