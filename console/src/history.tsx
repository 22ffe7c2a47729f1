import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { get } from "./api";
import { Bytes, etcdctl, fromAddress, fromBase64, plain } from "./bytes";
import { Busy, Copy, count, date, ErrorBox, go, Key, link, moment, number, point, revisionOf, Route, size, Text, time, When } from "./ui";

type Version = { key: string; mod: number; create: number; version: number; lease?: string; deleted?: boolean; size: number; text?: string; from?: number; to?: number };

export function History({ route }: { route: Route }) {
  const k = route.params.get("k");
  return k === null ? <Timeline params={route.params} /> : <OfKey key={k} value={fromAddress(k)} params={route.params} />;
}

// OfKey lists the kept revisions of a key, and compares two of them.
function OfKey({ value: key, params }: { value: Bytes; params: URLSearchParams }) {
  const [list, set] = useState<Version[] | null>(null);
  const [info, tell] = useState<any>(null);
  const [error, fail] = useState<unknown>(null);
  const [busy, work] = useState(false);
  const a = params.get("a") || "", b = params.get("b") || "";
  const load = (before?: number) => {
    work(true);
    get("history", { key, before }).then((r) => { set((l) => [...(before ? l || [] : []), ...r.versions]); tell(r); }, fail).finally(() => work(false));
  };
  useEffect(() => { load(); }, []);
  const choose = (name: string, rev: number) => go(link("history", { k: key, a, b, [name]: rev }));
  return (
    <>
      <h1>History of <Key value={key} /></h1>
      <p class="row"><a href={link("keys", { k: key })}>the key now</a> <Copy label="Copy as etcdctl" text={etcdctl("watch", ["--rev=1"], key)} /></p>
      <ErrorBox error={error} />
      {!list ? (error ? null : <Busy what="Reading old revisions…" />) : list.length === 0 ? <p>No kept revision has this key.</p> : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Revisions">
          <table>
            <caption>{number(list.length)} revisions, the newest first{info?.compact ? `; older than ${info.compact} are compacted` : ""}</caption>
            <thead><tr><th scope="col">A</th><th scope="col">B</th><th scope="col" class="num">Revision</th><th scope="col" class="num">Version</th><th scope="col">When</th><th scope="col" class="num">Size</th><th scope="col">Value</th></tr></thead>
            <tbody>{list.map((v) => (
              <tr key={v.mod}>
                <td><input type="radio" name="a" aria-label={`compare from revision ${v.mod}`} checked={a === String(v.mod)} onChange={() => choose("a", v.mod)} /></td>
                <td><input type="radio" name="b" aria-label={`compare to revision ${v.mod}`} checked={b === String(v.mod)} onChange={() => choose("b", v.mod)} /></td>
                <td class="num"><a href={link("keys", { k: key, rev: v.mod })}>{v.mod}</a></td><td class="num">{v.deleted ? "" : v.version}</td><td><When v={v} /></td>
                <td class="num">{v.deleted ? "" : size(v.size)}</td><td class="excerpt">{v.deleted ? <strong>deleted</strong> : v.text ? <Text value={v.text} /> : <span class="dim">{v.size ? "binary" : "(empty)"}</span>}</td>
              </tr>
            ))}</tbody>
          </table>
        </div>
      )}
      {info?.unread ? <p class="dim">Reading all old revisions takes too long: there may be older ones. <code>vigilctl history</code> has no limit of time.</p> : null}
      {info?.before ? <p><button disabled={busy} onClick={() => load(info.before)}>{busy ? "reading…" : "older revisions"}</button></p> : null}
      {a && b ? <Diff key={a + "-" + b} value={key} a={a} b={b} /> : <p class="dim">Choose A and B to compare two revisions.</p>}
    </>
  );
}

function Diff({ value: key, a, b }: { value: Bytes; a: string; b: string }) {
  const [data, set] = useState<any>(null);
  const [error, fail] = useState<unknown>(null);
  useEffect(() => { get("diff", { key, a, b }).then(set, fail); }, []);
  return (
    <section aria-label="Difference">
      <h2>From revision {a} to {b}</h2>
      <ErrorBox error={error} />
      {data || error ? null : <Busy what="Comparing the revisions…" />}
      {data?.same ? <p>The values are the same.</p> : null}
      {data && !data.same ? (
        <pre class="diff" tabIndex={0} aria-label={`difference of ${plain(key.subarray(0, 60))}`}>{data.diff.split("\n").slice(1).map((l: string, i: number) => (
          <div key={i} class={l.startsWith("+") ? "plus" : l.startsWith("-") ? "minus" : l.startsWith("@") ? "dim" : ""}><Text value={l || " "} lines /></div>
        ))}</pre>
      ) : null}
      {data?.cut ? <p class="dim">Only the beginning is shown.</p> : null}
    </section>
  );
}

// bounds are the revisions that a time line is about; from is 0 if it is not known yet.
type Bounds = { from: number; to: number };

// Timeline lists what changed between two revisions or times of the store.
function Timeline({ params }: { params: URLSearchParams }) {
  const from = params.get("from") || "", to = params.get("to") || "", prefix = params.get("prefix") || "";
  const [form, edit] = useState({ from, to, prefix });
  const [list, set] = useState<Version[] | null>(null);
  const [info, tell] = useState<any>(null);
  const [bounds, bind] = useState<Bounds>({ from: 0, to: 0 });
  const [error, fail] = useState<unknown>(null);
  const [busy, work] = useState(false);
  // add reads a part, and adds it to those before.
  const add = async (first: number | string, last: number | string, before: Version[], signal?: AbortSignal) => {
    work(true);
    try {
      const r = await get("changes", { from: first, to: last, prefix: fromAddress(prefix) }, signal);
      set([...before, ...r.changes]);
      tell(r);
      if (before.length === 0) bind({ from: Number(first) || 1, to: Number(last) || r.now });
    } catch (e) {
      if (!signal?.aborted) fail(e);
    }
    work(false);
  };
  // At once: an effect after the picture could replace what was typed since then.
  useLayoutEffect(() => edit({ from, to, prefix }), [from, to, prefix]);
  useEffect(() => {
    const a = new AbortController();
    set(null);
    fail(null);
    (async () => {
      try {
        const first = await revisionOf(from, a.signal), last = await revisionOf(to, a.signal);
        let start: number | string = first.at === undefined ? first.revision : Number(first.revision) + 1;
        if (start === "") start = Math.max(1, (last.revision === "" ? (await get("count", { key: fromAddress(prefix), prefix: 1 }, a.signal)).revision : Number(last.revision)) - 199);
        if (first.at !== undefined && Number(start) > Number(last.revision || Infinity)) { set([]); tell({}); return; }
        await add(start, last.revision, [], a.signal);
      } catch (e) {
        if (!a.signal.aborted) fail(e);
      }
    })();
    return () => a.abort();
  }, [from, to, prefix]);
  const submit = (e: Event) => { e.preventDefault(); go(link("history", { ...form, from: point(form.from), to: point(form.to) })); };
  const revisions = new Map<number, number>();
  for (const v of list || []) revisions.set(v.mod, (revisions.get(v.mod) || 0) + 1);
  return (
    <>
      <h1>History of the store</h1>
      <form class="row bar" onSubmit={submit}>
        <label>From <input aria-label="from a revision or time" placeholder="last 200" value={form.from} onInput={(e) => edit({ ...form, from: e.currentTarget.value })} /></label>
        <label>to <input aria-label="to a revision or time" placeholder="newest" value={form.to} onInput={(e) => edit({ ...form, to: e.currentTarget.value })} /></label>
        <label>keys with the prefix <input id="search" value={form.prefix} onInput={(e) => edit({ ...form, prefix: e.currentTarget.value })} /></label>
        <button>Show</button>
        <span class="dim">a revision, or a time: 10:42, 2026-11-24 10:42, 5m</span>
      </form>
      <ErrorBox error={error} />
      {list && info ? <Bars list={list} {...bounds} prefix={prefix} /> : null}
      {!list ? (error ? null : <Busy what="Reading revisions…" />) : list.length === 0 ? <p class="dim">Nothing has changed there.</p> : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Changes">
          <table>
            <caption>{number(list.length)} changes in {number(revisions.size)} revisions, the oldest first{info?.compact ? `; revisions up to ${info.compact} are compacted` : ""}</caption>
            <thead><tr><th scope="col" class="num">Revision</th><th scope="col">When</th><th scope="col">Change</th><th scope="col">Key</th><th scope="col" class="num">Size</th></tr></thead>
            <tbody>{list.map((v) => {
              const k = fromBase64(v.key);
              return <tr key={v.mod + v.key}><td class="num"><a href={link("keys", { rev: v.mod, k })}>{v.mod}</a></td><td><When v={v} /></td><td>{v.deleted ? "deleted" : v.version === 1 ? "created" : "changed"}</td>
                <td><a href={link("history", { k })}><Key value={k} /></a></td><td class="num">{v.deleted ? "" : size(v.size)}</td></tr>;
            })}</tbody>
          </table>
        </div>
      )}
      {info?.compact && list?.length === 0 ? <p class="dim">Revisions up to {info.compact} are compacted.</p> : null}
      {info?.unread ? <p class="dim">Reading old revisions takes long: this is what was read in time.</p> : null}
      {info?.cut ? <p class="dim">Revision {info.cut} has more changes than are shown here.</p> : null}
      {info?.after ? <p><button disabled={busy} onClick={() => add(info.after, bounds.to, list || [])}>{busy ? "reading…" : "more changes"}</button></p> : null}
    </>
  );
}

const W = 600, H = 36, bars = 60;

// Bars is the time line: how many changes each part of the revisions has, and when these were made. A part is a link.
function Bars({ list, from, to, prefix }: { list: Version[]; from: number; to: number; prefix: string }) {
  if (list.length < 2 || to <= from) return null;
  const step = Math.max(1, Math.ceil((to - from + 1) / bars));
  const n: number[] = [], ends: number[] = [];
  for (const v of list) {
    const i = Math.floor((v.mod - from) / step);
    n[i] = (n[i] || 0) + 1;
    ends[i] = v.to || ends[i] || 0;
  }
  const most = Math.max(...n.filter(Boolean)), used = Math.ceil((to - from + 1) / step);
  const timed = list.filter((v) => v.to);
  const begin = (i: number) => from + i * step, end = (i: number) => Math.min(to, from + (i + 1) * step - 1);
  const about = (i: number) => `revisions ${begin(i)} to ${end(i)}: ${count(n[i], "change")}, ${ends[i] ? "up to " + moment(ends[i]) : "at an unknown time"}`;
  // Below the bars are times at about equal distances, of which each is that of a part with changes.
  const marks = [0, 0.25, 0.5, 0.75, 1].map((part) => Math.round(part * (used - 1))).filter((i, j, all) => ends[i] && all.indexOf(i) === j && (j === 0 || time(ends[i]) !== time(ends[all[j - 1]] || 0)));
  return (
    <figure class="timeline">
      <figcaption class="dim">Changes by revision, {from} to {to}; {timed.length ? `${date(timed[0].from || timed[0].to!)} to ${date(timed[timed.length - 1].to!)}` : "at times that are not known"}</figcaption>
      <svg class="bars" viewBox={`0 0 ${W} ${H + 12}`} role="group" aria-label={`changes by revision: ${list.length} from ${from} to ${to}`}>
        {Array.from(n, (c, i) => c ? (
          <a key={i} href={link("history", { from: begin(i), to: end(i), prefix })} aria-label={about(i)}>
            <title>{about(i)}</title>
            <rect x={(i * W) / used} width={Math.max(1, W / used - 1)} y={H - (c / most) * (H - 4)} height={(c / most) * (H - 4)} />
          </a>
        ) : null)}
        {marks.map((i) => <text key={i} x={((i + (i === 0 ? 0 : i === used - 1 ? 1 : 0.5)) * W) / used} y={H + 10} text-anchor={i === 0 ? "start" : i === used - 1 ? "end" : "middle"}>{time(ends[i])}</text>)}
      </svg>
    </figure>
  );
}
