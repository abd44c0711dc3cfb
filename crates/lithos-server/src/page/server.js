// Requests to the server that gave this page, with its key where it asks for one.

const KEY = "lithos-key";
const dialog = document.getElementById("key-dialog");
const input = document.getElementById("key");

let asking;
/** Whether the question was put away without a key. Then only what was asked for by hand brings it back. */
let dismissed = false;

/** The key, from whoever looks at the page. Several requests that miss it share one question. */
function askForKey() {
  asking ??= new Promise((resolve) => {
    input.value = "";
    dialog.showModal();
    dialog.addEventListener(
      "close",
      () => {
        asking = undefined;
        const key = input.value.trim();
        input.value = "";
        dismissed = key === "";
        if (key) sessionStorage.setItem(KEY, key);
        resolve(key !== "");
      },
      { once: true },
    );
  });
  return asking;
}

/** Whether the question for the key stands open. */
export const asksForKey = () => asking !== undefined;

/**
 * The answer to a request; throws an Error with the server's own words where that is no success.
 */
export async function ask(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers };
  if (key) headers.authorization = `Bearer ${key}`;
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  const byHand = options.method === "POST";
  if (response.status === 401 && (byHand || !dismissed) && (await askForKey())) return ask(path, options);
  const body = await response.json().catch(() => undefined);
  throw new Error(body?.error?.message ?? `the server answered with status ${response.status}`);
}

/** The data of each server-sent event of a response. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const lines = part.split("\n").filter((line) => line.startsWith("data:"));
      if (lines.length > 0) yield lines.map((line) => line.slice(5).trimStart()).join("\n");
    }
  }
}
