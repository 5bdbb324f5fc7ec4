// The studio's HTTP API: the token, JSON requests, and results that arrive line by line.

const KEY = "picme-token";

// The token comes after the #, which browsers never send anywhere; it is kept for reloads of this tab only.
function findToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname);
  }
  return given ?? sessionStorage.getItem(KEY) ?? "";
}

const token = findToken();

export class ApiError extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function request(path, body, signal) {
  const headers = { Authorization: `Bearer ${token}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  for (let attempt = 0; ; attempt++) {
    const method = body === undefined ? "GET" : "POST";
    const response = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal });
    if (response.ok) return response;
    if (response.status === 429 && attempt < 5) {
      const seconds = Number(response.headers.get("Retry-After")) || 1;
      await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
      continue;
    }
    if (response.status === 401) {
      throw new ApiError(401, "This page does not know its token: open the address that “picme studio” printed.");
    }
    const found = await response.json().catch(() => ({ error: response.statusText }));
    throw new ApiError(response.status, found.error);
  }
}

export async function json(path, body, signal) {
  return (await request(path, body, signal)).json();
}

// A picture, or null where there is none.
export async function blob(path, body) {
  const response = await request(path, body);
  return response.status === 204 ? null : response.blob();
}

// Results as they are decoded; `preview` is an ImageBitmap.
export async function* results(path, body, signal) {
  const response = await request(path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const found = JSON.parse(line);
      if (found.error) throw new ApiError(500, found.error);
      found.preview = await createImageBitmap(fromBase64(found.preview));
      yield found;
    }
  }
}

function fromBase64(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Blob([bytes], { type: "image/png" });
}

export function toBase64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
