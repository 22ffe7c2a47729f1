// Calls of the console's API. Every request has the header that pages of other origins cannot send.

import { Bytes, toBase64 } from "./bytes";
import { named, remember, self } from "./session";

const base = "api/";
const header = { "X-Vigil-Console": "1" };

export class Failure extends Error {
  constructor(public code: string, text: string, public next = "", public current: any = null, public imported: any = null) {
    super(text);
  }
}

type Params = Record<string, string | number | Bytes | undefined | null>;

function address(path: string, params: Params): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(params)) {
    if (v === undefined || v === null || v === "") continue;
    q.set(k, v instanceof Uint8Array ? toBase64(v) : String(v));
  }
  const s = q.toString();
  return base + path + (s ? "?" + s : "");
}

async function failure(res: Response): Promise<Failure> {
  const text = await res.text();
  try {
    const f = JSON.parse(text);
    return new Failure(f.code, f.error, f.next, f.current, f.imported);
  } catch {
    return new Failure("internal", text.slice(0, 500) || res.statusText);
  }
}

// A member that hangs accepts connections and answers nothing, so that every wait has a limit. The member gives a request up after 30 s, and
// a stream has a line every 2 s.
const answerTime = 35000, silence = 5000;

// Patience ends a request when nothing has arrived for a time, or with another signal. What has arrived while the page stood still counts: it is
// read in the last second.
class Patience {
  private stop = new AbortController();
  private timer = 0;
  late = false;
  constructor(private time: number, outer?: AbortSignal) {
    outer?.addEventListener("abort", () => this.stop.abort(), { signal: this.stop.signal });
    // A browser may keep a page that was left, with its streams.
    addEventListener("pagehide", () => this.stop.abort(), { signal: this.stop.signal });
    if (outer?.aborted) this.stop.abort();
    this.renew();
  }
  get signal() { return this.stop.signal; }
  renew() {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => { this.timer = window.setTimeout(() => { this.late = true; this.stop.abort(); }, 1000); }, this.time - 1000);
  }
  end() {
    clearTimeout(this.timer);
    this.stop.abort(); // forgets the listeners
  }
  failure = () => new Failure("silent", `${self()} has not answered for ${this.time / 1000} s`, "check whether its process runs and is not suspended; open the console of another member");
}

async function request(path: string, init: RequestInit, patience: Patience): Promise<Response> {
  let res: Response;
  try {
    res = await fetch(path, { ...init, signal: patience.signal, credentials: "same-origin", cache: "no-store", redirect: "error" });
    if (!res.ok) throw await failure(res);
  } catch (e) {
    if (e instanceof Failure) {
      if (e.code === "login") window.dispatchEvent(new Event("vigil-login"));
      throw e;
    }
    if (patience.late) throw patience.failure();
    throw new Failure("unreachable", `${self()} does not answer`, "check whether its process runs; open the console of another member");
  }
  return res;
}

// answer returns the whole answer to a request.
async function answer(path: string, init: RequestInit, patience: Patience): Promise<any> {
  try {
    const res = await request(path, init, patience);
    const out = await res.json();
    if (init.method !== "POST") window.dispatchEvent(new CustomEvent("vigil-local", { detail: decodeURIComponent(res.headers.get("X-Vigil-Local") || "") }));
    return out;
  } catch (e) {
    throw patience.late && !(e instanceof Failure) ? patience.failure() : e;
  } finally {
    patience.end();
  }
}

// get reads from the API. An answer with data of this member alone, because there is no leader, is announced by the event vigil-local.
export async function get(path: string, params: Params = {}, signal?: AbortSignal, time = answerTime): Promise<any> {
  const out = await answer(address(path, params), { headers: header }, new Patience(time, signal));
  if (path === "session") {
    named(out.name);
    remember(out.members || []);
  }
  return out;
}

export async function post(path: string, body: unknown): Promise<any> {
  return answer(base + path, { method: "POST", headers: { ...header, "Content-Type": "application/json" }, body: JSON.stringify(body) }, new Patience(answerTime));
}

// lines reads a stream of lines of JSON until it ends, is aborted, or is silent. heard is called for each line, and for those that say
// only that the member is there.
export async function lines(path: string, params: Params, signal: AbortSignal, each: (line: any) => void, heard: (line: any) => void = () => {}): Promise<void> {
  const patience = new Patience(silence, signal);
  try {
    const res = await request(address(path, params), { headers: header }, patience);
    const reader = res.body!.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      let part: ReadableStreamReadResult<string>;
      try {
        part = await reader.read();
      } catch (e) {
        if (patience.late) throw patience.failure();
        if (signal.aborted) throw e;
        throw new Failure("unreachable", `the connection to ${self()} was lost`, "it is opened again");
      }
      if (part.done) return;
      patience.renew();
      const list = (rest + part.value).split("\n");
      rest = list.pop()!;
      for (const l of list) {
        const line = JSON.parse(l);
        if (line.end) {
          if (line.end.code === "login") window.dispatchEvent(new Event("vigil-login"));
          throw new Failure(line.end.code, line.end.error, line.end.next);
        }
        heard(line);
        if (!line.beat) each(line);
      }
    }
  } finally {
    patience.end();
  }
}

// save stores the answer to a request as a file.
export async function save(path: string, params: Params, name: string): Promise<void> {
  const patience = new Patience(answerTime);
  try {
    const reader = (await request(address(path, params), { headers: header }, patience)).body!.getReader();
    const parts: Uint8Array[] = [];
    for (;;) {
      const part = await reader.read();
      if (part.done) break;
      patience.renew();
      parts.push(part.value);
    }
    download(new Blob(parts as BlobPart[]), name);
  } catch (e) {
    throw patience.late ? patience.failure() : e instanceof Failure ? e : new Failure("unreachable", `the connection to ${self()} was lost before the end`, "try again");
  } finally {
    patience.end();
  }
}

// download gives a file to the reader.
export function download(content: Blob, name: string) {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(content);
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 60000);
}
