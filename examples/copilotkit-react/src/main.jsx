import { CopilotChat, CopilotKitProvider, useDefaultRenderTool, useInterrupt } from '@copilotkit/react-core/v2';
import '@copilotkit/react-core/v2/styles.css';
import { createRoot } from 'react-dom/client';

const agent = 'clerk';

/** Each held call is an interrupt. The run continues once every one of them is answered. */
function Approvals() {
  useDefaultRenderTool();
  useInterrupt({
    agentId: agent,
    render: ({ interrupts, resolve }) => interrupts.map(({ id, message, metadata }) => (
      <section key={id} className="approval">
        <p>{message}</p>
        <pre>{JSON.stringify(metadata.arguments)}</pre>
        <button onClick={() => resolve({ approved: true }, id)}>Approve</button>
        <button onClick={() => resolve({ approved: false, reason: 'Not now.' }, id)}>Reject</button>
      </section>
    )),
  });
  return null;
}

createRoot(document.getElementById('root')).render(
  <CopilotKitProvider runtimeUrl="/v1/copilotkit" enableInspector={false}>
    <Approvals />
    <CopilotChat agentId={agent} threadId="minutes" />
  </CopilotKitProvider>,
);
