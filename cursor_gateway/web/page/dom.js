// Building the page. Text is only ever put in as text: nothing here can turn a string into markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** `el("p.quiet", { id: "x" }, "words", ...)`: properties may be left out, as may any child. */
export function el(kind, ...rest) {
  const [tag, ...classes] = kind.split(".");
  const element = document.createElement(tag);
  element.classList.add(...classes);
  return filled(element, rest);
}

export function svg(tag, ...rest) {
  return filled(document.createElementNS(SVG, tag), rest);
}

function filled(element, [first, ...others]) {
  const hasProperties = first?.constructor === Object;
  for (const [name, value] of Object.entries(hasProperties ? first : {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  const children = hasProperties ? others : [first, ...others];
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

/** Replaces what is in `element`, unless it is that already: focus and selection survive. */
export function show(element, ...children) {
  const fresh = filled(element.cloneNode(false), children);
  if (!fresh.isEqualNode(element)) element.replaceChildren(...fresh.childNodes);
}

/** The gateway's words for people: what stands between backticks is to be typed. */
export function prose(text) {
  return text.split(/`([^`]+)`/).map((part, at) => (at % 2 ? el("code", part) : part));
}

/** A model's words: of its Markdown only the code is shown as such, the rest as it was written. */
export function speech(text) {
  const parts = text.split(/(?:^|\n+)```[^\n]*\n([\s\S]*?)\n```[^\S\n]*(?:\n+|$)/);
  const isCode = (at) => at % 2;
  return parts.map((part, at) => (isCode(at) ? el("pre", part.trimEnd()) : prose(part)));
}

/** Says something to those who do not see it happen. */
export function say(words) {
  byId("said").textContent = words;
}

export function copyButton(what, text) {
  const name = el("span.hidden", ` ${what}`);
  const button = el("button.copy", { type: "button" }, "Copy", name);
  button.addEventListener("click", async () => {
    const done = await copied(text());
    button.firstChild.data = done ? "Copied" : "Select it";
    say(done ? `Copied ${what}` : "This browser does not let the page copy.");
    setTimeout(() => button.firstChild.replaceWith("Copy"), 1500);
  });
  return button;
}

// Browsers offer the clipboard to https and to loopback only.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** Something to copy, as it must be typed. */
export function snippet(what, text, { label = what } = {}) {
  const code = el("pre", { tabindex: "0", "aria-label": label }, text);
  const copy = copyButton(what, () => text);
  return el("div.snippet", code, copy);
}

export function mark(kind, words) {
  return el("span", { class: `mark ${kind}` }, words);
}
