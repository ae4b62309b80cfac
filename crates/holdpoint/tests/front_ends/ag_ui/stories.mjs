// The stories of one release of the AG-UI client against a running server.
//
//   node stories.mjs RELEASE URL KEY

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

const [name, url, key] = process.argv.slice(2);
const { HttpAgent } = await import(name);
const isNew = name.endsWith('-1');
let count = 0;

/** One user in front of one page. */
class Page {
  constructor(threadId = `${name}-${process.pid}-${count += 1}`, messages = [], token = key) {
    this.threadId = threadId;
    this.agent = new HttpAgent({
      url: `${url}/v1/ag-ui/assistant`, threadId, initialMessages: messages, headers: { authorization: `Bearer ${token}` },
    });
    this.runs = [];
  }

  get messages() { return this.agent.messages; }
  get text() { return this.messages.filter((message) => message.role === 'assistant').map((message) => message.content ?? '').join('|'); }
  get results() { return this.messages.filter((message) => message.role === 'tool').map((message) => [message.toolCallId, message.content]); }

  say(text, options) {
    this.agent.addMessage({ id: randomUUID(), role: 'user', content: text });
    return this.run(options);
  }

  /** Runs the agent. The result has the outcome, or the error of a run that failed. */
  async run(options = {}) {
    const seen = { types: [], events: [], outcome: undefined, error: undefined, runId: options.runId ?? randomUUID() };
    await this.agent.runAgent({ ...options, runId: seen.runId }, {
      onEvent({ event }) {
        seen.types.push(event.type);
        seen.events.push(event);
      },
      onRunFinishedEvent({ event }) { seen.outcome = event.outcome; },
      onRunErrorEvent({ event }) { seen.error = event; },
    });
    this.runs.push(seen);
    assert.ok(['RUN_FINISHED', 'RUN_ERROR'].includes(seen.types.at(-1)), `${seen.types}`);
    return seen;
  }

  async pendingApprovals() { return (await this.rest('GET', `/v1/approvals?thread_id=${this.threadId}`)).approvals; }

  answer(interrupts, payload) {
    return this.run({ resume: interrupts.map(({ id }) => ({ interruptId: id, status: 'resolved', payload })) });
  }

  async rest(method, path, body) {
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    const response = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) });
    assert.ok(response.ok, `${method} ${path}: ${response.status} ${await response.clone().text()}`);
    return response.json();
  }
}

const held = (seen) => {
  assert.equal(seen.outcome?.type, 'interrupt', JSON.stringify(seen));
  return seen.outcome.interrupts;
};
const succeeded = (seen) => {
  assert.equal(seen.error, undefined, JSON.stringify(seen.error));
  assert.ok(seen.outcome === undefined || seen.outcome.type === 'success', JSON.stringify(seen.outcome));
};

const stories = {
  async 'a message is answered as a stream'() {
    const page = new Page();
    succeeded(await page.say('plain'));
    assert.equal(page.text, 'Hello there, this is streamed.');
    succeeded(await page.say('long'));
    assert.ok(page.runs[1].types.filter((type) => type === 'TEXT_MESSAGE_CONTENT').length > 1, 'in pieces');
    assert.equal(page.messages.length, 4);
  },

  async 'a tool runs and its result is shown'() {
    const page = new Page();
    succeeded(await page.say('add'));
    assert.deepEqual(page.results, [['sum', '5']]);
    assert.ok(page.text.endsWith('Added.'));
  },

  async 'an approved call runs once'() {
    const page = new Page();
    const interrupts = held(await page.say('write'));
    assert.equal(interrupts.length, 1);
    assert.equal(interrupts[0].toolCallId, 'write');
    succeeded(await page.answer(interrupts, { approved: true }));
    assert.ok(page.text.endsWith('Done.'), page.text);
    assert.equal(page.results.length, 1);
    assert.equal(page.messages.filter((message) => message.toolCalls?.length).length, 1);
    const { runs } = await page.rest('GET', `/v1/runs?thread_id=${page.threadId}`);
    assert.deepEqual([runs.length, runs[0].status], [1, 'completed']);
  },

  async 'an approver edits the arguments'() {
    const page = new Page();
    const interrupts = held(await page.say('write'));
    succeeded(await page.answer(interrupts, { approved: true, editedArgs: { path: 'edited.txt', text: 'other' } }));
    const approval = await page.rest('GET', `/v1/approvals/${interrupts[0].id}`);
    assert.deepEqual([approval.status, approval.arguments.path], ['approved', 'edited.txt']);
  },

  async 'a denied call never runs'() {
    const page = new Page();
    const interrupts = held(await page.say('write'));
    succeeded(await page.answer(interrupts, { approved: false, reason: 'not today' }));
    assert.match(page.results[0][1], /^Denied by page/);
    assert.equal((await page.rest('GET', `/v1/approvals/${interrupts[0].id}`)).status, 'rejected');
  },

  async 'an abandoned call is denied'() {
    const page = new Page();
    const interrupts = held(await page.say('write'));
    succeeded(await page.run({ resume: [{ interruptId: interrupts[0].id, status: 'cancelled' }] }));
    assert.equal((await page.rest('GET', `/v1/approvals/${interrupts[0].id}`)).status, 'rejected');
  },

  async 'two approvals are answered together'() {
    const page = new Page();
    const interrupts = held(await page.say('both'));
    assert.equal(interrupts.length, 2);
    succeeded(await page.answer(interrupts, { approved: true }));
    assert.equal(page.results.length, 2);
    assert.ok(page.text.endsWith('Done.'));
  },

  async 'a part is answered over REST, and the stream asks for the rest'() {
    const page = new Page();
    const interrupts = held(await page.say('both'));
    await page.rest('POST', `/v1/approvals/${interrupts[0].id}/approve`, {});
    const tab = new Page(page.threadId, page.messages);
    const rest = held(await tab.run());
    assert.deepEqual(rest.map(({ id }) => id), [interrupts[1].id]);
    succeeded(await tab.answer(rest, { approved: true }));
    assert.equal(tab.results.length, 2);
    assert.ok(tab.text.endsWith('Done.'));
  },

  async 'a call is held again in a later step'() {
    const page = new Page();
    const first = held(await page.say('again'));
    const second = held(await page.answer(first, { approved: true }));
    assert.notEqual(first[0].id, second[0].id);
    succeeded(await page.answer(second, { approved: true }));
    assert.equal(page.results.length, 2);
  },

  async 'nothing but a literal yes approves'() {
    const page = new Page();
    const interrupts = held(await page.say('write'));
    const misspelt = { approved: true, edited_args: { path: 'other.txt' } };
    for (const payload of [{ approved: 'true' }, { approved: 1 }, {}, null, true, 'yes', misspelt]) {
      await assert.rejects(page.answer(interrupts, payload), /400|BAD_REQUEST/, JSON.stringify(payload));
    }
    const unnamed = new Page(page.threadId, page.messages);
    held(await unnamed.run({ forwardedProps: { command: { resume: { approved: true } } } }));
    assert.equal((await page.rest('GET', `/v1/approvals/${interrupts[0].id}`)).status, 'pending');
  },

  async 'an answer that is refused beside one that is accepted leaves its call held'() {
    const page = new Page();
    const [first, second] = held(await page.say('both'));
    const resume = [first, second].map(({ id }) => ({ interruptId: id, status: 'resolved', payload: { approved: true } }));
    resume[1].payload.editedArgs = {};
    const rest = held(await page.run({ resume }));
    assert.deepEqual(rest.map(({ id }) => id), [second.id]);
    succeeded(await page.answer(rest, { approved: true }));
    assert.equal(page.results.length, 2);
  },

  async 'the front end executes a tool that the server knows'() {
    const page = new Page();
    const seen = await page.say('pick');
    succeeded(seen);
    if (isNew) assert.deepEqual(seen.outcome.pendingToolCallIds, ['pick']);
    page.agent.addMessage({ id: randomUUID(), role: 'tool', toolCallId: 'pick', content: '{"file":"b.txt"}' });
    succeeded(await page.run());
    assert.ok(page.text.endsWith('Picked.'));
    assert.equal(page.results.length, 1);
  },

  async 'the front end brings a tool of its own'() {
    const page = new Page();
    const tools = [{ name: 'choose', description: 'Choose', parameters: { type: 'object' } }];
    succeeded(await page.say('choose', { tools }));
    page.agent.addMessage({ id: randomUUID(), role: 'tool', toolCallId: 'choose', content: 'left' });
    succeeded(await page.run({ tools }));
    assert.ok(page.text.endsWith('Chosen.'), page.text);
  },

  async 'a tool that fails is shown as failed'() {
    const page = new Page();
    succeeded(await page.say('boom'));
    assert.match(page.results[0][1], /^Error/);
  },

  async 'a model that fails is an error of the run'() {
    const page = new Page();
    const seen = await page.say('fail');
    assert.equal(seen.error.code, 'MODEL_ERROR');
  },

  async 'an interrupted run is not a success'() {
    const page = new Page();
    const saying = page.say('slow');
    let runs = [];
    while (runs[0]?.status !== 'running') runs = (await page.rest('GET', `/v1/runs?thread_id=${page.threadId}`)).runs;
    await page.rest('POST', `/v1/runs/${runs[0].id}/interrupt`, {});
    const seen = await saying;
    if (isNew) assert.equal(seen.outcome.type, 'cancelled');
    else assert.equal(seen.error.code, 'STOPPED');
  },

  async 'a busy thread and a used run id are refused'() {
    const page = new Page();
    const { runId } = await page.say('write');
    const tab = new Page(page.threadId, page.messages);
    await assert.rejects(tab.say('plain'), /409|ACTIVE_RUN_EXISTS/);
    const interrupts = held(page.runs[0]);
    succeeded(await page.answer(interrupts, { approved: true }));
    await assert.rejects(page.say('plain', { runId }), /409|IDEMPOTENCY_CONFLICT/);
  },

  async 'calls of delegated runs are interrupts, at any depth'() {
    const page = new Page();
    const seen = await page.say('delegate');
    const interrupts = held(seen);
    assert.deepEqual(interrupts.map(({ metadata }) => metadata.tool), ['write_file', 'write_file']);
    assert.ok(interrupts.every(({ toolCallId }) => toolCallId === undefined), 'the calls are not in this thread');
    const [started] = seen.events.filter(({ type }) => type === 'SUBAGENT_STARTED');
    if (isNew) assert.ok(interrupts.every(({ subagentRunId }) => subagentRunId === started.subagentRunId));
    const resume = interrupts.map(({ id }) => ({ interruptId: id, status: 'resolved', payload: { approved: true } }));
    resume[1].payload = { approved: false, reason: 'one is enough' };
    succeeded(await page.run({ resume }));
    assert.deepEqual(page.results, [['ask', 'The clerk did it.']]);
    assert.ok(page.text.endsWith('The office did it.'), page.text);
    const [first, second] = await Promise.all(interrupts.map(({ id }) => page.rest('GET', `/v1/approvals/${id}`)));
    assert.deepEqual([first.status, second.status, second.reason], ['approved', 'rejected', 'one is enough']);
  },

  async 'another page asks for what a delegated run still holds'() {
    const page = new Page();
    const interrupts = held(await page.say('delegate'));
    await page.rest('POST', `/v1/approvals/${interrupts[0].id}/approve`, {});
    const tab = new Page(page.threadId, page.messages);
    const rest = held(await tab.run());
    assert.deepEqual(rest.map(({ id }) => id), [interrupts[1].id]);
    succeeded(await tab.answer(rest, { approved: true }));
    assert.ok(tab.text.endsWith('The office did it.'), tab.text);
  },

  async 'calls of the run and of a delegated run are held in one step'() {
    const page = new Page();
    let seen = await page.say('delegate and write');
    const asked = [];
    while (seen.outcome?.type === 'interrupt') {
      asked.push(...held(seen).map(({ id }) => id));
      seen = await page.answer(held(seen), { approved: true });
    }
    succeeded(seen);
    assert.deepEqual([asked.length, new Set(asked).size], [3, 3]);
    assert.ok(page.text.endsWith('Both did it.'), page.text);
  },

  async 'a delegated run that still executes is asked about when it waits'() {
    const page = new Page();
    const interrupts = held(await page.say('delegate slowly'));
    const [approval] = await page.pendingApprovals();
    assert.equal((await page.rest('GET', `/v1/runs/${approval.run_id}`)).status, 'waiting_approval');
    succeeded(await page.answer(interrupts, { approved: true }));
    assert.ok(page.text.endsWith('The clerk did it.'), page.text);
  },

  async 'a key that is not for an agent neither sees nor decides its calls'() {
    const page = new Page(undefined, [], 'token-narrow');
    const saying = page.say('delegate');
    const owner = new Page(page.threadId);
    let approvals = [];
    while (approvals.length < 2) approvals = await owner.pendingApprovals();
    const tab = new Page(page.threadId, page.messages, 'token-narrow');
    const isAnswered = new Promise((resolve) => { tab.agent.subscribe({ onRunStartedEvent: resolve }); });
    const answering = tab.answer(approvals, { approved: true });
    // The answers decide nothing, and both streams stay open until the approver decides.
    await isAnswered;
    const interrupts = held(await new Page(page.threadId, page.messages).run());
    assert.deepEqual(interrupts.map(({ id }) => id), approvals.map(({ id }) => id));
    for (const { id } of approvals) await owner.rest('POST', `/v1/approvals/${id}/approve`, {});
    succeeded(await saying);
    succeeded(await answering);
    const decided = await Promise.all(approvals.map(({ id }) => owner.rest('GET', `/v1/approvals/${id}`)));
    assert.deepEqual(decided.map(({ decided_by }) => decided_by), ['page', 'page']);
  },

  async 'a resume that arrives twice is answered twice and decides once'() {
    const page = new Page();
    const interrupts = held(await page.say('write'));
    const tab = new Page(page.threadId, structuredClone(page.messages));
    succeeded(await page.answer(interrupts, { approved: true }));
    succeeded(await tab.answer(interrupts, { approved: true }));
    assert.equal(tab.results.length, 1);
    assert.ok(tab.text.endsWith('Done.'), tab.text);
    assert.equal((await page.rest('GET', `/v1/runs?thread_id=${page.threadId}`)).runs.length, 1);
  },
};

// The client prints every refusal.
console.error = () => {};
let failed = 0;
for (const [title, story] of Object.entries(stories)) {
  try {
    await story();
    console.log(`ok: ${title}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED: ${title}: ${error.stack}`);
  }
}
console.log(`${Object.keys(stories).length} stories, ${failed} failed`);
process.exit(failed > 0 ? 1 : 0);
