// Calls of the console's API. Every request has the header that pages of other origins cannot send.

import { Bytes, toBase64 } from "./bytes";

const base = "api/";
const header = { "X-Vigil-Console": "1" };

export class Failure extends Error {
  constructor(public code: string, text: string, public next = "", public current: any = null) {
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
    return new Failure(f.code, f.error, f.next, f.current);
  } catch {
    return new Failure("internal", text.slice(0, 500) || res.statusText);
  }
}

async function request(path: string, init: RequestInit): Promise<Response> {
  let res: Response;
  try {
    res = await fetch(path, { ...init, credentials: "same-origin", cache: "no-store", redirect: "error" });
  } catch (e) {
    if (init.signal?.aborted) throw e;
    throw new Failure("unreachable", "this member does not answer", "check whether its process runs; open the console of another member");
  }
  if (!res.ok) {
    const f = await failure(res);
    if (f.code === "login") window.dispatchEvent(new Event("vigil-login"));
    throw f;
  }
  return res;
}

export async function get(path: string, params: Params = {}, signal?: AbortSignal): Promise<any> {
  return (await request(address(path, params), { headers: header, signal })).json();
}

export async function post(path: string, body: unknown): Promise<any> {
  return (await request(base + path, { method: "POST", headers: { ...header, "Content-Type": "application/json" }, body: JSON.stringify(body) })).json();
}

// lines reads a stream of lines of JSON until it ends or is aborted.
export async function lines(path: string, params: Params, signal: AbortSignal, each: (line: any) => void): Promise<void> {
  const res = await request(address(path, params), { headers: header, signal });
  const reader = res.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let part: ReadableStreamReadResult<string>;
    try {
      part = await reader.read();
    } catch (e) {
      if (signal.aborted) throw e;
      throw new Failure("unreachable", "the connection to this member was lost", "it is opened again");
    }
    if (part.done) return;
    const list = (rest + part.value).split("\n");
    rest = list.pop()!;
    for (const l of list) {
      const line = JSON.parse(l);
      if (line.end) {
        if (line.end.code === "login") window.dispatchEvent(new Event("vigil-login"));
        throw new Failure(line.end.code, line.end.error, line.end.next);
      }
      each(line);
    }
  }
}

// save stores the answer to a request as a file.
export async function save(path: string, params: Params, name: string): Promise<void> {
  const res = await request(address(path, params), { headers: header });
  download(await res.blob(), name);
}

// download gives a file to the reader.
export function download(content: Blob, name: string) {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(content);
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 60000);
}
