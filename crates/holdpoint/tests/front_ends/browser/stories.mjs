// A user with one of the pages of examples/ in a real browser. Run by the tests of the program, which restart the server when
// this script prints `restart`, and then send a line.
//
//   stories.mjs PAGE URL API KEY FOLDER SCREENSHOTS BROWSER

import assert from 'node:assert/strict';
import { readFileSync, rmSync, existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { chromium } from 'playwright-core';

const [name, url, api, key, folder, screenshots, executablePath] = process.argv.slice(2);
const FILE = `${folder}/written/minutes.txt`;
const ANNOUNCED = 'I am going to write the minutes down.';
const WRITTEN = 'The minutes are written.';

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
const page = await browser.newPage({ viewport: { width: 1000, height: 700 } });
page.setDefaultTimeout(60_000);
const faults = [];
page.on('pageerror', (error) => faults.push(String(error)));

const approve = () => page.getByRole('button', { name: /^approve$/i });
const screenshot = (step) => page.screenshot({ path: `${screenshots}/${name}-${step}.png` });

async function ask(path) {
  const response = await fetch(api + path, { headers: { authorization: `Bearer ${key}` } });
  return { status: response.status, body: await response.json() };
}

async function count(text) {
  return (await page.locator('body').innerText()).split(text).length - 1;
}

/** Waits until the page shows the text this many times, and no more often. */
async function shows(text, times) {
  const arguments_ = { text, times };
  await page.waitForFunction(({ text, times }) => document.body.innerText.split(text).length > times, arguments_);
  assert.equal(await count(text), times, text);
}

async function send() {
  const input = page.getByRole('textbox');
  await input.fill('Write the minutes.');
  await input.press('Enter');
}

async function theAnswerIsStreamed() {
  await page.goto(url);
  await page.getByRole('textbox').waitFor();
  await page.evaluate((announced) => {
    window.lengths = new Set();
    const record = () => {
      const text = document.body.innerText;
      for (let length = announced.length; length > 0; length -= 1) {
        if (text.includes(announced.slice(0, length))) return window.lengths.add(length);
      }
    };
    new MutationObserver(record).observe(document.body, { subtree: true, childList: true, characterData: true });
  }, ANNOUNCED);
  await send();
  await approve().waitFor();
  const lengths = await page.evaluate(() => window.lengths.size);
  assert.ok(lengths >= 3, `the text of the answer was seen in ${lengths} states`);
  await screenshot('held');
  assert.equal(existsSync(FILE), false, 'nothing runs before the approval');
}

async function aReloadShowsTheSame() {
  await page.reload();
  await approve().waitFor();
  assert.deepEqual([await approve().count(), await count(ANNOUNCED)], [1, 1]);
}

async function theServerIsKilledUnderThePage() {
  console.log('restart');
  await lines.next();
  await approve().click();
  await shows(WRITTEN, 1);
  await screenshot('written');
  assert.equal(readFileSync(FILE, 'utf8'), '42 votes in favour.\n');
  assert.deepEqual([await approve().count(), await count(ANNOUNCED)], [0, 1]);
  const { approvals } = (await ask('/v1/approvals?status=approved')).body;
  assert.deepEqual(approvals.map((approval) => approval.tool), ['write_file']);
}

async function aRejectedCallDoesNotRun() {
  rmSync(FILE);
  await send();
  await page.getByRole('button', { name: /^reject$/i }).click();
  if (name === 'plain-browser') {
    await shows('rejected by ann via backend', 1);
  } else {
    await shows(WRITTEN, 2); // The scripted model answers the same after a rejection.
  }
  await screenshot('rejected');
  const { approvals } = (await ask('/v1/approvals?status=rejected')).body;
  assert.deepEqual([approvals.length, existsSync(FILE)], [1, false]);
}

async function theServerIsKilledWhileTextArrives() {
  const known = await count(ANNOUNCED.slice(0, 5));
  await send();
  await page.waitForFunction(([text, known]) => document.body.innerText.split(text).length - 1 > known,
    [ANNOUNCED.slice(0, 5), known]);
  console.log('restart');
  await lines.next();
  await approve().waitFor();
  assert.deepEqual([await count(ANNOUNCED), await count(ANNOUNCED.slice(0, 5))], [known + 1, known + 1]);
}

async function aTokenReachesOneThread() {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const made = await fetch(`${api}/v1/threads`, { method: 'POST', headers, body: '{"id": "other"}' });
  assert.equal(made.status, 201);
  const read = (thread) => page.evaluate(async (thread) => {
    const { api, token } = await (await fetch('/session', { method: 'POST' })).json();
    const own = await fetch(`${api}/v1/threads/${thread}`, { headers: { authorization: `Bearer ${token}` } });
    const stream = await fetch(`${api}/v1/threads/${thread}/events?access_token=${token}`);
    const result = [own.status, stream.status, (await own.json()).error?.code];
    await stream.body.cancel();
    return result;
  }, thread);
  assert.deepEqual(await read('minutes'), [200, 200, undefined]);
  assert.deepEqual(await read('other'), [404, 404, 'THREAD_NOT_FOUND']);
}

/** The same page under another name of the same machine is another origin, which the server does not list. */
async function aPageOfAForeignOriginIsRefused() {
  const before = (await ask('/v1/runs')).body.runs.length;
  const foreign = await browser.newPage();
  const refusals = [];
  foreign.on('console', (message) => refusals.push(message.text()));
  const failed = foreign.waitForEvent('requestfailed', (request) => request.url().startsWith(api));
  await foreign.goto(url.replace('localhost', '127.0.0.1'));
  await failed;
  assert.ok(refusals.some((text) => text.includes('blocked by CORS policy')), refusals.join('\n'));
  const posted = await foreign.evaluate(async () => {
    const { api, token } = await (await fetch('/session', { method: 'POST' })).json();
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const body = JSON.stringify({ agent: 'clerk', text: 'Write the minutes.' });
    return fetch(`${api}/v1/threads/minutes/messages`, { method: 'POST', headers, body }).then(() => 'read', String);
  });
  assert.match(posted, /TypeError/);
  assert.equal((await ask('/v1/runs')).body.runs.length, before);
  await foreign.close();
}

const stories = [theAnswerIsStreamed, aReloadShowsTheSame, theServerIsKilledUnderThePage, aRejectedCallDoesNotRun];
if (name === 'plain-browser') stories.push(theServerIsKilledWhileTextArrives, aTokenReachesOneThread, aPageOfAForeignOriginIsRefused);
try {
  for (const story of stories) {
    await story();
    console.log(`${name}: ${story.name}`);
  }
  assert.deepEqual(faults, []);
} catch (error) {
  await screenshot('failed');
  console.error(await page.locator('body').innerText());
  throw error;
} finally {
  await browser.close();
}
process.exit(0);
