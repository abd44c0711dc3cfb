// The live panel: what /health and /metrics say, once a second while somebody looks.

import { ask, asksForKey } from "./server.js";

const INTERVAL = 1000;
const at = (id) => document.getElementById(id);
const say = (id, text) => {
  // Only what changes is written, so that nothing is read out again.
  if (at(id).textContent !== text) at(id).textContent = text;
};

/** The samples of a text in the form of OpenMetrics: name, labels and value of each. */
function parse(text) {
  return text
    .split("\n")
    .map((line) => /^([a-z_]+)(?:\{(.*)\})? (\S+)/.exec(line))
    .filter((match) => match)
    .map(([, name, labels = "", value]) => ({ name, labels, value: Number(value) }));
}

/** One state of all counters. */
class Sample {
  constructor(text) {
    this.lines = parse(text);
  }

  /** The sum over all labels; undefined for what the server does not know. */
  get(name) {
    const found = this.lines.filter((line) => line.name === `lithos_${name}`);
    return found.length > 0 ? found.reduce((sum, line) => sum + line.value, 0) : undefined;
  }

  label(name, label) {
    const line = this.lines.find((line) => line.name === `lithos_${name}`);
    return line && new RegExp(`${label}="((?:[^"\\\\]|\\\\.)*)"`).exec(line.labels)?.[1].replace(/\\(.)/g, "$1");
  }

  /** Where drafts came from, the most used first. */
  sources() {
    const passes = this.lines.filter((line) => line.name === "lithos_decode_passes_total" && line.value > 0);
    return passes.sort((a, b) => b.value - a.value).map((line) => /source="(\w+)"/.exec(line.labels)?.[1]);
  }
}

const digits = (value, most) => value.toLocaleString("en", { maximumFractionDigits: most });
/** Three digits that mean something. */
const rounded = (value) => (value < 1000 ? value.toPrecision(3) : digits(value, 0));

function bytes(value) {
  if (value === undefined) return "not known";
  const power = Math.min(Math.floor(Math.log10(Math.max(value, 1)) / 3), 4);
  return `${rounded(value / 1000 ** power)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

function seconds(value) {
  return value < 1 ? `${rounded(value * 1000)} ms` : `${rounded(value)} s`;
}

/** The counters as they were before the answers that `last` tells of, and now. */
let before, now;

function draw() {
  // Of the latest answers, where this page has seen counters change; of all before that.
  const since = (name) => {
    const value = now.get(name);
    return value === undefined ? undefined : value - (before?.get(name) ?? 0);
  };
  const ratio = (above, below) => (below > 0 && above !== undefined ? above / below : undefined);
  const optional = (value, show) => (value === undefined ? "–" : show(value));
  const decode = since("decode_seconds_total");
  const speed = ratio(since("decode_pass_tokens_total"), decode);
  if (speed !== undefined) {
    say("speed", rounded(speed));
    say("speed-note", before ? "decoding, latest answer" : "decoding, all answers so far");
  }
  const stream = now.get("read_stream_bytes");
  at("no-roofline").hidden = stream !== undefined;
  const reached = ratio(since("decode_read_bytes_total"), decode);
  const roofline = stream !== undefined && reached !== undefined;
  at("roofline").hidden = !roofline;
  if (roofline) {
    const share = (100 * reached) / stream;
    at("fill").style.width = `${Math.min(share, 100)}%`;
    at("bar").setAttribute("aria-valuenow", String(Math.round(Math.min(share, 100))));
    const above = share > 100 ? ": more than memory gives, so caches hold a part, or the machine was busy then" : "";
    say("roofline-note", `weights read at ${bytes(reached)}/s, ${digits(share, 0)} % of the ${bytes(stream)}/s measured at the start${above}`);
  }
  const perRound = ratio(since("decode_pass_tokens_total"), since("decode_passes_total"));
  say("per-round", optional(perRound, (value) => digits(value, 2)));
  say("source", now.sources().join(", ") || "–");
  const proposed = since("drafts_proposed_total");
  say("accepted", proposed > 0 ? `${digits(since("drafts_accepted_total"), 0)} of ${digits(proposed, 0)}` : "–");
  const first = ratio(since("time_to_first_token_seconds_sum"), since("time_to_first_token_seconds_count"));
  say("first", optional(first, seconds));
  const prompts = since("prompt_tokens_total");
  const cached = ratio(since("cached_tokens_total"), prompts);
  say("cached", optional(cached, (share) => `${digits(since("cached_tokens_total"), 0)} of ${digits(prompts, 0)} (${digits(100 * share, 0)} %)`));
  say("tokens", `${digits(now.get("prompt_tokens_total"), 0)}, ${digits(now.get("completion_tokens_total"), 0)}`);
  say("queue", `${now.get("requests_running")}, ${now.get("requests_waiting")}`);
  say("memory", bytes(now.get("model_memory_bytes")));
  say("resident", bytes(now.get("process_resident_memory_bytes")));
  say("context", `${digits(now.get("context_tokens"), 0)} tokens`);
  say("model", now.label("server_info", "model") ?? "");
  say("brief", speed === undefined ? "" : `${rounded(speed)} tokens/s`);
}

function state(name) {
  at("state").dataset.state = name;
  say("state-text", name);
}

async function look() {
  // Without a key, and also where the model is not there yet.
  const health = await fetch("/health");
  const { status } = await health.json();
  state(status);
  if (status === "loading" || asksForKey()) return;
  const sample = new Sample(await (await ask("/metrics")).text());
  const answers = (sample) => sample?.get("completion_tokens_total");
  if (now && answers(sample) < answers(now)) before = undefined;
  else if (now && answers(sample) > answers(now)) before = now;
  now = sample;
  draw();
}

async function watch() {
  try {
    if (!document.hidden) await look();
  } catch {
    state("unreachable");
  }
  setTimeout(watch, INTERVAL);
}

// On a narrow page the panel is one line until it is opened.
if (matchMedia("(max-width: 52rem)").matches) at("panel").open = false;
document.addEventListener("answered", () => look().catch(() => state("unreachable")));
watch();
