// Parts that several views use.

import { ComponentChildren } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Failure, get } from "./api";
import { Bytes, keyParts, parts, toAddress } from "./bytes";

// Route is the address after #: a view and its parameters.
export type Route = { view: string; params: URLSearchParams };

export function readRoute(): Route {
  const address = location.hash.replace(/^#\/?/, "");
  const at = address.indexOf("?");
  return { view: (at < 0 ? address : address.slice(0, at)) || "overview", params: new URLSearchParams(at < 0 ? "" : address.slice(at + 1)) };
}

export function link(view: string, params: Record<string, string | number | Bytes | null | undefined> = {}): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(params)) {
    if (v !== undefined && v !== null && v !== "") q.set(k, v instanceof Uint8Array ? toAddress(v) : String(v));
  }
  const s = q.toString();
  return "#/" + view + (s ? "?" + s : "");
}

export const go = (address: string) => {
  location.hash = address;
};

// Text shows a text from a stranger: characters that cannot be seen are escapes.
export function Text({ value, lines }: { value: string; lines?: boolean }) {
  return <bdi>{parts(value, lines).map((p, i) => (i % 2 ? <span class="esc" key={i}>{p}</span> : p))}</bdi>;
}

export function Key({ value }: { value: Bytes }) {
  const list = keyParts(value);
  if (value.length === 0) return <span class="dim">(empty)</span>;
  return <bdi class="key">{list.map((p, i) => (i % 2 ? <span class="esc" key={i}>{p}</span> : p))}</bdi>;
}

export function ErrorBox({ error }: { error: unknown }) {
  if (!error) return null;
  const f = error as Failure;
  return (
    <div class="error" role="alert">
      <strong><Text value={f.message || String(error)} /></strong>
      {f.next ? <span> Next: <Text value={f.next} />.</span> : null}
    </div>
  );
}

// Busy says what is going on when it takes longer than a moment.
export function Busy({ what }: { what: string }) {
  return <p class="busy" role="status">{what}</p>;
}

type Loaded<T> = { data: T | null; error: unknown; busy: boolean; reload: () => void };

// useLoad reads from the API, again when a parameter changes.
export function useLoad<T = any>(path: string | null, params: Record<string, any>): Loaded<T> {
  const [state, set] = useState<{ data: T | null; error: unknown; busy: boolean }>({ data: null, error: null, busy: true });
  const [round, again] = useState(0);
  const key = JSON.stringify([path, Object.entries(params).map(([k, v]) => [k, v instanceof Uint8Array ? toAddress(v) : v]), round]);
  useEffect(() => {
    if (path === null) return;
    const a = new AbortController();
    set((s) => ({ ...s, busy: true }));
    get(path, params, a.signal).then(
      (data) => set({ data, error: null, busy: false }),
      (error) => a.signal.aborted || set({ data: null, error, busy: false }),
    );
    return () => a.abort();
  }, [key]);
  return { ...state, reload: useCallback(() => again((n) => n + 1), []) };
}

// Dialog is modal, and closed by Escape.
export function Dialog({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    ref.current!.showModal();
    return () => before?.focus?.();
  }, []);
  return (
    <dialog ref={ref} aria-label={title} onCancel={(e) => { e.preventDefault(); close(); }}>
      <h2>{title}</h2>
      {children}
    </dialog>
  );
}

// Confirm says what an action will do before it is done. word, if given, must be typed.
export function Confirm({ title, children, action, word, run, close }: {
  title: string; children: ComponentChildren; action: string; word?: string; run: () => Promise<unknown>; close: () => void;
}) {
  const [typed, type] = useState("");
  const [error, fail] = useState<unknown>(null);
  const [busy, work] = useState(false);
  const submit = async (e: Event) => {
    e.preventDefault();
    work(true);
    fail(null);
    try {
      await run();
      close();
    } catch (x) {
      fail(x);
      work(false);
    }
  };
  return (
    <Dialog title={title} close={close}>
      <form onSubmit={submit}>
        {children}
        {word ? <label>Type <code>{word}</code> to confirm <input value={typed} onInput={(e) => type(e.currentTarget.value)} /></label> : null}
        <ErrorBox error={error} />
        <p class="row">
          <button class="danger" disabled={busy || (!!word && typed !== word)}>{busy ? "working…" : action}</button>
          <button type="button" onClick={close}>Cancel</button>
        </p>
      </form>
    </Dialog>
  );
}

const units = ["B", "KiB", "MiB", "GiB", "TiB"];
export function size(n: number): string {
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return (i === 0 ? n : n.toFixed(n < 10 ? 1 : 0)) + " " + units[i];
}

export const count = (n: number, word: string, plural = word + "s") => n.toLocaleString("en") + " " + (n === 1 ? word : plural);
export const number = (n: number) => n.toLocaleString("en", { maximumFractionDigits: n < 10 ? 2 : 0 });

export function duration(seconds: number): string {
  if (seconds < 1e-3) return (seconds * 1e6).toFixed(0) + " µs";
  if (seconds < 1) return (seconds * 1e3).toFixed(seconds < 0.01 ? 1 : 0) + " ms";
  if (seconds < 120) return seconds.toFixed(seconds < 10 ? 1 : 0) + " s";
  if (seconds < 7200) return (seconds / 60).toFixed(0) + " min";
  if (seconds < 172800) return (seconds / 3600).toFixed(0) + " h";
  return (seconds / 86400).toFixed(0) + " d";
}

// time shows milliseconds since 1970 in the zone of the reader.
export const time = (ms: number) => new Date(ms).toLocaleTimeString();
export const date = (ms: number) => new Date(ms).toLocaleString();

export function Copy({ text, label }: { text: string; label: string }) {
  const [done, set] = useState("");
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      set("copied");
    } catch {
      set(text); // without TLS a browser allows no access to the clipboard
    }
  };
  return <span><button type="button" onClick={copy}>{label}</button> <span role="status">{done === "copied" ? "copied" : done ? <code class="copied">{done}</code> : null}</span></span>;
}
