// Parts that several views use.

import { ComponentChildren } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Failure, get } from "./api";
import { Bytes, cut, keyParts, parts, same, toAddress, visible } from "./bytes";
import { consoleOf, others, self } from "./session";

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

// Text shows a text from a stranger: characters that cannot be seen are escapes, and of a long text only the beginning is shown. With
// lines it is a value, whose length the member bounds.
export function Text({ value, lines, most = 200 }: { value: string; lines?: boolean; most?: number }) {
  return <bdi>{parts(lines ? value : cut(value, most), lines).map((p, i) => (i % 2 ? <span class="esc" key={i}>{p}</span> : p))}</bdi>;
}

const keyBytes = 300;

// Key shows a key, of a long one the beginning unless it is wanted as a whole.
export function Key({ value, whole }: { value: Bytes; whole?: boolean }) {
  if (value.length === 0) return <span class="dim">(empty)</span>;
  let most = keyBytes - 20;
  for (let i = 0; i < 3 && (value[most] & 0xc0) === 0x80; i++) most--; // not within a character
  const short = whole || value.length <= keyBytes ? value : value.subarray(0, most);
  return <bdi class="key">{keyParts(short).map((p, i) => (i % 2 ? <span class="esc" key={i}>{p}</span> : p))}{short === value ? null : <span class="dim">… ({number(value.length)} bytes)</span>}</bdi>;
}

// Range shows a range of keys in words. Without an end it is one key.
export function Range({ from, end }: { from: Bytes; end: Bytes }) {
  if (end.length === 0) return <Key value={from} />;
  const all = end.length === 1 && end[0] === 0;
  if (all) return from.length === 0 || same(from, end) ? <span class="dim">(all keys)</span> : <span>from <Key value={from} /> on</span>;
  const next = from.slice();
  if (next.length && ++next[next.length - 1] && same(next, end)) return <span><Key value={from} /><span class="dim">*</span></span>;
  return <span><Key value={from} /> – <Key value={end} /></span>;
}

// Column is a column of a table: its title, classes of its cells, and how the rows can be sorted by it.
export type Column = { title: string; class?: string; row?: boolean; href?: string; sort?: "ascending" | "descending" };
export const num = (title: string): Column => ({ title, class: "num" });
type Rows = [key: string | number, ...cells: ComponentChildren[]][];

// Table is a table. A narrow window shows each row as a card, in which a cell has the title of its column.
export function Table({ label, caption, columns, rows }: { label: string; caption: ComponentChildren; columns: (string | Column)[]; rows: Rows }) {
  const list = columns.map((c): Column => (typeof c === "string" ? { title: c } : c));
  return (
    <div class="scroll cards" tabIndex={0} role="region" aria-label={label}>
      <table>
        <caption>{caption}</caption>
        <thead><tr>{list.map((c, i) => (
          <th key={i} scope="col" class={c.class} aria-sort={c.sort}>{c.href ? <a href={c.href}>{c.title}{c.sort === "descending" ? " ▾" : c.sort ? " ▴" : ""}</a> : visible(c.title)}</th>
        ))}</tr></thead>
        <tbody>{rows.map(([key, ...cells]) => (
          <tr key={key}>{list.map((c, i) => (c.row ? <th key={i} scope="row">{cells[i]}</th> : <td key={i} class={c.class} data-label={visible(c.title)}>{cells[i]}</td>))}</tr>
        ))}</tbody>
      </table>
    </div>
  );
}

export function ErrorBox({ error }: { error: unknown }) {
  if (!error) return null;
  const f = error as Failure;
  return (
    <div class="error" role="alert">
      <strong><Text value={f.message || String(error)} most={2000} /></strong>
      {f.next ? <span> Next: <Text value={f.next} most={1000} />.</span> : null}
    </div>
  );
}

// Others links to the consoles of other members, if any is known.
export function Others({ before }: { before: string }) {
  if (others().length === 0) return null;
  return <>{before}{others().map((m, i) => <span key={m.name}>{i ? ", " : ""}<a href={consoleOf(m)!} rel="noreferrer"><Text value={m.name} most={60} /></a></span>)}</>;
}

// Busy says what is going on when it takes longer than a moment, and what to do when that lasts.
export function Busy({ what }: { what: string }) {
  const [seconds, set] = useState(0);
  useEffect(() => {
    const start = Date.now();
    const timer = setInterval(() => set(Math.floor((Date.now() - start) / 1000)), 1000);
    return () => clearInterval(timer);
  }, []);
  return <p class="busy"><span role="status">{what}</span>{seconds < 5 ? null : <span> {seconds} s so far: <Text value={self()} most={60} /> may hang<Others before="; consoles of other members: " />.</span>}</p>;
}

// docs returns the address of a page of the documents, which the member serves.
export const docs = (page: string) => page.replace(/\.md(?=#|$)/, "");

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
    <dialog ref={ref} aria-labelledby="dialog-title" onCancel={(e) => { e.preventDefault(); close(); }}>
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  );
}

// Confirm says what an action will do before it is done. word, if given, must be typed. With off it can only be read.
export function Confirm({ title, children, action, word, off, run, close }: {
  title: string; children: ComponentChildren; action: string; word?: string; off?: boolean; run: () => Promise<unknown>; close: () => void;
}) {
  const [typed, type] = useState("");
  const [error, fail] = useState<unknown>(null);
  const [busy, work] = useState(false);
  const closed = busy || off || (!!word && typed !== word);
  const submit = async (e: Event) => {
    e.preventDefault();
    if (closed) return;
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
          <button class="danger" disabled={closed}>{busy ? "working…" : action}</button>
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

// Times are in the zone of the reader, in the format that vigilctl has.
const two = (n: number) => String(n).padStart(2, "0");
export const time = (ms: number) => { const d = new Date(ms); return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`; };
const day = (ms: number) => { const d = new Date(ms); return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`; };
export const date = (ms: number) => day(ms) + " " + time(ms);
// moment is a time of today, or a date with a time.
export const moment = (ms: number) => (day(ms) === day(Date.now()) ? time(ms) : date(ms));
const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

// When shows when a revision was made, as far as the cluster knows it. Marks are about a second apart, so the end is about it.
export function When({ v }: { v: { from?: number; to?: number } }) {
  const { from, to } = v;
  if (!from && !to) return <span class="dim">not known</span>;
  const exact = from && to && to - from <= 5000;
  const title = `${from ? "after " + date(from) : ""}${from && to ? ", " : ""}${to ? "at or before " + date(to) : ""} in ${zone()}, by the clock of the leader`;
  return <span title={title}>{exact ? moment(to) : from && to ? `${moment(from)} – ${moment(to)}` : to ? `before ${moment(to)}` : `after ${moment(from!)}`}</span>;
}

const unitOf: Record<string, number> = { h: 3600e3, m: 60e3, s: 1e3, ms: 1 };

// parseTime returns a time in milliseconds since 1970, null if the text is none: of the last 24 hours, with a date, or how long ago it
// was; in the zone of the reader unless it has one. vigilctl reads the same.
export function parseTime(text: string, now = Date.now()): number | null {
  const t = text.trim();
  const ago = /^-?((?:\d+(?:\.\d+)?(?:ms|h|m|s))+)$/.exec(t);
  if (ago) return now - [...ago[1].matchAll(/([\d.]+)(ms|h|m|s)/g)].reduce((sum, p) => sum + Number(p[1]) * unitOf[p[2]], 0);
  const hour = /^(\d{1,2}):(\d\d)(?::(\d\d)(\.\d{1,3})?)?$/.exec(t);
  if (hour) {
    const [h, m, s] = [Number(hour[1]), Number(hour[2]), Number(hour[3] || 0)], d = new Date(now);
    if (h > 23 || m > 59 || s > 59) return null;
    d.setHours(h, m, s, Number(hour[4] || 0) * 1000);
    if (d.getTime() > now) d.setDate(d.getDate() - 1);
    return d.getTime();
  }
  if (!/^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?)?)?$/.test(t)) return null;
  const ms = Date.parse(t.length === 10 ? t + "T00:00" : t.replace(" ", "T"));
  return isNaN(ms) ? null : ms;
}

// point normalizes what a reader types for a revision or a time: digits stay, and a time is written so that it means the same everywhere.
export function point(text: string): string {
  const t = text.trim();
  if (/^\d*$/.test(t)) return t;
  const ms = parseTime(t);
  return ms === null ? t : new Date(ms).toISOString();
}

// revisionOf returns the revision that a text names: itself, or the newest one at a time.
export async function revisionOf(text: string, signal?: AbortSignal): Promise<{ revision: number | string; at?: number }> {
  if (/^[\d]*$/.test(text)) return { revision: text };
  const at = parseTime(text);
  if (at === null) throw new Failure("typing", `“${cut(text, 60)}” is neither a revision nor a time`, "write a number, or a time such as 10:42, 2026-11-24 10:42, or 5m for five minutes ago");
  try {
    return { revision: (await get("revision", { at: Math.floor(at) }, signal)).revision, at };
  } catch (e: any) {
    if (e instanceof Failure) throw new Failure(e.code, e.message.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (t) => date(Date.parse(t))), e.next, e.current);
    throw e;
  }
}

// Copy copies a command; null is one that does not exist.
export function Copy({ text, label }: { text: string | null; label: string }) {
  const [done, set] = useState("");
  if (text === null) return <span><button type="button" disabled>{label}</button> <span class="dim">a key with a zero byte cannot be in a command</span></span>;
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      set("copied");
    } catch {
      set(text); // a browser allows the clipboard only to pages of this machine and over TLS
    }
  };
  return <span><button type="button" onClick={copy}>{label}</button> <span role="status">{done === "copied" ? "copied" : done ? <code class="copied">{done}</code> : null}</span></span>;
}
