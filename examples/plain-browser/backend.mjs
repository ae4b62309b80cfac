// Serves the page, and exchanges the key for a token of this user and this thread. A real backend checks its login first.

import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';

const api = process.env.HOLDPOINT_URL ?? 'http://127.0.0.1:8787';
const key = process.env.HOLDPOINT_KEY;
const port = Number(process.env.PORT ?? 9100);

async function newSession() {
  const user = 'ann'; // From your own session, never from the request.
  const request = { ttl: '15m', roles: ['run', 'approve'], thread_id: 'minutes', acting_for: user };
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const made = await fetch(`${api}/v1/tokens`, { method: 'POST', headers, body: JSON.stringify(request) });
  const answer = await made.json();
  if (!made.ok) throw new Error(answer.error.message);
  return { api, thread: request.thread_id, token: answer.token };
}

createServer(async ({ method, url }, response) => {
  try {
    if (method === 'GET' && url === '/') {
      response.setHeader('content-type', 'text/html; charset=utf-8');
      response.end(await readFile(new URL('page.html', import.meta.url)));
    } else if (method === 'POST' && url === '/session') {
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify(await newSession()));
    } else {
      response.writeHead(404).end();
    }
  } catch (error) {
    console.error(error);
    response.writeHead(502).end();
  }
}).listen(port, '127.0.0.1', () => console.log(`Open http://localhost:${port}`));
