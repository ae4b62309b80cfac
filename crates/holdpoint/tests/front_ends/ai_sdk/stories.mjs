// The stories of one release of the AI SDK against a running server.
//
//   node stories.mjs RELEASE URL KEY FOLDER [hold | after-restart]
//
// With `hold`, a call is left waiting and the page is kept in FOLDER; `after-restart` continues it.

import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { Page, loadRelease } from './chat.mjs';

const [name, url, key, folder, phase] = process.argv.slice(2);
const release = await loadRelease(name);
const holdpoint = { url, key, agent: 'assistant' };
let count = 0;
const open = (options) => new Page(release, holdpoint, `${name}-${process.pid}-${count += 1}`, options);

const stories = {
  async 'a message is answered as a stream'() {
    const page = open();
    await page.say('plain');
    assert.equal(page.text, 'Hello there, this is streamed.');
    assert.deepEqual([page.messages.length, page.chat.status, page.posts], [2, 'ready', 1]);
    await page.say('plain');
    assert.equal(page.messages.length, 4);
    await page.matchesReload();
  },

  async 'a tool runs and its output is shown'() {
    const page = open();
    await page.say('add');
    assert.equal(page.tools[0].state, 'output-available');
    assert.equal(page.tools[0].output, 5);
    assert.equal(page.text, 'Added.');
    await page.matchesReload();
  },

  async 'an approved call runs once'() {
    const page = open();
    await page.say('write');
    assert.deepEqual([page.tools[0].state, page.tools[0].input.path], ['approval-requested', 'a.txt']);
    await page.matchesReload();
    await page.chat.addToolApprovalResponse({ id: page.tools[0].approval.id, approved: true });
    await page.settled((page) => page.text.endsWith('Done.'));
    assert.deepEqual([page.tools[0].state, page.messages.length, page.posts], ['output-available', 2, 2]);
    await page.matchesReload();
  },

  async 'a denied call never runs, and the reason is recorded'() {
    const page = open();
    await page.say('write');
    const { id } = page.tools[0].approval;
    await page.chat.addToolApprovalResponse({ id, approved: false, reason: 'not today' });
    await page.settled((page) => page.text.endsWith('Done.'));
    assert.deepEqual([page.tools[0].state, page.posts], ['output-denied', 2]);
    const approval = await page.rest('GET', `/v1/approvals/${id}`);
    assert.deepEqual([approval.status, approval.reason, approval.decided_by], ['rejected', 'not today', 'page']);
    await page.matchesReload();
  },

  async 'two approvals are answered together'() {
    for (const order of [[0, 1], [1, 0]]) {
      const page = open();
      await page.say('both');
      const ids = page.tools.map((tool) => tool.approval.id);
      await page.chat.addToolApprovalResponse({ id: ids[order[0]], approved: true });
      assert.equal(page.posts, 1, 'nothing is posted before both are answered');
      await page.chat.addToolApprovalResponse({ id: ids[order[1]], approved: order[1] === 1 });
      await page.settled((page) => page.text.endsWith('Done.'));
      assert.deepEqual([page.messages.length, page.posts], [2, 2]);
      await page.matchesReload();
    }
  },

  async 'two approvals are answered one at a time'() {
    for (const order of [[0, 1], [1, 0]]) {
      const page = open({ sendWhen: release.anyAnswered });
      await page.say('both');
      const ids = page.tools.map((tool) => tool.approval.id);
      await page.chat.addToolApprovalResponse({ id: ids[order[0]], approved: true });
      await page.settled((page) => page.tools[order[0]].state === 'output-available');
      assert.equal(page.tools[order[1]].state, 'approval-requested');
      await page.matchesReload();
      await page.chat.addToolApprovalResponse({ id: ids[order[1]], approved: true });
      await page.settled((page) => page.text.endsWith('Done.'));
      assert.deepEqual([page.messages.length, page.posts], [2, 3]);
      await page.matchesReload();
    }
  },

  async 'a call is held again in a later step'() {
    const page = open();
    await page.say('again');
    for (const index of [0, 1]) {
      await page.settled((page) => page.tools[index]?.state === 'approval-requested');
      await page.chat.addToolApprovalResponse({ id: page.tools[index].approval.id, approved: true });
    }
    await page.settled((page) => page.text.endsWith('Done.'));
    assert.deepEqual([page.messages.length, page.posts], [2, 3]);
    await page.matchesReload();
  },

  async 'the front end executes its own tool'() {
    const page = open({
      onClientTool: (page, call) => page.chat.addToolOutput({ tool: call.toolName, toolCallId: call.toolCallId, output: { file: 'b.txt' } }),
    });
    await page.say('pick');
    await page.settled((page) => page.text.endsWith('Picked.'));
    assert.deepEqual(page.called, ['pick_file']);
    assert.deepEqual([page.tools[0].type, page.tools[0].state, page.posts], ['tool-pick_file', 'output-available', 2]);
    await page.matchesReload();
  },

  async 'the front end reports that its tool failed'() {
    const page = open({
      onClientTool: (page, call) => page.chat.addToolOutput({ state: 'output-error', tool: call.toolName, toolCallId: call.toolCallId, errorText: 'no file' }),
    });
    await page.say('pick');
    await page.settled((page) => page.text.endsWith('Picked.'));
    assert.deepEqual([page.tools[0].state, page.tools[0].errorText], ['output-error', 'no file']);
    await page.matchesReload();
  },

  async 'a tool that fails is shown as failed'() {
    const page = open();
    await page.say('boom');
    assert.equal(page.tools[0].state, 'output-error');
    assert.equal(page.text, 'It failed.');
    await page.matchesReload();
  },

  async 'a model that fails is an error of the page'() {
    const page = open();
    await page.say('fail');
    assert.equal(page.chat.status, 'error');
    assert.equal(page.errors.length, 1);
  },

  async 'a busy chat refuses a second message'() {
    const page = open();
    await page.say('write');
    const second = new Page(release, holdpoint, page.chatId, { messages: await page.stored() });
    await second.say('plain');
    assert.equal(second.chat.status, 'error');
    assert.match(second.errors[0], /ACTIVE_RUN_EXISTS/);
    await page.chat.addToolApprovalResponse({ id: page.tools[0].approval.id, approved: true });
    await page.settled((page) => page.text.endsWith('Done.'));
  },

  async 'closing the stream does not stop the run, and stopping does'() {
    const page = open();
    const saying = page.say('slow');
    await until(() => page.messages.length === 2 && page.tools.length === 1);
    await page.chat.stop();
    await saying;
    assert.equal((await page.rest('GET', `/v1/runs?thread_id=${page.chatId}`)).runs[0].status, 'running');
    const stopped = await page.rest('POST', `/v1/ai-sdk/assistant/${page.chatId}/stop`);
    assert.equal(stopped.stopped, true);
    await page.rest('GET', `/v1/runs/${stopped.run_id}?wait=20s`);
    assert.equal((await page.rest('GET', `/v1/runs/${stopped.run_id}`)).status, 'interrupted');
    assert.equal((await page.rest('POST', `/v1/ai-sdk/assistant/${page.chatId}/stop`, {})).stopped, false);
  },

  async 'a fresh tab resumes the stream from its beginning'() {
    const page = open();
    const saying = page.say('long');
    await until(() => page.messages.length === 2 && page.text.length > 4);
    const tab = new Page(release, holdpoint, page.chatId, { messages: await page.stored() });
    assert.deepEqual(tab.messages.map((message) => message.role), ['user']);
    await tab.chat.resumeStream();
    await saying;
    assert.equal(tab.text, page.text);
    assert.deepEqual([tab.messages.length, tab.answer.id], [2, page.answer.id]);
    await tab.chat.resumeStream();
    assert.equal(tab.messages.length, 2, 'nothing is left to resume');
    await tab.matchesReload();
  },

  async 'a page that is loaded again answers what waits'() {
    const page = open();
    await page.say('write');
    const loaded = new Page(release, holdpoint, page.chatId, { messages: await page.stored() });
    await loaded.chat.resumeStream();
    assert.equal(loaded.tools[0].state, 'approval-requested');
    await loaded.chat.addToolApprovalResponse({ id: loaded.tools[0].approval.id, approved: true });
    await loaded.settled((page) => page.text.endsWith('Done.'));
    assert.deepEqual([loaded.messages.length, loaded.answer.id], [2, page.answer.id]);
    await loaded.matchesReload();
  },

  async 'an approval that was given over REST is shown, and not given twice'() {
    const page = open();
    await page.say('write');
    const { id } = page.tools[0].approval;
    await page.rest('POST', `/v1/approvals/${id}/approve`, {});
    // The user has not seen it and denies: the first decision stays.
    await page.chat.addToolApprovalResponse({ id, approved: false });
    await page.settled((page) => page.text.endsWith('Done.'));
    assert.deepEqual([page.tools[0].state, page.messages.length, page.posts], ['output-available', 2, 2]);
    assert.equal((await page.rest('GET', `/v1/approvals/${id}`)).status, 'approved');
  },

  async 'an answer is regenerated, and a message is edited'() {
    const page = open();
    await page.say('plain');
    await page.say('add');
    const first = page.answer.id;
    await page.chat.regenerate();
    assert.equal(page.text, 'Added.');
    assert.notEqual(page.answer.id, first);
    await page.matchesReload();
    const asked = page.messages.at(-2).id;
    await page.chat.sendMessage({ text: 'plain', messageId: asked });
    assert.equal(page.text, 'Hello there, this is streamed.');
    assert.equal(page.messages.length, 4);
    await page.matchesReload();
  },

  async 'usage and the run are in the metadata'() {
    const page = open();
    await page.say('plain');
    assert.match(page.answer.metadata.run_id, /^run_/);
    assert.equal(page.answer.id, `msg_${page.answer.metadata.run_id}`);
  },
};

const restart = {
  async hold() {
    const page = open();
    await page.say('write');
    assert.equal(page.tools[0].state, 'approval-requested');
    await writeFile(`${folder}/${name}.json`, JSON.stringify({ chatId: page.chatId, messages: page.messages }));
  },

  async 'after-restart'() {
    const { chatId, messages } = JSON.parse(await readFile(`${folder}/${name}.json`, 'utf8'));
    // The page stayed open: it has what it had.
    const page = new Page(release, holdpoint, chatId, { messages });
    await page.chat.addToolApprovalResponse({ id: page.tools[0].approval.id, approved: true });
    await page.settled((page) => page.text.endsWith('Done.'));
    assert.deepEqual([page.tools[0].state, page.messages.length], ['output-available', 2]);
    await page.matchesReload();
  },
};

async function until(holds) {
  const deadline = Date.now() + 30_000;
  while (!holds()) {
    assert.ok(Date.now() < deadline, `never: ${holds}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

const chosen = phase ? { [phase]: restart[phase] } : stories;
let failed = 0;
for (const [title, story] of Object.entries(chosen)) {
  try {
    await story();
    console.log(`ok: ${title}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED: ${title}: ${error.stack}`);
  }
}
console.log(`${Object.keys(chosen).length} stories, ${failed} failed`);
process.exit(failed > 0 ? 1 : 0);
