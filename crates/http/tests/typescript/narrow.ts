// Compiled, never run: the compiler must know from `type` alone which event it has. `check` fills in the generated types.
import type { components, operations } from "./api";

type Schemas = components["schemas"];
type RunEvents = operations["run_events"]["responses"][200]["content"];
type Listed = RunEvents["application/json"]["events"][number];
type Streamed = RunEvents["text/event-stream"][number];
type OfThread = operations["thread_events"]["responses"][200]["content"]["text/event-stream"][number];

// The list and both streams have the same item.
type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? true : false) : false;
export const listedIsEvent: Same<Listed, Schemas["Event"]> = true;
export const streamedIsEvent: Same<Streamed, Schemas["Event"]> = true;
export const ofThreadIsEvent: Same<OfThread, Schemas["Event"]> = true;

function never(event: never): never {
  throw new Error(`no case for ${JSON.stringify(event)}`);
}

/** A case for every type of event. One that is missing does not compile, and neither does one that does not exist. */
export function describe(event: Listed): string {
  switch (event.type) {
    case "run.queued":
    case "run.started":
    case "run.waiting":
    case "run.resumed":
    case "run.interrupting":
      return [event.payload.status, event.payload.by ?? "", ...waitsFor(event.payload.pending ?? [])].join(" ");
    case "run.ending":
      return event.payload.termination.reason;
    case "run.completed":
    case "run.failed":
    case "run.interrupted":
      return `${event.payload.usage.input_tokens} ${event.payload.error?.message ?? ""}`;
    case "run.recovered":
      return event.payload.lost.map((lost) => `${lost.call_id} ${lost.attempt}`).join();
    case "step.started":
    case "step.ended":
      return `${event.payload.step} ${event.payload.message_id}`;
    case "message.added":
      return `${event.payload.message.by ?? ""} ${event.payload.message.role satisfies string}`;
    case "model.retrying":
      return `${event.payload.attempt} ${event.payload.error} ${event.payload.at}`;
    case "phase.answered":
      return `${event.payload.phase satisfies string} ${event.payload.plugin} ${event.payload.actions.length}`;
    case "state.changed":
      return event.payload.patch.map((patch) => `${patch.op} ${patch.path}`).join();
    case "tool.requested":
      return `${event.payload.tool} ${event.payload.turn_id}`;
    case "tool.approval_requested":
      return `${event.payload.tool} ${event.payload.approval_id} ${event.payload.expires_at ?? ""}`;
    case "tool.approval_voided":
      return `${event.payload.tool} ${event.payload.approval_id} ${event.payload.reason}`;
    case "tool.approved":
    case "tool.denied":
      return `${event.payload.tool} ${event.payload.approval_id} ${event.payload.by} ${event.payload.reason}`;
    case "tool.suspended": {
      const { tool, suspension_id, kind, resume_mode, child_run_id } = event.payload;
      return [tool, suspension_id, kind satisfies string, resume_mode satisfies string, child_run_id ?? ""].join();
    }
    case "tool.resumed":
      return `${event.payload.tool} ${event.payload.suspension_id} ${event.payload.by}`;
    case "tool.execution_started":
      return `${event.payload.tool} ${event.payload.attempt}`;
    case "tool.execution_succeeded":
      return `${event.payload.tool} ${event.payload.warning ?? ""}`;
    case "tool.execution_failed":
      return `${event.payload.tool} ${event.payload.error.code} ${event.payload.error.message}`;
    case "tool.cancelled":
      return `${event.payload.tool} ${event.payload.reason} ${event.payload.outcome_unknown ?? false}`;
    case "child.started":
    case "child.ended":
      return event.payload.run_id;
    case "event.unreadable":
      return `${event.seq} ${event.unreadable satisfies true} ${event.ts satisfies null}`;
    case "text.delta":
    case "reasoning.delta":
    case "tool.arguments_delta":
      return `${event.ts} ${event.step ?? 0} ${event.payload.offset} ${event.payload.text}`;
    case "step.reset":
      return `${event.payload.message_id} ${event.payload.attempt}`;
    case "tool.log":
      return `${event.payload.call_id} ${event.payload.tool} ${event.payload.text}`;
    case "tool.progress":
      return `${event.payload.call_id} ${JSON.stringify(event.payload.progress)}`;
    default:
      return never(event);
  }
}

function waitsFor(pending: Schemas["Pending"][]): string[] {
  return pending.map((held) => `${held.tool} ${held.suspension_id} ${held.approval_id ?? ""}`);
}

export function misuse(event: Listed): void {
  if (event.type === "text.delta") {
    // @ts-expect-error: a live frame has no seq
    event.seq;
    // @ts-expect-error: this field is of another event
    event.payload.suspension_id;
  }
  // @ts-expect-error: there is no such type
  if (event.type === "tool.exploded") return;
  // @ts-expect-error: before `type` is known, no payload has this field for certain
  event.payload.tool;
}
