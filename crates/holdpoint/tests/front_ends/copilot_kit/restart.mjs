// Pages whose server is killed and started again while a call waits for approval, in every topology.
//
//   node restart.mjs URL KEY
//
// Prints `held` once calls wait, and continues when a line comes on its standard input.

import assert from 'node:assert/strict';
import { once } from 'node:events';

import { Page } from './page.mjs';
import { openSite } from './site.mjs';

const [url, key] = process.argv.slice(2);

setTimeout(() => { console.log('STUCK'); process.exit(1); }, 120_000).unref();
// Only CopilotKit's own process would end because of it; a browser logs it.
process.on('unhandledRejection', () => {});
// The client prints every refusal.
console.error = () => {};
console.warn = () => {};

async function pageWithHeldCall(site) {
  const page = await Page.open(site);
  await page.say('write');
  assert.equal(page.held.length, 1, JSON.stringify(page.last));
  return page;
}

async function approve(page) {
  await page.answer({ approved: true });
  page.succeeded();
  assert.equal(page.results.length, 1);
  assert.ok(page.text.endsWith('Done.'), page.text);
  await page.showsWhatIsStored();
}

const holding = [];
for (const topology of ['runtime', 'direct', 'single']) {
  const site = await openSite(topology, url, key, 'with-runner');
  const executing = await Page.open(site);
  const saying = executing.say('slow');
  await executing.until('running');
  const { threadId } = await pageWithHeldCall(site);
  holding.push({ site, executing, saying, open: await pageWithHeldCall(site), threadId });
}
console.log('held');
await once(process.stdin, 'data');

for (const { site, executing, saying, open, threadId } of holding) {
  await approve(open);
  console.log(`ok: ${site.topology}: a page that stayed open approves`);
  const page = await Page.loaded(site, threadId);
  assert.deepEqual(page.errors, []);
  assert.equal(page.held.length, 1);
  await page.showsWhatIsStored();
  await approve(page);
  console.log(`ok: ${site.topology}: a page that is loaded again approves`);
  await saying;
  assert.ok(executing.errors.length > 0, 'the page shows that its stream broke');
  const follower = await Page.open(site, { threadId: executing.threadId });
  const connecting = follower.connect();
  follower.stop();
  await connecting;
  await follower.until('interrupted');
  await follower.showsWhatIsStored();
  console.log(`ok: ${site.topology}: a page that is loaded again follows the run that executed, and stops it`);
}
process.exit(0);
