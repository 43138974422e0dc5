// A conversation with the gateway, and the tool that the page itself executes.

import { frames, post, Refused } from "./api.js";

// A model that goes in circles is stopped by the gateway much earlier.
const MOST_ROUNDS = 10;

const GET_TIME = {
  type: "function",
  function: {
    name: "get_time",
    description: "The present date and time, as the user's browser knows it.",
    parameters: {
      type: "object",
      properties: {
        timezone: {
          type: "string",
          description: "An IANA name, such as Europe/Berlin. The user's own if left out.",
        },
      },
    },
  },
};

function getTime({ timezone } = {}) {
  return new Intl.DateTimeFormat("en-GB", {
    dateStyle: "full",
    timeStyle: "long",
    timeZone: timezone || undefined,
  }).format(new Date());
}

/** What the tool says to a call; a model reads its mistakes as results too. */
function executed(call) {
  if (call.name !== GET_TIME.function.name) return `There is no tool ${call.name} here.`;
  try {
    return getTime(JSON.parse(call.arguments || "{}"));
  } catch (error) {
    return `That did not work: ${error.message}`;
  }
}

export class Chat {
  #messages = [];

  /**
   * Asks, executes what is called, and asks on, until the model is done. Yields what happens:
   * `asked`, `thinking`, `text`, `call`, `result`, `usage`. A question that fails was never asked;
   * one whose answer is stopped keeps what was said.
   */
  async *ask(question, { model, withTool, signal }) {
    const before = this.#messages.length;
    this.#messages.push({ role: "user", content: question });
    let turn;
    try {
      for (let round = 0; round < MOST_ROUNDS; round += 1) {
        turn = new Turn();
        yield* this.#round(turn, { model, withTool, signal });
        if (!turn.calls.length) return;
        yield* this.#execute(turn.calls);
      }
      throw new Refused({
        message: `The model called tools ${MOST_ROUNDS} times in a row; the page stops here.`,
      });
    } catch (error) {
      if (signal.aborted && turn?.text && !turn.calls.length)
        this.#messages.push({ role: "assistant", content: turn.text });
      else this.#messages.length = before;
      throw error;
    }
  }

  async *#round(turn, { model, withTool, signal }) {
    const response = await post(
      "v1/chat/completions",
      {
        model,
        stream: true,
        stream_options: { include_usage: true },
        messages: this.#messages,
        ...(withTool && { tools: [GET_TIME] }),
      },
      { signal },
    );
    yield { kind: "asked", requestId: response.headers.get("X-Request-Id") };
    for await (const { data } of frames(response)) {
      if (data === "[DONE]") {
        this.#messages.push(turn.message());
        return;
      }
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Refused(chunk.error);
      yield* turn.take(chunk);
    }
    throw new Refused({ message: "The answer broke off.", code: "broken_off" });
  }

  *#execute(calls) {
    for (const call of calls) {
      const result = executed(call);
      this.#messages.push({ role: "tool", tool_call_id: call.id, content: result });
      yield { kind: "result", call, result };
    }
  }
}

/** One answer, put together from its pieces. */
class Turn {
  text = "";
  calls = [];

  *take({ choices, usage }) {
    if (usage) yield { kind: "usage", usage };
    const delta = choices?.[0]?.delta ?? {};
    if (delta.reasoning_content) yield { kind: "thinking", text: delta.reasoning_content };
    if (delta.content) {
      this.text += delta.content;
      yield { kind: "text", text: delta.content };
    }
    for (const piece of delta.tool_calls ?? []) yield* this.#call(piece);
  }

  *#call({ index, id, function: { name, arguments: words } }) {
    const call = (this.calls[index] ??= { id, name, arguments: "" });
    call.arguments += words ?? "";
    yield { kind: "call", call };
  }

  message() {
    const calls = this.calls.map(({ id, name, arguments: words }) => ({
      id,
      type: "function",
      function: { name, arguments: words },
    }));
    return {
      role: "assistant",
      content: this.text || null,
      ...(calls.length && { tool_calls: calls }),
    };
  }
}
