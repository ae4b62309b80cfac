"""Prints how often every operation of the document was answered with what, and judges the counts.

Some operations are asked here. The streams of approvals and of a thread never end by themselves: the first frame is read and compared with
the document, and then it is left. A callback is opened by its own token, which only the tool knows. And where nothing can
be varied, schemathesis asks once and is content.
"""

import json
import os
import sys
import time
import uuid

import jsonschema_rs
import requests
import schemathesis

URL = os.environ["HOLDPOINT_URL"]
HEADERS = {"Authorization": f"Bearer {os.environ['HOLDPOINT_TOKEN']}"}
SUCCESSES_MIN = 20
METHODS = {"get", "post", "put", "patch", "delete"}


def new_grant():
    thread = requests.post(f"{URL}/v1/threads", headers=HEADERS, json={}, timeout=20).json()["id"]
    path = f"{URL}/v1/threads/{thread}/auto-approve"
    requests.post(path, headers=HEADERS, json={"enabled": True}, timeout=20).raise_for_status()
    grants = requests.get(f"{URL}/v1/grants?limit=1000", headers=HEADERS, timeout=20).json()["grants"]
    return next(grant["id"] for grant in grants if grant["thread_id"] == thread)


def asked_again(document, tally):
    """Operations that take nothing, or nothing that can be varied, until each has succeeded often enough."""
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=URL)
    for path, item in document["paths"].items():
        for method in METHODS & set(item):
            operation = item[method]["operationId"]
            switches = operation == "auto_approve"
            reloads = operation == "reload"
            revokes = operation == "revoke_grant"
            if not switches and not reloads and not revokes and ("{" in path or "requestBody" in item[method] or operation == "stream_approvals"):
                continue
            counts = tally.setdefault(operation, {})
            for turn in range(SUCCESSES_MIN):
                case = schema[path][method.upper()].Case()
                if switches:
                    thread = requests.post(f"{URL}/v1/threads", headers=HEADERS, json={}, timeout=20).json()
                    case.path_parameters = {"id": thread["id"]}
                    case.body, case.media_type = {"enabled": turn % 2 == 0}, "application/json"
                if revokes:
                    case.path_parameters = {"id": new_grant()}
                if reloads:
                    case.body, case.media_type = {}, "application/json"
                if operation == "revoke_grants_of":
                    case.query = {"by": "checks"}
                answer = case.call(headers=HEADERS)
                case.validate_response(answer, headers=HEADERS)
                status = str(answer.status_code)
                counts[status] = counts.get(status, 0) + 1


def stream_approvals(document, is_right):
    counts = {}
    for _ in range(SUCCESSES_MIN + 5):
        with requests.get(f"{URL}/v1/approvals/stream", headers=HEADERS, stream=True, timeout=20) as answer:
            counts[str(answer.status_code)] = counts.get(str(answer.status_code), 0) + 1
            kind = answer.headers["content-type"]
            if not kind.startswith("text/event-stream"):
                sys.exit(f"stream_approvals: {kind}")
            lines = answer.iter_lines(decode_unicode=True)
            frame = dict(line.split(": ", 1) for line in iter(lambda: next(lines), ""))
            if set(frame) != {"event", "data"} or frame["event"] != "approval":
                sys.exit(f"stream_approvals: {frame}")
            is_right.validate(json.loads(frame["data"]))
    return counts


def thread_events():
    """The first frame of the stream of a thread, which does not end either."""
    counts = {}
    for _ in range(SUCCESSES_MIN + 5):
        thread = requests.post(f"{URL}/v1/threads", headers=HEADERS, json={}, timeout=20).json()["id"]
        message = {"agent": "clerk", "text": "hello"}
        requests.post(f"{URL}/v1/threads/{thread}/messages", headers=HEADERS, json=message, timeout=20).raise_for_status()
        with requests.get(f"{URL}/v1/threads/{thread}/events", headers=HEADERS, stream=True, timeout=20) as answer:
            counts[str(answer.status_code)] = counts.get(str(answer.status_code), 0) + 1
            kind = answer.headers["content-type"]
            if not kind.startswith("text/event-stream"):
                sys.exit(f"thread_events: {kind}")
            lines = answer.iter_lines(decode_unicode=True)
            frame = dict(line.split(": ", 1) for line in iter(lambda: next(lines), ""))
            event = json.loads(frame["data"])
            if frame["event"] != "run.queued" or frame["id"] != f"{event['run_id']}:1" or event["thread_id"] != thread:
                sys.exit(f"thread_events: {frame}")
    return counts


def front_ends(tally):
    """Requests of the protocols of front ends that fit. Drawn bodies nearly never do: the document describes them as objects."""
    def chat():
        message = {"id": str(uuid.uuid4()), "role": "user", "parts": [{"type": "text", "text": "hello"}]}
        return {"id": str(uuid.uuid4()), "messages": [message], "trigger": "submit-message"}

    def agent_input():
        message = {"id": str(uuid.uuid4()), "role": "user", "content": "hello"}
        return {"threadId": str(uuid.uuid4()), "runId": str(uuid.uuid4()), "messages": [message], "tools": [], "context": []}

    asked = {
        "ai_sdk_chat": ("/v1/ai-sdk/clerk", chat),
        "ag_ui_run": ("/v1/ag-ui/clerk", agent_input),
        "copilotkit_run": ("/v1/copilotkit/agent/clerk/run", agent_input),
        "copilotkit_connect": ("/v1/copilotkit/agent/clerk/connect", agent_input),
        "copilotkit_single": ("/v1/copilotkit", lambda: {"method": "info"}),
    }
    for operation, (path, body) in asked.items():
        counts = tally.setdefault(operation, {})
        for _ in range(SUCCESSES_MIN):
            answer = requests.post(f"{URL}{path}", headers=HEADERS, json=body(), timeout=20)
            counts[str(answer.status_code)] = counts.get(str(answer.status_code), 0) + 1


def report(document, counts):
    """As the tool of a run that waits for it; the same once more is refused."""
    is_right = {
        status: jsonschema_rs.validator_for({"$ref": f"#/components/schemas/{name}", "components": document["components"]})
        for status, name in {200: "DecisionResult", 409: "ErrorBody"}.items()
    }
    for _ in range(SUCCESSES_MIN):
        thread = requests.post(f"{URL}/v1/threads", headers=HEADERS, json={}, timeout=20).json()
        message = {"agent": "clerk", "text": "later"}
        path = f"{URL}/v1/threads/{thread['id']}/messages"
        run = requests.post(path, headers=HEADERS, json=message, timeout=20).json()["run_id"]
        until = time.monotonic() + 20
        while requests.get(f"{URL}/v1/runs/{run}", headers=HEADERS, timeout=20).json()["status"] != "waiting_tool":
            if time.monotonic() > until:
                sys.exit(f"report: {run} does not wait for its tool")
        callback = requests.get(f"{os.environ['LATER_URL']}/{run}", timeout=20).json()
        for expected in (200, 409):
            tool = {"Authorization": f"Bearer {callback['token']}"}
            answer = requests.post(callback["url"], headers=tool, json={"result": run}, timeout=20)
            if answer.status_code != expected:
                sys.exit(f"report: {answer.status_code} {answer.text}, and not {expected}")
            is_right[expected].validate(answer.json())
            counts[str(expected)] = counts.get(str(expected), 0) + 1


def main():
    document = requests.get(f"{URL}/openapi.json", headers=HEADERS, timeout=20).json()
    schema = {"$ref": "#/components/schemas/Approval", "components": document["components"]}
    with open(os.environ["SCHEMATHESIS_TALLY"], encoding="utf-8") as file:
        tally = json.load(file)
    asked_again(document, tally)
    tally["stream_approvals"] = stream_approvals(document, jsonschema_rs.validator_for(schema))
    tally["thread_events"] = thread_events()
    front_ends(tally)
    report(document, tally.setdefault("report", {}))
    operations = [
        operation["operationId"]
        for item in document["paths"].values()
        for method, operation in item.items()
        if method in METHODS
    ]
    bad = []
    print(f"{'operation':<18} {'2xx':>6} {'4xx':>6} {'5xx':>6}")
    for operation in sorted(operations):
        counts = {int(status): count for status, count in tally.get(operation, {}).items()}
        good, refused, broken = (
            sum(count for status, count in counts.items() if status // 100 == hundred) for hundred in (2, 4, 5)
        )
        print(f"{operation:<18} {good:>6} {refused:>6} {broken:>6}")
        if good < SUCCESSES_MIN or broken > 0:
            bad.append(operation)
    if not operations or bad:
        sys.exit(f"schemathesis: fewer than {SUCCESSES_MIN} successes, or an error of the server: {', '.join(bad)}")


main()
