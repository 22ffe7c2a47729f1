import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { get } from "./api";
import { Bytes, etcdctl, fromAddress, fromBase64, fromField, plain, toField } from "./bytes";
import { Busy, Copy, count, date, duration, ErrorBox, go, Key, link, moment, num, number, point, revisionOf, Route, size, Table, Text, time, When } from "./ui";

type Version = { key: string; mod: number; create: number; version: number; lease?: string; deleted?: boolean; size: number; text?: string; from?: number; to?: number };

export function History({ route }: { route: Route }) {
  const k = route.params.get("k");
  return k === null ? <Timeline params={route.params} /> : <OfKey key={k} value={fromAddress(k)} params={route.params} />;
}

// OfKey lists the kept revisions of a key, and compares two of them: the last change, until others are chosen.
function OfKey({ value: key, params }: { value: Bytes; params: URLSearchParams }) {
  const [list, set] = useState<Version[] | null>(null);
  const [info, tell] = useState<any>(null);
  const [error, fail] = useState<unknown>(null);
  const [busy, work] = useState(false);
  const load = (before?: number) => {
    work(true);
    get("history", { key, before }).then((r) => { set((l) => [...(before ? l || [] : []), ...r.versions]); tell(r); }, fail).finally(() => work(false));
  };
  useEffect(() => { load(); }, []);
  // A version lasts until the revision before the next one, which can be read after a compaction, too.
  const last = list && list.length > 1 ? list[0].mod : 0;
  const a = params.get("a") || (last && String(last - 1)) || "", b = params.get("b") || (last && String(last)) || "";
  const at = (rev: string) => list?.find((v) => v.mod <= Number(rev));
  const choose = (name: string, v: Version) => (
    <input type="radio" name={name} aria-label={`compare ${name === "a" ? "from" : "to"} revision ${v.mod}`} checked={at(name === "a" ? a : b) === v}
      onChange={() => { const i = list!.indexOf(v); go(link("history", { k: key, a, b, [name]: i ? list![i - 1].mod - 1 : info.now })); }} />
  );
  return (
    <>
      <h1>History of <Key value={key} /></h1>
      <p class="row"><a href={link("keys", { k: key })}>The key now</a> {list ? <Copy label="Copy as etcdctl" text={etcdctl("watch", [`--rev=${Math.max(list.at(-1)?.mod || 1, (info?.compact || 0) + 1)}`], key)} /> : null}</p>
      <ErrorBox error={error} />
      {a && b ? <Diff key={a + "-" + b} value={key} a={a} b={b} title={(params.has("a") || params.has("b") ? `From revision ${at(a)?.mod ?? a} to ${at(b)?.mod ?? b}` : `The last change, at revision ${b}`) + (at(b)?.deleted ? ": deleted" : "")} /> : null}
      {!list ? (error ? null : <Busy what="Reading old revisions…" />) : list.length === 0 ? <p>No kept revision has this key.</p> : (
        <Table label="Revisions" caption={`${count(list.length, "revision")}, the newest first` + (info?.compact ? `; older than ${info.compact} are compacted` : "") + (list.length > 1 ? "; choose two to compare them" : "")}
          columns={["From", "To", num("Revision"), num("Version"), "When", num("Size"), { title: "Value", class: "excerpt" }]}
          rows={list.map((v) => [v.mod, choose("a", v), choose("b", v), <a href={link("keys", { k: key, rev: v.mod })}>{v.mod}</a>, v.deleted ? null : v.version, <When v={v} />,
            v.deleted ? null : size(v.size), v.deleted ? <strong>deleted</strong> : v.text ? <Text value={v.text} /> : <span class="dim">{v.size ? "binary" : "(empty)"}</span>])} />
      )}
      {info?.unread ? <p class="dim">Reading all old revisions takes too long: there may be older ones. <code>vigilctl history</code> has no limit of time.</p> : null}
      {info?.before ? <p><button disabled={busy} onClick={() => load(info.before)}>{busy ? "reading…" : "Older revisions"}</button></p> : null}
    </>
  );
}

function Diff({ value: key, a, b, title }: { value: Bytes; a: string; b: string; title: string }) {
  const [data, set] = useState<any>(null);
  const [error, fail] = useState<unknown>(null);
  useEffect(() => { get("diff", { key, a, b }).then(set, fail); }, []);
  return (
    <section aria-label="Difference">
      <h2>{title}</h2>
      <ErrorBox error={error} />
      {data || error ? null : <Busy what="Comparing the revisions…" />}
      {data?.same ? <p>The values are the same.</p> : null}
      {data && !data.same && data.diff === "" ? <p>{data.missing ? "Only one of the revisions has the key, with an empty value." : "The values differ after the part that is shown."}</p> : null}
      {data?.diff ? (
        <pre class="diff" tabIndex={0} aria-label={`difference of ${plain(key.subarray(0, 60))}`}>{data.diff.trimEnd().split("\n").slice(3).map((l: string, i: number) => (
          <div key={i} class={l.startsWith("+") ? "plus" : l.startsWith("-") ? "minus" : l.startsWith("@") ? "dim" : ""}><Text value={l || " "} lines /></div>
        ))}</pre>
      ) : null}
      {data?.cut ? <p class="dim">Only the beginning is shown.</p> : null}
    </section>
  );
}

// Timeline lists what changed between two revisions or times of the store, the newest first.
function Timeline({ params }: { params: URLSearchParams }) {
  const from = params.get("from") || "", to = params.get("to") || "", prefix = params.get("prefix") || "";
  const shown = { from, to, prefix: toField(fromAddress(prefix)) };
  const [form, edit] = useState(shown);
  const [list, set] = useState<Version[] | null>(null);
  const [info, tell] = useState<any>(null);
  const [error, fail] = useState<unknown>(null);
  const [busy, work] = useState(false);
  // add reads a part, and adds it to those before.
  const add = async (first: number | string, last: number | string, before: Version[], signal?: AbortSignal) => {
    work(true);
    try {
      const r = await get("changes", { from: first, to: last, prefix: fromAddress(prefix) }, signal);
      set([...before, ...r.changes]);
      tell({ ...r, first });
    } catch (e) {
      if (!signal?.aborted) fail(e);
    }
    work(false);
  };
  // At once: an effect after the picture could replace what was typed since then.
  useLayoutEffect(() => edit(shown), [from, to, prefix]);
  useEffect(() => {
    const a = new AbortController();
    set(null);
    fail(null);
    (async () => {
      try {
        const first = await revisionOf(from, a.signal), last = await revisionOf(to, a.signal);
        const start = first.at === undefined ? first.revision : Number(first.revision) + 1;
        if (first.at !== undefined && Number(start) > Number(last.revision || Infinity)) { set([]); tell({}); return; }
        await add(start, last.revision, [], a.signal);
      } catch (e) {
        if (!a.signal.aborted) fail(e);
      }
    })();
    return () => a.abort();
  }, [from, to, prefix]);
  const submit = (e: Event) => { e.preventDefault(); go(link("history", { from: point(form.from), to: point(form.to), prefix: fromField(form.prefix) })); };
  return (
    <>
      <h1>History of {prefix ? <>keys with the prefix <Key value={fromAddress(prefix)} /></> : "the store"}</h1>
      <form class="row bar" onSubmit={submit}>
        <label>From <input aria-label="from a revision or time" placeholder="the first" value={form.from} onInput={(e) => edit({ ...form, from: e.currentTarget.value })} /></label>
        <label>to <input aria-label="to a revision or time" placeholder="the newest" value={form.to} onInput={(e) => edit({ ...form, to: e.currentTarget.value })} /></label>
        <label>Prefix <input id="search" placeholder="all keys" value={form.prefix} onInput={(e) => edit({ ...form, prefix: e.currentTarget.value })} /></label>
        <button>Show</button>
        <span class="dim">a revision, or a time: 10:42, 2026-11-24 10:42, 5m</span>
      </form>
      <ErrorBox error={error} />
      {list && info ? <Bars list={list} prefix={prefix} /> : null}
      {!list ? (error ? null : <Busy what="Reading revisions…" />) : list.length === 0 ? <p class="dim">Nothing has changed there.</p> : (
        <Table label="Changes" caption={`${count(list.length, "change")} in ${count(new Set(list.map((v) => v.mod)).size, "revision")}, the newest first` + (info?.compact ? `; revisions up to ${info.compact} are compacted` : "")}
          columns={[num("Revision"), "When", "Change", "Key", num("Size"), { title: "Value", class: "excerpt" }]}
          rows={list.map((v) => {
            const k = fromBase64(v.key);
            return [v.mod + v.key, <a href={link("keys", { rev: v.mod, k })}>{v.mod}</a>, <When v={v} />, v.deleted ? "deleted" : v.version === 1 ? "created" : "changed", <a href={link("history", { k })}><Key value={k} /></a>,
              v.deleted ? null : size(v.size), v.text ? <Text value={v.text} most={80} /> : null];
          })} />
      )}
      {info?.compact && list?.length === 0 ? <p class="dim">Revisions up to {info.compact} are compacted.</p> : null}
      {info?.unread ? <p class="dim">Reading old revisions takes long: this is what was read in time.</p> : null}
      {info?.cut ? <p class="dim">Revision {info.cut} has more changes than are shown here.</p> : null}
      {info?.before ? <p><button disabled={busy} onClick={() => add(info.first, info.before, list || [])}>{busy ? "reading…" : "Older changes"}</button></p> : null}
    </>
  );
}

const W = 600, H = 36, most = 60;
const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400].map((s) => s * 1000);

// Bars is how many changes there were in each part of the time. A part is a link. Times are known to about a second.
function Bars({ list, prefix }: { list: Version[]; prefix: string }) {
  const timed = list.filter((v) => v.to);
  if (timed.length < 2) return null;
  const first = timed[timed.length - 1].to!, last = timed[0].to!;
  const step = steps.find((s) => (last - first) / s < most) || steps[steps.length - 1] * Math.ceil((last - first) / steps[steps.length - 1] / most);
  const end = Math.floor(last / step), used = Math.max(20, end - Math.floor(first / step) + 1), begin = (end - used + 1) * step;
  const bars: { n: number; from: number; to: number }[] = [];
  for (const v of timed) {
    const bar = (bars[Math.floor((v.to! - begin) / step)] ||= { n: 0, from: v.mod, to: v.mod });
    bar.n++;
    bar.from = v.mod;
  }
  const high = Math.max(...Array.from(bars, (b) => b?.n || 0));
  const about = (i: number) => `${moment(begin + i * step)}: ${count(bars[i].n, "change")}, revisions ${bars[i].from} to ${bars[i].to}`;
  const marks = [0, used >> 1, used - 1];
  return (
    <figure class="timeline">
      <figcaption class="dim">Changes by time, {date(first)} to {date(last)}; each bar is {step < 60000 ? step / 1000 + " s" : duration(step / 1000)}{timed.length < list.length ? `; ${count(list.length - timed.length, "change")} at times that are not known are not here` : ""}</figcaption>
      <svg class="bars" viewBox={`0 0 ${W} ${H}`} preserveAspectRatio="none" role="group" aria-label={`changes by time: ${timed.length} from ${date(first)} to ${date(last)}`}>
        {Array.from(bars, (b, i) => b ? (
          <a key={i} href={link("history", { from: b.from, to: b.to, prefix })} aria-label={about(i)}>
            <title>{about(i)}</title>
            <rect x={(i * W) / used} width={Math.max(1, W / used - 1)} y={H - (b.n / high) * H} height={(b.n / high) * H} />
          </a>
        ) : null)}
      </svg>
      <p class="ends dim">{marks.map((i) => <span key={i}>{time(begin + i * step)}</span>)}</p>
    </figure>
  );
}
