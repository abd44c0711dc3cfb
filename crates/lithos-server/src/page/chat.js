// The conversation. What the model says is only ever set as text, never as HTML.

import { ask, events } from "./server.js";

const at = (id) => document.getElementById(id);
const [log, form, prompt, send, stop, problem] = ["log", "form", "prompt", "send", "stop", "problem"].map(at);
const hint = at("hint");

/** What was said so far, as the server takes it. */
let messages = [];
/** Ends the answer that is on its way. */
let running;

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

/** A text as nodes: code between fences in boxes, all else as it is. */
function shown(text) {
  return text.split(/^```/m).map((part, index) => {
    if (index % 2 === 0) return document.createTextNode(index > 0 ? part.replace(/^\n/, "") : part);
    const box = element("pre");
    // The first line names the language.
    box.append(element("code", "", part.slice(part.indexOf("\n") + 1)));
    // What is wider than the page must be reachable with the keyboard.
    box.tabIndex = 0;
    return box;
  });
}

function add(role, name) {
  hint.hidden = true;
  const article = element("article", role);
  article.append(element("h3", "", name), element("div", "text"));
  log.append(article);
  return article;
}

/** Whether the end of the conversation is in view; whoever reads further up is left there. */
const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 80;
const toEnd = () => (log.scrollTop = log.scrollHeight);

/** An answer as it comes in. It is drawn at most once a frame. */
class Answer {
  text = "";
  thought = "";
  usage;
  reason;

  constructor() {
    this.article = add("assistant", "Lithos");
    this.article.setAttribute("aria-busy", "true");
    toEnd();
  }

  take(chunk) {
    const choice = chunk.choices?.[0];
    this.text += choice?.delta?.content ?? "";
    this.thought += choice?.delta?.reasoning_content ?? "";
    this.reason = choice?.finish_reason ?? this.reason;
    this.usage = chunk.usage ?? this.usage;
    this.frame ??= requestAnimationFrame(() => this.draw());
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = undefined;
    const follow = atEnd();
    this.article.querySelector(".text").replaceChildren(...shown(this.text));
    if (this.thought) {
      if (!this.thoughts) {
        this.thoughts = element("details");
        this.thoughts.append(element("summary", "", "Thinking"), element("div"));
        this.article.querySelector(".text").before(this.thoughts);
      }
      this.thoughts.lastChild.textContent = this.thought;
    }
    if (follow) toEnd();
  }

  end(stopped) {
    this.draw();
    this.article.removeAttribute("aria-busy");
    const notes = [];
    if (stopped) notes.push("stopped");
    if (this.reason === "length") notes.push("ended at the limit of tokens");
    if (this.usage) {
      notes.push(`${this.usage.prompt_tokens} + ${this.usage.completion_tokens} tokens`);
      const cached = this.usage.prompt_tokens_details?.cached_tokens;
      if (cached) notes.push(`${cached} from cache`);
    }
    const follow = atEnd();
    if (notes.length > 0) this.article.append(element("footer", "", notes.join(" · ")));
    if (follow) toEnd();
  }
}

function complain(error) {
  problem.textContent = error.message;
  problem.hidden = false;
}

function setRunning(controller) {
  running = controller;
  send.hidden = running !== undefined;
  stop.hidden = running === undefined;
}

async function say(text) {
  const mine = add("user", "You");
  mine.querySelector(".text").textContent = text;
  messages.push({ role: "user", content: text });
  const conversation = messages;
  const controller = new AbortController();
  setRunning(controller);
  problem.hidden = true;
  const answer = new Answer();
  try {
    const body = { messages, stream: true, stream_options: { include_usage: true } };
    const response = await ask("/v1/chat/completions", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal: controller.signal,
    });
    for await (const data of events(response)) {
      if (data === "[DONE]") break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      answer.take(chunk);
    }
  } catch (error) {
    if (!controller.signal.aborted && conversation === messages) complain(error);
  }
  answer.end(controller.signal.aborted);
  if (conversation !== messages) return;
  if (answer.text) {
    messages.push({ role: "assistant", content: answer.text });
  } else {
    // Without an answer the question is asked anew, not twice.
    messages.pop();
    answer.article.remove();
    mine.remove();
    if (!prompt.value) prompt.value = text;
    hint.hidden = messages.length > 0;
  }
  setRunning(undefined);
  document.dispatchEvent(new Event("answered"));
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = prompt.value.trim();
  if (!text || running) return;
  prompt.value = "";
  say(text);
  prompt.focus();
});

prompt.addEventListener("keydown", (event) => {
  // Enter also ends the composition of a character.
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    form.requestSubmit();
  }
});

function stopAnswer() {
  running?.abort();
  prompt.focus();
}

stop.addEventListener("click", stopAnswer);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && running) stopAnswer();
});

at("new").addEventListener("click", () => {
  messages = [];
  running?.abort();
  setRunning(undefined);
  log.replaceChildren(hint);
  hint.hidden = false;
  problem.hidden = true;
  prompt.focus();
});
