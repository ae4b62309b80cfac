// CopilotKit's runtime for Node in front of a server. It reports its port to the process that started it.
//
//   node runtime.mjs URL (plain | with-holdpoint) PORT

import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';

import { HttpAgent } from '@ag-ui/client';
import { CopilotRuntime, InMemoryAgentRunner } from '@copilotkit/runtime/v2';
import { createCopilotNodeListener } from '@copilotkit/runtime/v2/node';

const [url, kind, port] = process.argv.slice(2);
const copilotKit = `${url}/v1/copilotkit/agent`;

/** Interrupts the run on the server as well. `HttpAgent` only closes its connection. */
class StoppingAgent extends HttpAgent {
  abortRun() {
    const path = `${copilotKit}/assistant/stop/${encodeURIComponent(this.threadId)}`;
    fetch(path, { method: 'POST', headers: this.headers }).catch(console.error);
    super.abortRun();
  }
}

/** Replays a thread from the server. `InMemoryAgentRunner` replays what this process has seen of it. */
class ReplayingRunner extends InMemoryAgentRunner {
  connect({ threadId, agentId, headers }) {
    const agent = new HttpAgent({ url: `${copilotKit}/${agentId}/connect`, headers });
    return agent.run({ threadId, runId: randomUUID(), state: {}, messages: [], tools: [], context: [], forwardedProps: {} });
  }
}

const [Agent, Runner] = kind === 'plain' ? [HttpAgent, InMemoryAgentRunner] : [StoppingAgent, ReplayingRunner];
const agents = { assistant: new Agent({ url: `${url}/v1/ag-ui/assistant` }) };
const runtime = new CopilotRuntime({ agents, runner: new Runner() });
const server = createServer(createCopilotNodeListener({ runtime, basePath: '/api/copilotkit' }));
server.listen(Number(port), '127.0.0.1', () => { process.send(server.address().port); });
process.on('disconnect', () => { process.exit(0); });
