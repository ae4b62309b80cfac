// What a page is connected to: the server itself, or CopilotKit's runtime for Node in front of it.

import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

/**
 * `runtime`: the page talks to CopilotKit's runtime, which talks AG-UI to the server. `direct`: the page talks to the server.
 * `single`: the same over the single endpoint. For the kinds of a runtime see runtime.mjs.
 */
export async function openSite(topology, url, key, kind = 'plain') {
  const direct = `${url}/v1/copilotkit`;
  const headers = { authorization: `Bearer ${key}` };
  if (topology === 'direct') return { topology, url, key, headers, runtimeUrl: direct };
  if (topology === 'single') return { topology, url, key, headers, runtimeUrl: direct, transport: 'single' };
  return new RuntimeSite(topology, url, key, kind).start(0);
}

class RuntimeSite {
  constructor(topology, url, key, kind) {
    Object.assign(this, { topology, url, key, kind, headers: {} });
  }

  async start(port) {
    const env = { ...process.env, COPILOTKIT_TELEMETRY_DISABLED: 'true' };
    const stdio = ['ignore', 'ignore', 'ignore', 'ipc'];
    const script = fileURLToPath(new URL('runtime.mjs', import.meta.url));
    this.process = fork(script, [this.url, this.key, this.kind, port], { env, stdio });
    const ended = new Promise((_, reject) => {
      this.process.once('exit', (code) => { reject(new Error(`the runtime ended with code ${code}`)); });
    });
    this.port = await Promise.race([new Promise((resolve) => { this.process.once('message', resolve); }), ended]);
    ended.catch(() => {});
    this.runtimeUrl = `http://127.0.0.1:${this.port}/api/copilotkit`;
    return this;
  }

  /** The process loses everything that it had in memory. */
  async restart() {
    const ended = new Promise((resolve) => { this.process.once('exit', resolve); });
    this.process.kill('SIGKILL');
    await ended;
    await this.start(this.port);
  }
}
