import { useChat } from '@ai-sdk/react';
import {
  DefaultChatTransport, getToolOrDynamicToolName, isTextUIPart, isToolUIPart,
  lastAssistantMessageIsCompleteWithApprovalResponses,
} from 'ai';
import { useState } from 'react';
import { createRoot } from 'react-dom/client';

const api = '/v1/ai-sdk/clerk';
const chatId = 'minutes';

function Chat({ stored }) {
  const [text, setText] = useState('Write the minutes.');
  const { messages, status, error, sendMessage, addToolApprovalResponse } = useChat({
    id: chatId,
    messages: stored,
    resume: true, // Follows a response that is being written.
    transport: new DefaultChatTransport({ api }),
    // Posts once every approval of the answer is decided.
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  const send = (event) => {
    event.preventDefault();
    sendMessage({ text });
  };
  return (
    <main>
      <h1>Minutes</h1>
      {messages.map(({ id, role, parts }) => (
        <article key={id}>
          <b>{role}</b>
          {parts.map((part, index) => <Part key={index} part={part} decide={addToolApprovalResponse} />)}
        </article>
      ))}
      {error && <p role="alert">{error.message} <button onClick={() => location.reload()}>Load again</button></p>}
      <form onSubmit={send}>
        <input aria-label="Message" value={text} onChange={(event) => setText(event.target.value)} />{' '}
        <button disabled={status === 'streaming' || status === 'submitted'}>Send</button>
        {/* Closing the stream does not stop a run: this does. */}
        <button type="button" onClick={() => fetch(`${api}/${chatId}/stop`, { method: 'POST' })}>Stop</button>
      </form>
    </main>
  );
}

function Part({ part, decide }) {
  if (isTextUIPart(part)) return <p>{part.text}</p>;
  if (!isToolUIPart(part)) return null;
  const { state, input, output, errorText, approval } = part;
  return (
    <section>
      <pre>{getToolOrDynamicToolName(part)} {JSON.stringify(input)}</pre>
      {state === 'approval-requested' && (
        <p>
          <button onClick={() => decide({ id: approval.id, approved: true })}>Approve</button>
          <button onClick={() => decide({ id: approval.id, approved: false })}>Reject</button>
        </p>
      )}
      {state === 'approval-responded' && <p>{approval.approved ? 'Approved' : 'Rejected'}</p>}
      {state === 'output-available' && <pre>{JSON.stringify(output)}</pre>}
      {state === 'output-denied' && <p>Rejected{approval.reason && `: ${approval.reason}`}</p>}
      {state === 'output-error' && <p>{errorText}</p>}
    </section>
  );
}

/** The messages that the server has, calls that wait for an approval included; none before the first message. */
async function storedMessages() {
  const response = await fetch(`${api}/${chatId}/messages`);
  if (response.status === 404) return [];
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error.message);
  return answer.messages;
}

createRoot(document.getElementById('root')).render(<Chat stored={await storedMessages()} />);
