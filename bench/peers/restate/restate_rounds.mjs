// W1 and W2 with Restate: one repetition, as JSON lines.
//
//   node restate_rounds.mjs W1|W2 FOLDER --seconds S --lanes N [--partitions N]
//
// Three processes, as Restate is deployed: the server with an empty folder, the service with the handlers, and this one,
// which sends the work over HTTP and measures. The processor time is that of the server and of the service. Everything
// listens on loopback.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import fs from 'node:fs';
import http from 'node:http';
import http2 from 'node:http2';
import path from 'node:path';
import { createRequire } from 'node:module';
import { parseArgs } from 'node:util';

const USER = 'please do the thing ' + 'u'.repeat(44);
const FINAL = 'done ' + 'f'.repeat(59);
const ECHOED = { text: 'x'.repeat(64) };
const WARM_UP_SECONDS = 1.5;
const START_ATTEMPTS_MAX = 300;
const PORTS = { ingress: 18080, admin: 19070, node: 15122, service: 19080 };

const connections = new http.Agent({ keepAlive: true, maxSockets: 256 });

const { values: asked, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seconds: { type: 'string', default: '3' },
    lanes: { type: 'string', default: '64' },
    partitions: { type: 'string' },
    service: { type: 'boolean', default: false },
  },
});

if (asked.service) {
  await serve();
} else {
  await measure(...positionals);
}

// ---- the service

async function serve() {
  // The SDK asks for a function that Node has from version 22 on.
  Promise.withResolvers ??= () => {
    let resolve, reject;
    const promise = new Promise((yes, no) => ([resolve, reject] = [yes, no]));
    return { promise, resolve, reject };
  };
  const restate = await import('@restatedev/restate-sdk');
  // What the measuring process wants to know is sent to it, outside of the journal.
  const tell = (what) => process.send({ ...what, at: process.hrtime.bigint().toString() });

  const agent = restate.service({
    name: 'agent',
    handlers: {
      toolRound: async (ctx) => {
        const calls = await ctx.run('model 1', async () => [ECHOED, ECHOED]);
        const tools = calls.map((call, number) => ctx.run(`tool ${number}`, async () => call.text));
        await restate.RestatePromise.all(tools);
        return await ctx.run('model 2', async () => FINAL);
      },
      approval: async (ctx, { key }) => {
        const calls = await ctx.run('model 1', async () => ({ a: ECHOED, b: ECHOED, c: ECHOED }));
        const a = ctx.awakeable();
        const b = ctx.awakeable();
        await ctx.run('tool c', async () => calls.c.text);
        tell({ key, held: [a.id, b.id] });
        for (const [name, awakeable] of [['a', a], ['b', b]]) {
          await awakeable.promise;
          await ctx.run(`tool ${name}`, async () => {
            tell({ key, entered: name });
            return calls[name].text;
          });
        }
        return await ctx.run('model 2', async () => FINAL);
      },
    },
  });
  const handler = restate.createEndpointHandler({ services: [agent], logger: () => {} });
  http2.createServer(handler).listen(PORTS.service, '127.0.0.1', () => process.send({ ready: true }));
}

// ---- the measuring process

async function measure(workload, folder) {
  const base = fs.mkdtempSync(path.join(path.resolve(folder), 'restate-'));
  const service = spawn(process.execPath, [process.argv[1], '--service'], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  const server = startServer(base);
  try {
    const listener = listen(service);
    await listener.ready;
    await registered(server);
    const one = { W1: toolRound, W2: (times) => approval(listener, times) }[workload];
    await lanes(one, Number(asked.lanes), WARM_UP_SECONDS);
    const before = used(server, service);
    const { runs, seconds } = await lanes(one, Number(asked.lanes), Number(asked.seconds));
    const after = used(server, service);
    print(workload, runs, seconds, before, after);
  } finally {
    const gone = [server, service].map((child) => new Promise((done) => child.once('exit', done)));
    server.kill('SIGKILL');
    service.kill('SIGKILL');
    await Promise.all(gone);
    fs.rmSync(base, { recursive: true, force: true });
  }
}

function startServer(base) {
  const require = createRequire(import.meta.url);
  const packaged = path.dirname(require.resolve('@restatedev/restate-server/package.json'));
  const architecture = { x64: 'x64', arm64: 'arm64' }[process.arch];
  const program = path.join(packaged, '..', `restate-server-${process.platform}-${architecture}`, 'bin', 'restate-server');
  const at = (port) => `127.0.0.1:${port}`;
  const env = {
    ...process.env,
    RESTATE_DISABLE_TELEMETRY: 'true',
    RESTATE_LOG_FILTER: 'warn',
    RESTATE_LISTEN_MODE: 'tcp',
    RESTATE_BIND_IP: '127.0.0.1',
    RESTATE_BIND_PORT: String(PORTS.node),
    RESTATE_ADVERTISED_HOST: '127.0.0.1',
    RESTATE_BIND_ADDRESS: at(PORTS.node),
    RESTATE_INGRESS__BIND_ADDRESS: at(PORTS.ingress),
    RESTATE_ADMIN__BIND_ADDRESS: at(PORTS.admin),
    ...(asked.partitions ? { RESTATE_DEFAULT_NUM_PARTITIONS: asked.partitions } : {}),
  };
  const log = fs.openSync(path.join(base, 'server.log'), 'w');
  return spawn(program, ['--no-logo', '--base-dir', path.join(base, 'data')], { env, stdio: ['ignore', log, log] });
}

/** What the service says: who is held, and which tool was entered when. */
function listen(service) {
  const waiting = new Map();
  const key = (run, what) => `${run} ${what}`;
  const expect = (run, what) => new Promise((done) => waiting.set(key(run, what), done));
  let isReady;
  const ready = new Promise((done) => (isReady = done));
  service.on('message', (message) => {
    if (message.ready) return isReady();
    const name = key(message.key, message.held ? 'held' : message.entered);
    waiting.get(name)?.(message);
    waiting.delete(name);
  });
  return { ready, expect };
}

async function registered(server) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      await post(PORTS.admin, '/deployments', { uri: `http://127.0.0.1:${PORTS.service}`, force: true });
      await toolRound({});
      return;
    } catch (error) {
      if (attempt === START_ATTEMPTS_MAX || server.exitCode !== null) throw error;
      await new Promise((later) => setTimeout(later, 100));
    }
  }
}

function post(port, target, body) {
  const text = JSON.stringify(body);
  const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
  const options = { host: '127.0.0.1', port, path: target, method: 'POST', agent: connections, headers };
  return new Promise((done, failed) => {
    const request = http.request(options, (response) => {
      let answer = '';
      response.on('data', (piece) => (answer += piece));
      response.on('end', () => {
        if (response.statusCode < 300) done(answer ? JSON.parse(answer) : null);
        else failed(new Error(`${target}: ${response.statusCode} ${answer}`));
      });
    });
    request.on('error', failed);
    request.end(text);
  });
}

async function toolRound(times) {
  const begin = performance.now();
  if ((await post(PORTS.ingress, '/agent/toolRound', USER)) !== FINAL) throw new Error('another text');
  times.run = performance.now() - begin;
}

async function approval(listener, times) {
  const key = randomUUID();
  const begin = performance.now();
  const held = listener.expect(key, 'held');
  const ended = post(PORTS.ingress, '/agent/approval', { key });
  const ids = (await held).held;
  times.start_to_held = performance.now() - begin;
  let decided;
  for (const [number, call] of ['a', 'b'].entries()) {
    const entered = listener.expect(key, call);
    decided = process.hrtime.bigint();
    await post(PORTS.ingress, `/restate/awakeables/${ids[number]}/resolve`, true);
    times[`decision_${call}_to_tool_start`] = Number(BigInt((await entered).at) - decided) / 1e6;
  }
  if ((await ended) !== FINAL) throw new Error('another text');
  times.decision_b_to_end = Number(process.hrtime.bigint() - decided) / 1e6;
  times.run = performance.now() - begin;
}

async function lanes(one, count, seconds) {
  const runs = [];
  const begin = performance.now();
  const lane = async () => {
    while (performance.now() - begin < seconds * 1e3) {
      const times = {};
      await one(times);
      runs.push(times);
    }
  };
  await Promise.all(Array.from({ length: count }, lane));
  return { runs, seconds: (performance.now() - begin) / 1e3 };
}

/** Of the server and of the service, as the system counts it. */
function used(server, service) {
  const cpu = (child) => {
    const fields = fs.readFileSync(`/proc/${child.pid}/stat`, 'utf8').split(') ')[1].split(' ');
    return (Number(fields[11]) + Number(fields[12])) / 100;
  };
  const number = (file, name) =>
    Number(fs.readFileSync(`/proc/${server.pid}/${file}`, 'utf8').match(new RegExp(`${name}:\\s+(\\d+)`))[1]);
  return {
    cpu: cpu(server) + cpu(service),
    written: number('io', 'write_bytes'),
    memory: number('status', 'VmHWM') / 1024,
  };
}

function percentile(samples, percent) {
  const ordered = [...samples].sort((a, b) => a - b);
  return ordered[Math.max(1, Math.ceil((ordered.length * percent) / 100)) - 1];
}

function print(workload, runs, seconds, before, after) {
  const require = createRequire(import.meta.url);
  const version = (name) => require(`@restatedev/${name}/package.json`).version;
  const figures = {
    runs_per_s: runs.length / seconds,
    cpu_ms_per_run: ((after.cpu - before.cpu) / runs.length) * 1e3,
    bytes_written_per_run: (after.written - before.written) / runs.length,
    peak_rss_mb: after.memory,
  };
  for (const what of Object.keys(runs[0])) {
    for (const percent of [50, 99]) {
      figures[`${what}_p${percent}_ms`] = percentile(runs.map((run) => run[what]), percent);
    }
  }
  for (const [metric, value] of Object.entries(figures)) {
    const line = {
      version: `restate-server ${version('restate-server')}, sdk ${version('restate-sdk')}`,
      workload,
      metric,
      value,
      lanes: Number(asked.lanes),
      run_count: runs.length,
      durability: 'one node, its log synced before a step is acknowledged',
    };
    console.log(JSON.stringify(line));
  }
}
