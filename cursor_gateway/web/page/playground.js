// The playground: a chat, with what the model thinks and calls.

import { get } from "./api.js";
import { Chat } from "./chat.js";
import { byId, el, prose, say, show, speech } from "./dom.js";
import { count, duration } from "./format.js";

let desk = null;

export function openPlayground() {
  desk ??= new Desk(byId("desk"));
  desk.listModels();
}

class Desk {
  #chat = new Chat();
  #stop = null;
  #isListed = false;

  constructor(place) {
    this.model = el("select", { id: "model" }, el("option", { value: "auto" }, "auto"));
    this.withTool = el("input", { type: "checkbox", id: "with-tool", checked: true });
    this.question = el("textarea", {
      id: "question",
      rows: "3",
      placeholder: "Ask something",
      "aria-label": "Question",
      "aria-keyshortcuts": "Enter",
    });
    this.send = el("button.primary", { type: "submit" }, "Send");
    this.halt = button("button.primary", "Stop", () => this.#stop?.abort());
    this.halt.hidden = true;
    const log = { role: "log", "aria-label": "Conversation", tabindex: "0" };
    this.transcript = el("div.transcript", log, greeting());
    const controls = el(
      "div.controls",
      el("label.choice", "Model ", this.model),
      el("label.choice", this.withTool, " Offer the tool ", el("code", "get_time")),
      el("span.space"),
      button("button.plain-button", "New chat", () => this.#renew()),
      this.halt,
      this.send,
    );
    const onsubmit = (event) => this.#submit(event);
    const form = el("form.composer", { onsubmit }, this.question, controls);
    this.question.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) this.#submit(event);
    });
    place.append(this.transcript, form);
  }

  /** Once is enough. Where that fails `auto` still works, and the notice says what is wrong. */
  async listModels() {
    if (this.#isListed) return;
    this.#isListed = true;
    try {
      const { data } = await get("v1/models");
      const chosen = this.model.value;
      this.model.replaceChildren(...data.map(option));
      this.model.value = data.some((model) => model.id === chosen) ? chosen : data[0]?.id;
    } catch {
      this.#isListed = false;
    }
  }

  #renew() {
    this.#stop?.abort();
    this.#chat = new Chat();
    this.transcript.replaceChildren(greeting());
    this.question.focus();
  }

  async #submit(event) {
    event.preventDefault();
    const question = this.question.value.trim();
    if (!question || this.#stop) return;
    this.transcript.querySelector(".empty")?.remove();
    this.transcript.append(el("div.message.user", el("p.who", "You"), el("p.words", question)));
    this.question.value = "";
    const answer = new Answer(this.transcript);
    this.#work(new AbortController());
    try {
      await this.#fill(answer, question);
      keepingUp(this.transcript, () => answer.end());
      say("The answer is complete.");
    } catch (error) {
      this.#failed(answer, error, question);
    }
    this.#work(null);
  }

  async #fill(answer, question) {
    const options = {
      model: this.model.value,
      withTool: this.withTool.checked,
      signal: this.#stop.signal,
    };
    for await (const event of this.#chat.ask(question, options))
      keepingUp(this.transcript, () => answer[event.kind](event));
  }

  #failed(answer, error, question) {
    if (this.#stop.signal.aborted) {
      keepingUp(this.transcript, () => answer.end("stopped"));
      say("The answer was stopped.");
      return;
    }
    keepingUp(this.transcript, () => {
      answer.breakOff();
      this.transcript.append(refusal(error));
    });
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
  #spoken = [];

  constructor(transcript) {
    this.place = el("div.message.model", el("p.who", "Model"));
    this.foot = el("p.foot.quiet", "waiting…");
    this.place.append(this.foot);
    transcript.append(this.place);
    transcript.scrollTop = transcript.scrollHeight;
  }

  asked({ requestId }) {
    this.#requests.push(requestId);
    this.#part = null;
  }

  thinking({ text }) {
    this.#grow("thinking", text, () => {
      const words = el("p.words");
      return [el("details.thinking", el("summary", "Thinking"), words), words];
    });
  }

  text({ text }) {
    this.#grow("text", text, () => {
      const words = el("div.words");
      this.#spoken.push(words);
      return [words, words];
    });
  }

  call({ call }) {
    this.#token();
    const card = this.#cards.get(call.id) ?? this.#card(call);
    card.querySelector("code").textContent = `${call.name}(${call.arguments})`;
  }

  result({ call, result }) {
    this.#cards.get(call.id).append(el("p.result", el("span.quiet", "Result "), result));
  }

  usage({ usage }) {
    this.#tokens ??= { input: 0, output: 0 };
    this.#tokens.input += usage.prompt_tokens;
    this.#tokens.output += usage.completion_tokens;
  }

  /** One that broke off says so below; one that never began leaves nothing. */
  breakOff() {
    if (this.#first === null) this.place.remove();
    else this.end();
  }

  end(how) {
    for (const words of this.#spoken) show(words, speech(words.textContent));
    const figures = [
      how,
      this.#first && `first token ${duration(this.#first)}`,
      duration(performance.now() - this.#began),
      this.#tokens && `${count(this.#tokens.input)} tokens in, ${count(this.#tokens.output)} out`,
    ];
    const links = this.#requests.map((id, at) => {
      const name = this.#requests.length > 1 ? `request ${at + 1}` : "request";
      return [" · ", el("a", { href: `#requests/${id}` }, name)];
    });
    this.foot.replaceChildren(figures.filter(Boolean).join(" · "), ...links.flat());
  }

  #card(call) {
    const card = el("div.call", el("p", el("span.quiet", "Tool call "), el("code")));
    this.#cards.set(call.id, card);
    this.foot.before(card);
    this.#part = null;
    return card;
  }

  #grow(kind, text, make) {
    this.#token();
    if (this.#part?.kind !== kind) {
      const [element, words] = make();
      this.foot.before(element);
      this.#part = { kind, words };
    }
    this.#part.words.append(text);
  }

  #token() {
    this.#first ??= performance.now() - this.#began;
    if (this.foot.textContent) this.foot.textContent = "";
  }
}

/** Stays at the end while `grow` makes it longer, unless the reader had gone back before. */
function keepingUp(transcript, grow) {
  const { scrollHeight, scrollTop, clientHeight } = transcript;
  const wasAtEnd = scrollHeight - scrollTop - clientHeight < 40;
  grow();
  if (wasAtEnd) transcript.scrollTop = transcript.scrollHeight;
}

/** An error as the gateway words it, which says what to do. */
function refusal({ code, status, message, requestId }) {
  const name = status ? `${code ?? "status"} (${status})` : code;
  const link = requestId && el("a", { href: `#requests/${requestId}` }, requestId);
  return el(
    "div.notice.bad",
    { role: "alert" },
    el("p", name && [el("b", name), " "], prose(message)),
    link && el("p.quiet", "Request ", link),
  );
}

const option = ({ id, name }) => el("option", { value: id }, name === id ? id : `${id} – ${name}`);

const button = (kind, words, onclick) => el(kind, { type: "button", onclick }, words);

const greeting = () =>
  el(
    "p.empty",
    "A chat through the gateway, as a client has it. Ask for the time to see a tool call go round: ",
    "the model asks, this page answers.",
  );
