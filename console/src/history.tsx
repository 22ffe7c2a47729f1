import { useEffect, useState } from "preact/hooks";
import { get } from "./api";
import { Bytes, fromAddress, fromBase64, plain, quoted } from "./bytes";
import { Busy, Copy, count, date, ErrorBox, go, Key, link, number, Route, size, Text, time } from "./ui";

type Version = { key: string; mod: number; create: number; version: number; lease?: string; deleted?: boolean; size: number; text?: string; from?: number; to?: number };

export function History({ route }: { route: Route }) {
  const k = route.params.get("k");
  return k === null ? <Timeline params={route.params} /> : <OfKey key={k} value={fromAddress(k)} params={route.params} />;
}

// When shows between which times a revision was made, as far as they are known.
export function When({ v }: { v: { from?: number; to?: number } }) {
  if (v.to) return <span title="as far as this member has measured">{v.from ? `${time(v.from)} – ` : "before "}{time(v.to)}</span>;
  return <span class="dim">not known</span>;
}

// OfKey lists the kept revisions of a key, and compares two of them.
function OfKey({ value: key, params }: { value: Bytes; params: URLSearchParams }) {
  const [list, set] = useState<Version[] | null>(null);
  const [info, tell] = useState<any>(null);
  const [error, fail] = useState<unknown>(null);
  const a = params.get("a") || "", b = params.get("b") || "";
  const load = (before?: number) => get("history", { key, before }).then((r) => { set((l) => [...(before ? l || [] : []), ...r.versions]); tell(r); }, fail);
  useEffect(() => { load(); }, []);
  const choose = (name: string, rev: number) => go(link("history", { k: key, a, b, [name]: rev }));
  return (
    <>
      <h1>History of <Key value={key} /></h1>
      <p class="row"><a href={link("keys", { k: key })}>the key now</a> <Copy label="Copy as etcdctl" text={`etcdctl watch --rev=1 ${quoted(key)}`} /></p>
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
      {info?.before ? <p><button onClick={() => load(info.before)}>older revisions</button></p> : null}
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
      {data?.same ? <p>The values are the same.</p> : null}
      {data && !data.same ? (
        <pre class="diff" tabIndex={0} aria-label={`difference of ${plain(key)}`}>{data.diff.split("\n").slice(1).map((l: string, i: number) => (
          <div key={i} class={l.startsWith("+") ? "plus" : l.startsWith("-") ? "minus" : l.startsWith("@") ? "dim" : ""}><Text value={l || " "} /></div>
        ))}</pre>
      ) : null}
      {data?.cut ? <p class="dim">Only the beginning is shown.</p> : null}
    </section>
  );
}

// Timeline lists what changed between two revisions of the store.
function Timeline({ params }: { params: URLSearchParams }) {
  const from = params.get("from") || "", to = params.get("to") || "", prefix = params.get("prefix") || "";
  const [form, edit] = useState({ from, to, prefix });
  const [list, set] = useState<Version[] | null>(null);
  const [info, tell] = useState<any>(null);
  const [error, fail] = useState<unknown>(null);
  const load = async (first?: number) => {
    try {
      fail(null);
      let start: number | string = first || from;
      if (!start) {
        const now = await get("count", { key: fromAddress(prefix), prefix: 1 });
        start = Math.max(1, now.revision - 199);
      }
      const r = await get("changes", { from: start, to, prefix: fromAddress(prefix) });
      set((l) => [...(first ? l || [] : []), ...r.changes]);
      tell(r);
    } catch (e) {
      fail(e);
    }
  };
  useEffect(() => { edit({ from, to, prefix }); set(null); load(); }, [from, to, prefix]);
  const submit = (e: Event) => { e.preventDefault(); go(link("history", form)); };
  const revisions = new Map<number, number>();
  for (const v of list || []) revisions.set(v.mod, (revisions.get(v.mod) || 0) + 1);
  return (
    <>
      <h1>History of the store</h1>
      <form class="row" onSubmit={submit}>
        <label>From revision <input class="short" inputMode="numeric" placeholder="last 200" value={form.from} onInput={(e) => edit({ ...form, from: e.currentTarget.value })} /></label>
        <label>to <input class="short" inputMode="numeric" placeholder="newest" value={form.to} onInput={(e) => edit({ ...form, to: e.currentTarget.value })} /></label>
        <label>keys with the prefix <input value={form.prefix} onInput={(e) => edit({ ...form, prefix: e.currentTarget.value })} /></label>
        <button>Show</button>
      </form>
      <ErrorBox error={error} />
      {list && info ? <Bars list={list} from={Number(from) || list[0]?.mod || 1} to={Number(to) || info.now} prefix={prefix} /> : null}
      {!list ? (error ? null : <Busy what="Reading revisions…" />) : (
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
          {info?.cut ? <p class="dim">Revision {info.cut} has more changes than are shown here.</p> : null}
          {info?.after ? <p><button onClick={() => load(info.after)}>more changes</button></p> : null}
        </div>
      )}
    </>
  );
}

const W = 600, H = 50, bars = 60;

// Bars is the time line: how many changes each part of the revisions has. A part is a link.
function Bars({ list, from, to, prefix }: { list: Version[]; from: number; to: number; prefix: string }) {
  if (list.length < 2 || to <= from) return null;
  const step = Math.max(1, Math.ceil((to - from + 1) / bars));
  const n: number[] = [];
  for (const v of list) { const i = Math.floor((v.mod - from) / step); n[i] = (n[i] || 0) + 1; }
  const most = Math.max(...n.filter(Boolean));
  const times = list.filter((v) => v.to);
  return (
    <figure>
      <figcaption class="dim">Changes by revision, {from} to {to}{times.length ? `; ${date(times[0].to!)} to ${time(times[times.length - 1].to!)}` : ""}</figcaption>
      <svg class="bars" viewBox={`0 0 ${W} ${H}`} role="group" aria-label={`changes by revision: ${list.length} from ${from} to ${to}`}>
        {Array.from(n, (c, i) => c ? (
          <a key={i} href={link("history", { from: from + i * step, to: Math.min(to, from + (i + 1) * step - 1), prefix })} aria-label={`revisions ${from + i * step} to ${Math.min(to, from + (i + 1) * step - 1)}: ${count(c, "change")}`}>
            <rect x={(i * W) / bars} width={W / bars - 1} y={H - (c / most) * (H - 4)} height={(c / most) * (H - 4)} />
          </a>
        ) : null)}
      </svg>
    </figure>
  );
}
