// The playground: a chat, with what the model thinks and calls.

import { get } from "./api.js";
import { Chat } from "./chat.js";
import { byId, el, prose, say } from "./dom.js";
import { count, duration } from "./format.js";

let desk = null;

export function openPlayground() {
  desk ??= new Desk(byId("desk"));
}

class Desk {
  #chat = new Chat();
  #stop = null;

  constructor(place) {
    this.model = el("select", { id: "model" }, el("option", { value: "auto" }, "auto"));
    this.withTool = el("input", { type: "checkbox", id: "with-tool", checked: true });
    this.question = el("textarea", { id: "question", rows: "3", placeholder: "Ask something", "aria-label": "Question", "aria-keyshortcuts": "Enter" });
    this.send = el("button", { type: "submit", class: "primary" }, "Send");
    this.halt = el("button", { type: "button", hidden: true, onclick: () => this.#stop?.abort() }, "Stop");
    this.transcript = el("div", { class: "transcript", role: "log", "aria-label": "Conversation", tabindex: "0" }, this.#greeting());
    const form = el("form", { class: "composer", onsubmit: (event) => this.#submit(event) },
      this.question,
      el("div", { class: "controls" },
        el("label", { class: "choice" }, "Model ", this.model),
        el("label", { class: "choice" }, this.withTool, " Offer the tool ", el("code", {}, "get_time")),
        el("span", { class: "space" }),
        el("button", { type: "button", class: "plain-button", onclick: () => this.#renew() }, "New chat"),
        this.halt, this.send));
    this.question.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) this.#submit(event);
    });
    place.append(this.transcript, form);
    this.#listModels();
  }

  #greeting() {
    return el("p", { class: "empty" }, "A chat through the gateway, as a client has it. Ask for the time to see a tool call go round: the model asks, this page answers.");
  }

  async #listModels() {
    try {
      const { data } = await get("v1/models");
      const ids = data.map((model) => model.id);
      this.model.replaceChildren(...data.map(({ id, name }) => el("option", { value: id }, name && name !== id ? `${id} – ${name}` : id)));
      if (ids.includes("auto")) this.model.value = "auto";
    } catch (error) {
      this.transcript.append(refusal(error));
    }
  }

  #renew() {
    this.#stop?.abort();
    this.#chat = new Chat();
    this.transcript.replaceChildren(this.#greeting());
    this.question.focus();
  }

  async #submit(event) {
    event.preventDefault();
    const question = this.question.value.trim();
    if (!question || this.#stop) return;
    this.transcript.querySelector(".empty")?.remove();
    this.transcript.append(el("div", { class: "message user" }, el("p", { class: "who" }, "You"), el("p", { class: "words" }, question)));
    this.question.value = "";
    const answer = new Answer(this.transcript);
    this.#work(new AbortController());
    try {
      await this.#fill(answer, question);
      answer.end();
      say("The answer is complete.");
    } catch (error) {
      this.#failed(answer, error, question);
    }
    this.#work(null);
  }

  async #fill(answer, question) {
    const options = { model: this.model.value, withTool: this.withTool.checked, signal: this.#stop.signal };
    for await (const event of this.#chat.ask(question, options)) answer[event.kind](event);
  }

  #failed(answer, error, question) {
    if (this.#stop.signal.aborted) {
      answer.end("stopped");
      say("The answer was stopped.");
      return;
    }
    answer.end();
    this.transcript.append(refusal(error));
    this.question.value ||= question;
    say("That failed.");
  }

  #work(stop) {
    this.#stop = stop;
    this.halt.hidden = !stop;
    this.send.hidden = Boolean(stop);
    this.transcript.setAttribute("aria-busy", String(Boolean(stop)));
    if (!stop) this.question.focus();
  }
}

/** One answer as it grows. Its methods are named after what happens to it. */
class Answer {
  #began = performance.now();
  #first = null;
  #requests = [];
  #tokens = null;
  #cards = new Map();
  #part = null;

  constructor(transcript) {
    this.transcript = transcript;
    this.place = el("div", { class: "message model" }, el("p", { class: "who" }, "Model"));
    this.foot = el("p", { class: "foot quiet" }, "waiting…");
    this.place.append(this.foot);
    transcript.append(this.place);
    this.#follow(true);
  }

  asked({ requestId }) {
    this.#requests.push(requestId);
    this.#part = null;
  }

  thinking({ text }) {
    this.#grow("thinking", text, () => {
      const words = el("p", { class: "words" });
      return [el("details", { class: "thinking" }, el("summary", {}, "Thinking"), words), words];
    });
  }

  text({ text }) {
    this.#grow("text", text, () => {
      const words = el("p", { class: "words" });
      return [words, words];
    });
  }

  call({ call }) {
    this.#token();
    const card = this.#cards.get(call.id) ?? this.#card(call);
    card.querySelector("code").textContent = `${call.name}(${call.arguments})`;
  }

  result({ call, result }) {
    this.#cards.get(call.id).append(el("p", { class: "result" }, el("span", { class: "quiet" }, "Result "), result));
  }

  usage({ usage }) {
    this.#tokens ??= { input: 0, output: 0 };
    this.#tokens.input += usage.prompt_tokens;
    this.#tokens.output += usage.completion_tokens;
  }

  end(how) {
    const parts = [
      how,
      this.#first && `first token ${duration(this.#first)}`,
      duration(performance.now() - this.#began),
      this.#tokens && `${count(this.#tokens.input)} tokens in, ${count(this.#tokens.output)} out`,
    ];
    this.foot.replaceChildren(parts.filter(Boolean).join(" · "), ...this.#requests.flatMap((id, at) =>
      [" · ", el("a", { href: `#requests/${id}` }, this.#requests.length > 1 ? `request ${at + 1}` : "request")]));
  }

  #card(call) {
    const card = el("div", { class: "call" }, el("p", {}, el("span", { class: "quiet" }, "Tool call "), el("code")));
    this.#cards.set(call.id, card);
    this.#add(card);
    this.#part = null;
    return card;
  }

  #grow(kind, text, make) {
    this.#token();
    if (this.#part?.kind !== kind) {
      const [element, words] = make();
      this.#add(element);
      this.#part = { kind, words };
    }
    this.#part.words.append(text);
    this.#follow();
  }

  #add(element) {
    this.foot.before(element);
    this.#follow();
  }

  #token() {
    this.#first ??= performance.now() - this.#began;
    if (this.foot.textContent) this.foot.textContent = "";
  }

  /** Stays at the end, unless the reader has gone back. */
  #follow(always = false) {
    const { scrollHeight, scrollTop, clientHeight } = this.transcript;
    if (always || scrollHeight - scrollTop - clientHeight < 120) this.transcript.scrollTop = scrollHeight;
  }
}

/** An error as the gateway words it, which says what to do. */
function refusal(error) {
  return el("div", { class: "notice bad", role: "alert" },
    el("p", {}, el("b", {}, error.code ?? "no answer"), error.status && ` (${error.status})`, " ", prose(error.message)),
    error.requestId && el("p", { class: "quiet" }, "Request ", el("a", { href: `#requests/${error.requestId}` }, error.requestId)));
}
