/** Talks to the server: plain requests, streams of events, and the token where one is needed. */

const KEY = "whichtoken-token";

/** An error whose message can be shown as it is. */
export class ApiError extends Error {
  constructor({ kind, message, status }) {
    super(message);
    this.kind = kind;
    this.status = status;
  }
}

/** Takes the token out of the address `#token=...`, and returns whether there was one. */
export function takeToken() {
  const found = /^#token=([^&]+)/.exec(location.hash);
  if (!found) return false;
  setToken(decodeURIComponent(found[1]));
  history.replaceState(null, "", location.pathname);
  return true;
}

export const setToken = (token) => sessionStorage.setItem(KEY, token);

async function send(method, path, body, signal) {
  const headers = {};
  const token = sessionStorage.getItem(KEY);
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError({
      kind: "Unreachable",
      message: "the server does not answer; is `whichtoken serve` still running?",
      status: 0,
    });
  }
  if (response.ok) return response;
  const known = await response.json().catch(() => null);
  throw new ApiError(
    known?.error ?? {
      kind: "HTTP",
      message: `the server answered with status ${response.status}`,
      status: response.status,
    },
  );
}

export const get = async (path) => (await send("GET", path)).json();

export const post = async (path, body, signal) => (await send("POST", path, body, signal)).json();

/** Returns the answer's bytes and the file name that the server suggests. */
export async function postForFile(path, body) {
  const response = await send("POST", path, body);
  const name = /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition") ?? "");
  return [await response.blob(), name?.[1] ?? "whichtoken"];
}

/** Yields [event, data] pairs of a job until it is done. Aborting the signal cancels the job on the server. */
export async function* stream(path, body, signal) {
  const response = await send("POST", path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let isDone = false;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    rest += value;
    const blocks = rest.split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = parse(block);
      if (event === null) continue;
      const [name, data] = event;
      if (name === "error") throw new ApiError(data.error ?? data);
      if (name === "cancelled") throw new DOMException("the job was cancelled", "AbortError");
      isDone ||= name === "done";
      yield event;
    }
  }
  if (isDone) return; // only now: leaving earlier would abort the connection
  throw new ApiError({
    kind: "Unreachable",
    message: "the server ended the connection before the job was done; try again",
    status: 0,
  });
}

function parse(block) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  return data.length ? [name, JSON.parse(data.join("\n"))] : null;
}
