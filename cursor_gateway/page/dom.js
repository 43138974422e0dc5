// Building the page. Text is only ever put in as text: nothing here can turn a string into markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function el(tag, properties, ...children) {
  return filled(document.createElement(tag), properties, children);
}

export function svg(tag, properties, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

/** Replaces what is in `element`, unless it is that already: focus and selection survive. */
export function show(element, ...children) {
  const fresh = filled(element.cloneNode(false), {}, children);
  if (!fresh.isEqualNode(element)) element.replaceChildren(...fresh.childNodes);
}

/** The gateway's words for people: what stands between backticks is to be typed. */
export function prose(text) {
  return text.split(/`([^`]+)`/).map((part, at) => (at % 2 ? el("code", {}, part) : part));
}

/** Says something to those who do not see it happen. */
export function say(words) {
  byId("said").textContent = words;
}

export function copyButton(what, text) {
  const button = el("button", { type: "button", class: "copy" }, "Copy", el("span", { class: "hidden" }, ` ${what}`));
  button.addEventListener("click", async () => {
    const done = await copied(text());
    button.firstChild.data = done ? "Copied" : "Select it";
    say(done ? `Copied ${what}` : "This browser does not let the page copy.");
    setTimeout(() => { button.firstChild.data = "Copy"; }, 1500);
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
  return el("div", { class: "snippet" }, code, copyButton(what, () => text));
}

export function mark(kind, words) {
  return el("span", { class: `mark ${kind}` }, words);
}
