// The stories of CopilotKit against a running server, in one topology: `runtime`, `direct` or `single` (see site.mjs).
//
//   node stories.mjs TOPOLOGY URL KEY

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

import { Page, humanInTheLoop, rest } from './page.mjs';
import { openSite } from './site.mjs';

const [topology, url, key] = process.argv.slice(2);
const isThroughRuntime = topology === 'runtime';
const site = await openSite(topology, url, key);

const approval = (id) => rest(site, 'GET', `/v1/approvals/${id}`);

/** A page with a call of `write_file` that waits for approval. */
async function pageWithHeldCall(options) {
  const page = await Page.open(site, options);
  await page.say('write');
  assert.deepEqual(page.errors, []);
  assert.equal(page.last.outcome, 'interrupt', JSON.stringify(page.last));
  assert.deepEqual(page.held.map(({ toolCallId }) => toolCallId), ['write']);
  return page;
}

const stories = {
  async 'the page finds the agent and what it can do'() {
    const page = await Page.open(site);
    assert.ok(page.core.getAgent('assistant'));
    if (!isThroughRuntime) assert.equal(page.agent.capabilities.humanInTheLoop.interrupts, true);
  },

  async 'a message is answered as a stream'() {
    const page = await Page.open(site);
    await page.say('plain');
    page.succeeded();
    assert.equal(page.text, 'Hello there, this is streamed.');
    await page.say('long');
    page.succeeded();
    assert.ok(page.last.types.filter((type) => type === 'TEXT_MESSAGE_CONTENT').length > 1, 'in pieces');
    await page.showsWhatIsStored();
  },

  async 'a tool of the server runs, and its result is shown'() {
    const page = await Page.open(site);
    await page.say('add');
    page.succeeded();
    assert.deepEqual(page.results, [['sum', '5']]);
    await page.showsWhatIsStored();
  },

  async 'an approved call runs once, under the run id of the interrupted run'() {
    const page = await pageWithHeldCall();
    const { runId } = page.last;
    assert.equal(await page.answer({ approved: true }), 'resume');
    page.succeeded();
    assert.equal(page.last.runId, runId);
    assert.equal(page.runs.length, 2);
    assert.equal(page.results.length, 1);
    assert.ok(page.text.endsWith('Done.'), page.text);
    const runs = await page.storedRuns();
    assert.deepEqual(runs.map(({ status }) => status), ['completed']);
    await page.showsWhatIsStored();
  },

  async 'an approver edits the arguments'() {
    const page = await pageWithHeldCall();
    const [{ id }] = page.held;
    await page.answer({ approved: true, editedArgs: { path: 'edited.txt', text: 'other' } });
    page.succeeded();
    assert.deepEqual([(await approval(id)).status, (await approval(id)).arguments.path], ['approved', 'edited.txt']);
    await page.showsWhatIsStored();
  },

  async 'a call is denied with a reason'() {
    const page = await pageWithHeldCall();
    const [{ id }] = page.held;
    await page.answer({ approved: false, reason: 'not today' });
    page.succeeded();
    assert.deepEqual(page.results, [['write', 'Denied by page: not today']]);
    assert.equal((await approval(id)).status, 'rejected');
    await page.showsWhatIsStored();
  },

  async 'an interrupt that the user cancels denies its call'() {
    const page = await pageWithHeldCall();
    const [{ id }] = page.held;
    assert.equal(await page.cancel(), 'resume');
    page.succeeded();
    assert.equal((await approval(id)).status, 'rejected');
    await page.showsWhatIsStored();
  },

  async 'two approvals are sent together once both are answered'() {
    const page = await Page.open(site);
    await page.say('both');
    const [first, second] = page.held;
    assert.equal(await page.answer({ approved: true }, first.id), 'waiting');
    assert.equal(page.runs.length, 1);
    assert.equal((await approval(first.id)).status, 'pending');
    assert.equal(await page.answer({ approved: false, reason: 'one is enough' }, second.id), 'resume');
    page.succeeded();
    assert.equal(page.results.length, 2);
    assert.equal(Object.fromEntries(page.results).second, 'Denied by page: one is enough');
    assert.deepEqual([(await approval(first.id)).status, (await approval(second.id)).status], ['approved', 'rejected']);
    await page.showsWhatIsStored();
  },

  async 'a call is held again in a later step'() {
    const page = await Page.open(site);
    await page.say('again');
    const [first] = page.held;
    await page.answer({ approved: true });
    const [second] = page.held;
    assert.notEqual(first.id, second.id);
    await page.answer({ approved: true });
    page.succeeded();
    assert.deepEqual(page.results.map(([call]) => call), ['first', 'second']);
    await page.showsWhatIsStored();
  },

  async 'a tool message that a page adds beside its answer is not taken for the result'() {
    const page = await pageWithHeldCall();
    const [{ id }] = page.held;
    // The core does this for interrupts with the reason `tool_call`.
    const content = '{"approved":true}';
    page.agent.addMessage({ id: randomUUID(), role: 'tool', toolCallId: 'write', content });
    await page.answer({ approved: true });
    page.succeeded();
    assert.equal(page.results.length, 1);
    assert.notEqual(page.results[0][1], content);
    assert.equal((await approval(id)).status, 'approved');
    await page.showsWhatIsStored();
  },

  async 'the core adds no tool message of its own for our interrupts'() {
    const page = await pageWithHeldCall();
    const decision = page.interrupts.resolve({ approved: true });
    assert.deepEqual([decision.kind, decision.toolResults], ['resume', []]);
    await page.act(decision);
    page.succeeded();
  },

  async 'an answer of the wrong form decides nothing'() {
    const page = await pageWithHeldCall();
    const [{ id }] = page.held;
    await page.answer({ approved: 'yes' });
    assert.equal(page.errors.length > 0, true);
    assert.equal((await approval(id)).status, 'pending');
  },

  async 'the user answers a tool of the page that the server knows'() {
    const pick = humanInTheLoop('pick_file');
    const page = await Page.open(site, { tools: [pick] });
    const saying = page.say('pick');
    const { respond } = await pick.asked;
    assert.equal(page.last.outcome, 'success');
    assert.equal((await page.until('waiting_tool')).status, 'waiting_tool');
    respond({ file: 'b.txt' });
    await saying;
    page.succeeded();
    assert.equal(page.runs.length, 2);
    assert.notEqual(page.runs[0].runId, page.runs[1].runId);
    assert.deepEqual(page.results, [['pick', '{"file":"b.txt"}']]);
    assert.ok(page.text.endsWith('Picked.'), page.text);
    assert.equal((await page.storedRuns()).length, 1);
    await page.showsWhatIsStored(['pick']);
  },

  async 'the user answers a tool that the page brings'() {
    const choose = humanInTheLoop('choose');
    const page = await Page.open(site, { tools: [choose] });
    const saying = page.say('choose');
    (await choose.asked).respond('left');
    await saying;
    page.succeeded();
    assert.deepEqual(page.results, [['choose', 'left']]);
    assert.ok(page.text.endsWith('Chosen.'), page.text);
    await page.showsWhatIsStored(['choose']);
  },

  async 'the user approves a call while a tool of the page waits in the same step'() {
    for (const approvesFirst of [true, false]) {
      const pick = humanInTheLoop('pick_file');
      const page = await Page.open(site, { tools: [pick] });
      const saying = page.say('write and pick');
      const { respond } = await pick.asked;
      if (approvesFirst) {
        await page.answer({ approved: true });
        respond({ file: 'd.txt' });
        await saying;
        page.succeeded();
      } else {
        respond({ file: 'd.txt' });
        await saying;
        // The client starts no run while an interrupt has no answer. The result is sent with the answer.
        assert.match(page.errors.join(), /pending interrupt/);
        page.errors = [];
        await page.answer({ approved: true });
        page.succeeded();
      }
      assert.ok(page.text.endsWith('Written and picked.'), page.text);
      await page.showsWhatIsStored(['pick']);
    }
  },

  async 'a page connects to a thread that does not exist yet'() {
    const page = await Page.loaded(site, `new-${randomUUID()}`);
    assert.deepEqual([page.errors, page.agent.messages, page.held], [[], [], []]);
    await page.say('plain');
    page.succeeded();
    await page.showsWhatIsStored();
  },

  async 'a page that is loaded again shows the interrupt, and approves'() {
    const { threadId } = await Page.open(site).then(async (page) => { await page.say('plain'); return page; });
    const { held: [{ id }] } = await pageWithHeldCall({ threadId });
    const page = await Page.loaded(site, threadId);
    assert.deepEqual(page.errors, []);
    assert.deepEqual(page.agent.pendingInterrupts.map((interrupt) => interrupt.id), [id]);
    assert.deepEqual(page.held.map((interrupt) => interrupt.id), [id]);
    await page.showsWhatIsStored();
    await page.answer({ approved: true });
    page.succeeded();
    assert.equal(page.results.length, 1);
    await page.showsWhatIsStored();
    const again = await Page.loaded(site, threadId);
    assert.deepEqual(again.held, []);
    await again.showsWhatIsStored();
  },

  async 'a page that is loaded again asks the user of its tool once more'() {
    const { threadId } = await (async () => {
      const pick = humanInTheLoop('pick_file');
      const page = await Page.open(site, { tools: [pick] });
      page.say('pick');
      await pick.asked;
      return page;
    })();
    const pick = humanInTheLoop('pick_file');
    const page = await Page.loaded(site, threadId, { tools: [pick] });
    const { respond } = await pick.asked;
    const ended = new Promise((resolve) => { page.agent.subscribe({ onRunFinalized: resolve }); });
    respond({ file: 'c.txt' });
    await ended;
    page.succeeded();
    assert.deepEqual(page.results, [['pick', '{"file":"c.txt"}']]);
    await page.showsWhatIsStored(['pick']);
  },

  async 'a page that is open shows the decision that came over REST'() {
    for (const late of [{ approved: true }, { approved: false, reason: 'too late' }]) {
      const page = await pageWithHeldCall();
      await page.rest('POST', `/v1/approvals/${page.held[0].id}/approve`, {});
      await page.until('completed');
      await page.answer(late);
      page.succeeded();
      assert.equal(page.results.length, 1);
      assert.doesNotMatch(page.results[0][1], /Denied/);
      assert.ok(page.text.endsWith('Done.'), page.text);
      await page.showsWhatIsStored();
    }
  },

  async 'one of two approvals came over REST'() {
    const page = await Page.open(site);
    await page.say('both');
    const [first, second] = page.held;
    await page.rest('POST', `/v1/approvals/${first.id}/reject`, { reason: 'over REST', then: 'continue' });
    await page.answer({ approved: true }, first.id);
    await page.answer({ approved: true }, second.id);
    page.succeeded();
    assert.equal(Object.fromEntries(page.results).first, 'Denied by page: over REST');
    await page.showsWhatIsStored();
  },

  async 'calls of delegated runs are interrupts, also for a page that is loaded again'() {
    const { threadId, held } = await Page.open(site).then(async (page) => { await page.say('delegate'); return page; });
    assert.deepEqual(held.map(({ metadata }) => metadata.tool), ['write_file', 'write_file']);
    const page = await Page.loaded(site, threadId);
    assert.deepEqual(page.held.map(({ id }) => id), held.map(({ id }) => id));
    assert.equal(await page.answer({ approved: true }, held[0].id), 'waiting');
    await page.answer({ approved: false, reason: 'one is enough' }, held[1].id);
    page.succeeded();
    assert.deepEqual(page.results, [['ask', 'The clerk did it.']]);
    assert.deepEqual([(await approval(held[0].id)).status, (await approval(held[1].id)).status], ['approved', 'rejected']);
    await page.showsWhatIsStored();
  },

  async 'a second page on a busy thread is refused'() {
    const page = await pageWithHeldCall();
    const tab = await Page.open(site, { threadId: page.threadId });
    await tab.say('plain');
    assert.match(tab.errors.join(), /409|ACTIVE_RUN_EXISTS/);
    await page.answer({ approved: true });
    page.succeeded();
    assert.equal((await page.storedRuns()).length, 1);
  },

  async 'a tool that fails is shown as failed'() {
    const page = await Page.open(site);
    await page.say('boom');
    page.succeeded();
    assert.match(page.results[0][1], /^Error/);
    await page.showsWhatIsStored();
  },

  async 'a model that fails is an error of the run'() {
    const page = await Page.open(site);
    await page.say('fail');
    assert.equal(page.last.error.code, 'MODEL_ERROR');
    await page.showsWhatIsStored();
  },

  async 'a run that is interrupted over REST is not a success'() {
    const page = await Page.open(site);
    const saying = page.say('slow');
    const { id } = await page.until('running');
    await page.rest('POST', `/v1/runs/${id}/interrupt`, {});
    await saying;
    assert.equal(page.last.error.code, 'STOPPED');
    await page.showsWhatIsStored();
  },
};

/** A stop, and what a page can rely on without a runtime in between. */
const directStories = {
  async 'a stop interrupts the run'() {
    const page = await Page.open(site);
    const saying = page.say('slow');
    await page.until('running');
    page.stop();
    await saying;
    assert.equal(page.last.error.code, 'STOPPED');
    assert.deepEqual((await page.storedRuns()).map(({ status }) => status), ['interrupted']);
    await page.showsWhatIsStored();
    await page.say('plain');
    assert.equal(page.last.outcome, 'success');
    await page.showsWhatIsStored();
  },

  async 'a stop that names an earlier run does not interrupt the one that executes'() {
    const page = await Page.open(site);
    await page.say('plain');
    const { runId } = page.last;
    const saying = page.say('slow');
    await page.until('running');
    const stop = (body) => page.rest('POST', `/v1/copilotkit/agent/assistant/stop/${page.threadId}`, body);
    assert.deepEqual(await stop({ runId }), { stopped: false });
    assert.equal((await page.storedRuns())[0].status, 'running');
    assert.deepEqual(await stop({ runId: page.last.runId }), { stopped: true });
    await saying;
    assert.equal(page.last.error.code, 'STOPPED');
  },

  async 'a stop of a thread that waits interrupts the run'() {
    const page = await pageWithHeldCall();
    page.stop();
    await page.until('interrupted');
    assert.equal((await approval(page.held[0].id)).status, 'rejected');
    await page.answer({ approved: true });
    await page.showsWhatIsStored();
  },

  async 'a page needs no key, only a token for its thread'() {
    const threadId = `token-${randomUUID()}`;
    const limits = { ttl: '15m', roles: ['run', 'approve'], thread_id: threadId };
    const { token } = await rest(site, 'POST', '/v1/tokens', limits);
    const limited = { ...site, headers: { authorization: `Bearer ${token}` } };
    const page = await Page.loaded(limited, threadId);
    await page.say('write');
    await page.answer({ approved: true });
    page.succeeded();
    await page.showsWhatIsStored();
    const other = await Page.open(limited);
    await other.say('plain');
    assert.match(other.errors.join(), /THREAD_NOT_FOUND/);
  },

  async 'a page that is loaded again follows a run that executes'() {
    const page = await Page.open(site);
    page.say('slow');
    const { id } = await page.until('running');
    const tab = await Page.open(site, { threadId: page.threadId });
    const connecting = tab.connect();
    await page.rest('POST', `/v1/runs/${id}/interrupt`, {});
    await connecting;
    await tab.showsWhatIsStored();
  },
};

const runtimeStories = {
  async 'a stop only closes the connection, and the run continues'() {
    const page = await Page.open(site);
    const saying = page.say('slow');
    const { id } = await page.until('running');
    page.stop();
    await saying;
    const [run] = await page.storedRuns();
    assert.deepEqual([run.id, run.status], [id, 'running']);
    await page.rest('POST', `/v1/runs/${id}/interrupt`, {});
  },

  async 'a runtime that was started again has forgotten the thread'() {
    const page = await pageWithHeldCall();
    await site.restart();
    const tab = await Page.loaded(site, page.threadId);
    assert.deepEqual([tab.agent.messages, tab.held], [[], []]);
  },

  async 'a page that stayed open while the runtime was started again approves'() {
    const page = await pageWithHeldCall();
    await site.restart();
    await page.answer({ approved: true });
    page.succeeded();
    await page.showsWhatIsStored();
  },

  async 'a stop through a runtime with our runner interrupts the run, also from a page that was loaded again'() {
    const complete = await openSite(topology, url, key, 'with-runner');
    const page = await Page.open(complete);
    const saying = page.say('slow');
    await page.until('running');
    page.stop();
    await saying;
    assert.equal(page.last.error.code, 'STOPPED');
    assert.deepEqual((await page.storedRuns()).map(({ status }) => status), ['interrupted']);
    await page.showsWhatIsStored();

    const other = page.say('slow');
    await page.until('running');
    const tab = await Page.open(complete, { threadId: page.threadId });
    const connecting = tab.connect();
    tab.stop();
    await Promise.all([other, connecting]);
    assert.deepEqual((await page.storedRuns()).map(({ status }) => status), ['interrupted', 'interrupted']);
    await tab.showsWhatIsStored();
  },

  async 'a runtime with our runner shows a thread that it does not know'() {
    const complete = await openSite(topology, url, key, 'with-runner');
    const page = await pageWithHeldCall();
    const tab = await Page.loaded(complete, page.threadId);
    assert.deepEqual(tab.errors, []);
    assert.deepEqual(tab.held.map(({ id }) => id), page.held.map(({ id }) => id));
    await tab.showsWhatIsStored();
    await tab.answer({ approved: true });
    tab.succeeded();
    await tab.showsWhatIsStored();
  },
};

// The client prints every refusal.
console.error = () => {};
console.warn = () => {};
let running;
setTimeout(() => { console.log(`STUCK: ${running}`); process.exit(1); }, 120_000).unref();
let failed = 0;
const all = Object.entries({ ...stories, ...(isThroughRuntime ? runtimeStories : directStories) });
for (const [title, story] of all) {
  running = title;
  try {
    await story();
    console.log(`ok: ${title}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED: ${title}: ${error.stack}`);
  }
}
console.log(`${all.length} stories, ${failed} failed`);
process.exit(failed > 0 ? 1 : 0);
