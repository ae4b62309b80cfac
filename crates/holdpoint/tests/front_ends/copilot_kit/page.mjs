// One user in front of one page: CopilotKit's core, used as its React hooks use it.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

import { CopilotKitCore, ɵInterruptState as InterruptState } from '@copilotkit/core';

// Outside a browser the core does not connect.
globalThis.window ??= globalThis;

let count = 0;

export class Page {
  /** Waits until the page knows the agents. A page that is `loaded` shows what the thread has. */
  static async open(site, { threadId, tools = [] } = {}) {
    const page = new Page(site, threadId, tools);
    await page.connected;
    page.attach();
    return page;
  }

  static async loaded(site, threadId, options) {
    const page = await Page.open(site, { ...options, threadId });
    await page.connect();
    return page;
  }

  constructor(site, threadId = `${site.topology}-${process.pid}-${count += 1}`, tools) {
    this.site = site;
    this.threadId = threadId;
    this.errors = [];
    this.runs = [];
    this.interrupts = new InterruptState();
    this.interruptedRunIds = new Map();
    this.core = new CopilotKitCore({
      runtimeUrl: site.runtimeUrl,
      ...(site.transport === undefined ? {} : { runtimeTransport: site.transport }),
      headers: site.headers,
    });
    for (const tool of tools) this.core.addTool(tool);
    this.connected = new Promise((resolve, reject) => {
      this.core.subscribe({
        onError: ({ code, error }) => { this.errors.push(`${code}: ${error.message}`); },
        onRuntimeConnectionStatusChanged: ({ status }) => {
          if (status === 'connected') resolve();
          if (status === 'error') reject(new Error(`no connection: ${this.errors}`));
        },
      });
    });
  }

  /** What the hook `useInterrupt` does with the events of a run. */
  attach() {
    this.agent = this.core.getAgent('assistant');
    this.agent.threadId = this.threadId;
    let asked = [];
    this.agent.subscribe({
      onRunInitialized: ({ input }) => {
        this.runs.push({ runId: input.runId, types: [], outcome: undefined, error: undefined });
      },
      onEvent: ({ event }) => { this.runs.at(-1).types.push(event.type); },
      onRunStartedEvent: () => {
        asked = [];
        this.interruptedRunIds.clear();
        this.interrupts.clear();
      },
      onRunFinishedEvent: ({ outcome, interrupts, input }) => {
        this.runs.at(-1).outcome = outcome;
        asked = outcome === 'interrupt' ? interrupts : [];
        for (const { id } of asked) this.interruptedRunIds.set(id, input.runId);
      },
      onRunErrorEvent: ({ event }) => { this.runs.at(-1).error = event; },
      onRunFinalized: () => { if (asked.length > 0) this.interrupts.setStandard(asked); },
    });
  }

  get last() { return this.runs.at(-1); }
  get text() {
    return this.agent.messages.filter(({ role }) => role === 'assistant').map(({ content }) => content ?? '').join('|');
  }
  get results() {
    return this.agent.messages.filter(({ role }) => role === 'tool').map(({ toolCallId, content }) => [toolCallId, content]);
  }
  /** The interrupts that the page shows. */
  get held() { return this.interrupts.pending?.interrupts ?? []; }

  /** What `CopilotChat` does when it is shown with a thread. */
  connect() { return this.core.connectAgent({ agent: this.agent }); }

  say(text) {
    this.agent.addMessage({ id: randomUUID(), role: 'user', content: text });
    return this.core.runAgent({ agent: this.agent });
  }

  answer(payload, id) { return this.act(this.interrupts.resolve(payload, id)); }
  cancel(id) { return this.act(this.interrupts.cancel(id)); }

  /** Runs the agent once all interrupts are answered, under the id of the run that was interrupted. */
  async act(decision) {
    if (decision.kind !== 'resume') return decision.kind;
    const runId = decision.resume.map(({ interruptId }) => this.interruptedRunIds.get(interruptId)).find(Boolean);
    for (const { toolCallId, content } of decision.toolResults) {
      this.agent.addMessage({ id: randomUUID(), role: 'tool', toolCallId, content });
    }
    await this.core.runAgent({ agent: this.agent, resume: decision.resume, runId });
    return decision.kind;
  }

  stop() { this.core.stopAgent({ agent: this.agent }); }

  rest(method, path, body) { return rest(this.site, method, path, body); }

  async storedRuns() { return (await this.rest('GET', `/v1/runs?thread_id=${this.threadId}`)).runs; }

  /** Waits until the newest run has this status. */
  async until(status) {
    for (;;) {
      const [run] = await this.storedRuns();
      if (run?.status === status) return run;
    }
  }

  /** The newest protocol run succeeded. */
  succeeded() {
    assert.deepEqual(this.errors, []);
    assert.equal(this.last.outcome, 'success', JSON.stringify(this.last));
    assert.equal(this.last.types.at(-1), 'RUN_FINISHED');
  }

  /**
   * The page shows exactly the messages of the thread. `ownCalls`: the page itself made the results of these calls. Results
   * that follow each other are in the order in which they came, and in the thread in the order of the calls.
   */
  async showsWhatIsStored(ownCalls = []) {
    const { messages } = await this.rest('GET', `/v1/threads/${this.threadId}/messages`);
    const idOf = (id, call) => (ownCalls.includes(call) ? 'own' : id);
    const stored = messages.map((message) => ({
      id: idOf(message.id, message.call_id),
      role: message.role,
      text: message.content,
      calls: (message.tool_calls ?? []).map(({ call_id, tool, arguments: given }) => [call_id, tool, given]),
      answers: message.call_id,
    }));
    const shown = this.agent.messages.map((message) => ({
      id: idOf(message.id, message.toolCallId),
      role: message.role,
      text: message.content ?? '',
      calls: (message.toolCalls ?? []).map(({ id, function: { name, arguments: given } }) => [id, name, JSON.parse(given)]),
      answers: message.toolCallId,
    }));
    assert.deepEqual(inOrderOfCalls(shown), stored);
  }
}

function inOrderOfCalls(messages) {
  const calls = messages.flatMap((message) => message.calls.map(([id]) => id));
  const ordered = [];
  for (const message of messages) {
    let at = ordered.length;
    while (message.answers && ordered[at - 1]?.answers && calls.indexOf(ordered[at - 1].answers) > calls.indexOf(message.answers)) at -= 1;
    ordered.splice(at, 0, message);
  }
  return ordered;
}

export async function rest({ url, key }, method, path, body) {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const response = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) });
  assert.ok(response.ok, `${method} ${path}: ${response.status} ${await response.clone().text()}`);
  return response.json();
}

/** A tool as the hook `useHumanInTheLoop` registers it: its handler waits until the user responds. */
export function humanInTheLoop(name) {
  let asked;
  let responds;
  const restart = () => { asked = new Promise((resolve) => { responds = resolve; }); };
  restart();
  return {
    name,
    description: 'Asks the user',
    type: 'human-in-the-loop',
    handler: (given) => new Promise((resolve) => { responds({ given, respond: resolve }); restart(); }),
    /** The next question to the user. */
    get asked() { return asked; },
  };
}
