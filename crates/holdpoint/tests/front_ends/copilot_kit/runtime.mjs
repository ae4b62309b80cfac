// CopilotKit's runtime for Node in front of a server. It reports its port to the process that started it.
//
//   node runtime.mjs URL KEY (plain | with-runner) PORT

import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';

import { HttpAgent } from '@ag-ui/client';
import { CopilotRuntime, InMemoryAgentRunner } from '@copilotkit/runtime/v2';
import { createCopilotNodeListener } from '@copilotkit/runtime/v2/node';

const [url, key, kind, port] = process.argv.slice(2);
// The pages have no key.
const headers = { authorization: `Bearer ${key}` };
const copilotKit = `${url}/v1/copilotkit/agent`;

/** The runner of the page docs/front-ends.md: replays threads from the server, and interrupts runs there. */
class HoldpointRunner extends InMemoryAgentRunner {
  connect({ threadId, agentId }) {
    const agent = new HttpAgent({ url: `${copilotKit}/${agentId}/connect`, headers });
    return agent.run({ threadId, runId: randomUUID(), state: {}, messages: [], tools: [], context: [], forwardedProps: {} });
  }

  async stop({ threadId }) {
    const path = `${copilotKit}/assistant/stop/${encodeURIComponent(threadId)}`;
    return (await (await fetch(path, { method: 'POST', headers })).json()).stopped;
  }
}

// A connection that breaks is a rejection in `HttpAgent` that its caller cannot catch. It would end this process.
if (kind === 'with-runner') process.on('unhandledRejection', (error) => { console.error(error); });

const runtime = new CopilotRuntime({
  agents: { assistant: new HttpAgent({ url: `${url}/v1/ag-ui/assistant`, headers }) },
  runner: kind === 'plain' ? new InMemoryAgentRunner() : new HoldpointRunner(),
});
const server = createServer(createCopilotNodeListener({ runtime, basePath: '/api/copilotkit' }));
server.listen(Number(port), '127.0.0.1', () => { process.send(server.address().port); });
process.on('disconnect', () => { process.exit(0); });
