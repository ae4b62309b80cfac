// A chat of one release of the AI SDK, without a page: the state that a framework would keep is a list here.

import assert from 'node:assert/strict';

export async function loadRelease(name) {
  const sdk = await import(name);

  class ListState {
    status = 'ready';
    error = undefined;
    messages = [];
    pushMessage = (message) => { this.messages = [...this.messages, message]; };
    popMessage = () => { this.messages = this.messages.slice(0, -1); };
    replaceMessage = (index, message) => {
      const { messages } = this;
      this.messages = [...messages.slice(0, index), structuredClone(message), ...messages.slice(index + 1)];
    };
    snapshot = (value) => structuredClone(value);
  }

  class ListChat extends sdk.AbstractChat {
    constructor(options) {
      const state = new ListState();
      state.messages = options.messages ?? [];
      super({ ...options, state });
    }
  }

  const { lastAssistantMessageIsCompleteWithApprovalResponses: withApprovals,
    lastAssistantMessageIsCompleteWithToolCalls: withToolCalls } = sdk;
  // What the documentation of the SDK recommends for approvals and client tools together.
  const complete = (state) => withApprovals(state) || withToolCalls(state);
  const anyAnswered = ({ messages }) => messages.at(-1).parts.some((part) => part.state === 'approval-responded');
  return { ListChat, DefaultChatTransport: sdk.DefaultChatTransport, complete, anyAnswered };
}

/** One user in front of one page. `holdpoint` is where the server is: { url, key, agent }. */
export class Page {
  constructor(release, holdpoint, chatId, options = {}) {
    this.holdpoint = holdpoint;
    this.chatId = chatId;
    this.posts = 0;
    this.errors = [];
    this.called = [];
    this.api = `${holdpoint.url}/v1/ai-sdk/${holdpoint.agent}`;
    const page = this;
    this.chat = new release.ListChat({
      id: chatId,
      messages: options.messages,
      transport: new release.DefaultChatTransport({
        api: this.api,
        headers: { authorization: `Bearer ${holdpoint.key}` },
        fetch(url, init) {
          page.posts += init?.method === 'POST' ? 1 : 0;
          // A page that answers for ever is a failure, and must not run for ever.
          assert.ok(page.posts < 20, 'the page posts again and again');
          return fetch(url, init);
        },
      }),
      sendAutomaticallyWhen: options.sendWhen === undefined ? release.complete : options.sendWhen,
      onError: (error) => page.errors.push(error.message),
      onToolCall: ({ toolCall }) => {
        if (toolCall.dynamic) return;
        page.called.push(toolCall.toolName);
        if (options.onClientTool) options.onClientTool(page, toolCall);
      },
    });
  }

  get messages() { return this.chat.messages; }
  get answer() { return this.messages.at(-1); }
  get text() { return this.answer.parts.filter((part) => part.type === 'text').map((part) => part.text).join(''); }
  get tools() { return this.answer.parts.filter((part) => part.type === 'dynamic-tool' || part.type.startsWith('tool-')); }

  say(text) { return this.chat.sendMessage({ text }); }

  /** Waits until no stream is open and `done` holds. */
  async settled(done, what) {
    const deadline = Date.now() + 30_000;
    while (!(['ready', 'error'].includes(this.chat.status) && done(this))) {
      assert.ok(Date.now() < deadline, `${what ?? done}: ${this.chat.status} ${JSON.stringify(this.messages)} ${this.errors}`);
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  async rest(method, path, body) {
    const headers = { authorization: `Bearer ${this.holdpoint.key}`, 'content-type': 'application/json' };
    const response = await fetch(this.holdpoint.url + path, { method, headers, body: body && JSON.stringify(body) });
    assert.ok(response.ok, `${method} ${path}: ${response.status} ${await response.clone().text()}`);
    return response.status === 204 ? null : response.json();
  }

  async stored() {
    return (await this.rest('GET', `/v1/ai-sdk/${this.holdpoint.agent}/${this.chatId}/messages`)).messages;
  }

  /** What a reload of the page would show must be what the page shows. */
  async matchesReload() {
    assert.deepEqual(shape(await this.stored()), shape(this.messages));
  }
}

/** Messages without what a client adds for itself: its own answers to approvals, and ids of messages that it edited. */
function shape(messages) {
  return JSON.parse(JSON.stringify(messages)).map((message) => ({
    role: message.role,
    id: message.role === 'assistant' ? message.id : undefined,
    parts: message.parts.filter((part) => part.type !== 'step-start' && !part.type.startsWith('data-')).map((part) => ({
      type: part.type, text: part.text, state: part.state, tool: part.toolName, call: part.toolCallId, input: part.input,
      output: part.output, errorText: part.errorText,
    })),
  }));
}
