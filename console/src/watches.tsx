import { Component } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { get, lines } from "./api";
import { Bytes, etcdctl, fromAddress, fromBase64, fromField, plain, visible } from "./bytes";
import { Aging, useAge } from "./live";
import { Busy, Copy, count, duration, go, Key, link, number, Range, Route, size, Text, time } from "./ui";

export function Watches({ route }: { route: Route }) {
  const tail = route.params.get("tail");
  return tail === null ? <Table params={route.params} /> : <Tail key={tail} prefix={fromAddress(tail)} search={route.params.get("filter") || ""} />;
}

const columns = [["member", "Member"], ["client", "Client"], ["user", "User"], ["key", "Range"], ["state", "State"], ["lag", "Lag"], ["queued", "Queued"], ["events", "Events"], ["created", "Age"]];

// Options of watchers and their states, in words.
const options: Record<string, string> = { fragment: "large answers in parts", nodelete: "puts only", noput: "deletions only", prev_kv: "with the old values", progress_notify: "with notifications of progress" };
const states: Record<string, string> = { live: "receives events as they happen", behind: "reads missed events from the history", stalled: "its client does not read, so that no more events are sent", future: "waits for a later revision" };

// period is how often the table is read; a member that does not answer is waited for 2 s each time.
const period = 3000;

function Table({ params }: { params: URLSearchParams }) {
  const sort = params.get("sort") || "lag", filter = params.get("filter") || "", member = params.get("member") || "";
  const [data, set] = useState<any>(null);
  const [error, fail] = useState<unknown>(null);
  const [paused, pause] = useState(false);
  const [text, type] = useState(filter);
  const age = useAge(period, paused);
  // The watchers of each member as it has named them last, for when it does not answer.
  const seen = useRef(new Map<string, { at: number; watchers: any[] }>());
  useEffect(() => {
    seen.current = new Map();
  }, [sort, filter]);
  useEffect(() => {
    const a = new AbortController();
    let timer = 0;
    const take = (d: any) => {
      age.renew();
      for (const m of d.members) {
        if (!m.error) seen.current.set(m.name, { at: Date.now(), watchers: d.watchers.filter((w: any) => w.member === m.name) });
      }
      set({ ...d, at: Date.now() });
      fail(null);
    };
    const read = () => get("watchers", { sort, filter, member }, a.signal, 2 * period).then(take, (e) => a.signal.aborted || fail(e))
      .finally(() => { if (!a.signal.aborted && !paused) timer = window.setTimeout(read, 1000); });
    read();
    return () => { a.abort(); clearTimeout(timer); };
  }, [sort, filter, member, paused]);
  const mute = (data?.members || []).filter((m: any) => m.error);
  const old = mute.flatMap((m: any) => seen.current.get(m.name)?.watchers.map((w: any) => ({ ...w, old: true })) || []);
  return (
    <>
      <h1>Watches</h1>
      <form class="row bar" onSubmit={(e) => { e.preventDefault(); go(link("watches", { sort, filter: text, member })); }}>
        <label>Filter <input id="search" value={text} placeholder="client, user, state or key" onInput={(e) => type(e.currentTarget.value)} /></label><button>Filter</button>
        <label>Member <select value={member} onChange={(e) => go(link("watches", { sort, filter, member: e.currentTarget.value }))}>
          <option value="">all members</option>{[...new Set([...(data?.members || []).map((m: any) => m.name), member].filter(Boolean))].map((n: any) => <option key={n} value={n}>{visible(n)}</option>)}
        </select></label>
        <button type="button" aria-pressed={paused} onClick={() => pause(!paused)}>{paused ? "Continue" : "Pause"}</button>
        {paused && data ? <span>as of {time(data.at)}</span> : null}
      </form>
      <TailForm />
      <Aging age={age} error={error} empty={!data}>
        {mute.map((m: any) => {
          const s = seen.current.get(m.name);
          return <p key={m.name} class="warn" role="status">The watchers of <Text value={m.name} /> are not known: <Text value={m.error} />. {s ? <>The grey ones are from {time(s.at)}. </> : null}Its state is in the <a href={link("overview")}>overview</a>.</p>;
        })}
        {!data ? (error ? null : <Busy what="Reading the watchers…" />) : (
          <div class="scroll cards" tabIndex={0} role="region" aria-label="Watchers">
            <table>
              <caption>{data.matching > data.watchers.length ? `The first ${number(data.watchers.length)} of ` : ""}{filter || mute.length || data.matching > data.watchers.length ? `${number(data.matching)} of ` : ""}{mute.length ? "at least " : ""}{count(data.total, "watcher")} on {count(data.streams, "stream")}. {data.members.filter((m: any) => !m.error).map((m: any, i: number) => <span key={m.name}>{i ? "; " : ""}<Text value={m.name} />: {count(m.watchers, "watcher")}, revision {m.revision}, distributed up to {m.distributed}</span>)}</caption>
              <thead><tr>{columns.map(([name, title]) => <th key={name} scope="col" aria-sort={sort === name ? "descending" : undefined}><a href={link("watches", { sort: name, filter, member })}>{title}</a></th>)}<th scope="col">Tail</th></tr></thead>
              <tbody>{[...data.watchers, ...old].map((w: any) => {
                const k = fromBase64(w.key), end = fromBase64(w.end);
                return (
                  <tr key={w.member + "/" + w.stream + "/" + w.id} class={w.old ? "old" : undefined}>
                    <td data-label="Member"><Text value={w.member} /></td><td data-label="Client"><Text value={w.client} /></td><td data-label="User"><Text value={w.user || ""} /></td>
                    <td data-label="Range"><Range from={k} end={end} />{w.cut ? <span class="dim">…</span> : null}{w.options ? <span class="dim"> {w.options.map((o: string) => options[o] || o).join(", ")}</span> : null}</td>
                    <td data-label="State" class={!w.old && (w.state === "stalled" || w.state === "behind") ? "bad" : ""} title={states[w.state]}>{w.state}</td><td data-label="Lag" class="num">{number(w.lag)}</td><td data-label="Queued" class="num">{size(w.queued)}</td>
                    <td data-label="Events" class="num">{number(w.events)}</td><td data-label="Age" class="num">{duration(Math.max(0, (Date.now() - Date.parse(w.created)) / 1000))}</td><td data-label="Tail">{w.cut ? <span class="dim">long key</span> : <a href={link("watches", { tail: k })} aria-label={`live tail of ${plain(k.subarray(0, 100))}`}>tail</a>}</td>
                  </tr>
                );
              })}</tbody>
            </table>
          </div>
        )}
      </Aging>
    </>
  );
}

// tailOf is the address of the tail of a prefix, of all keys if it is empty.
export const tailOf = (prefix: Bytes, filter = "") => link("watches", { tail: prefix.length ? prefix : "base64:", filter });

function TailForm() {
  const [text, type] = useState("");
  return (
    <form class="row bar" onSubmit={(e) => { e.preventDefault(); go(tailOf(fromField(text))); }}>
      <label>Live tail of the prefix <input value={text} onInput={(e) => type(e.currentTarget.value)} /></label><button>Tail</button>
    </form>
  );
}

type Event = { key: string; cut?: boolean; mod: number; deleted?: boolean; version: number; size: number; text?: string; to: number };
const kept = 1000, drawn = 100;

// Tail shows changes as they happen. What has arrived is drawn in the next frame of the screen, but four times a second while more happens
// than somebody can read. No event is lost in silence: the member
// counts those that this browser is too slow for, and a stream that was cut is continued where it ended.
function Tail({ prefix, search }: { prefix: Bytes; search: string }) {
  const all = useRef<Event[]>([]);
  const seen = useRef({ events: 0, skipped: 0, lost: "", revision: 0, rate: 0 });
  const [, draw] = useState(0);
  const [paused, pause] = useState(false);
  const [shown, freeze] = useState<Event[]>([]);
  const [filter, type] = useState(search);
  const [error, fail] = useState<unknown>(null);
  const [open, connect] = useState(false);
  const [leaderless, miss] = useState("");
  const age = useAge();
  useEffect(() => {
    const a = new AbortController();
    const now = seen.current;
    // A new stream begins with the revision of the newest event, of which some events may be here already.
    let from = 0, last = 0, ofLast = 0, repeated = 0, frame = 0, soon = 0;
    const arrived = () => {
      soon ||= window.setTimeout(() => { frame = requestAnimationFrame(() => { soon = 0; draw((n) => n + 1); }); }, now.rate > 100 ? 250 : 0);
    };
    (async () => {
      while (!a.signal.aborted) {
        repeated = from === last ? ofLast : 0;
        try {
          await lines("tail", { prefix, rev: from || undefined }, a.signal, (l) => {
            if (l.created) { connect(true); fail(null); from ||= l.revision + 1; }
            now.revision = l.revision;
            if (l.skipped) { now.skipped += l.skipped; repeated = 0; }
            for (const e of l.events || []) {
              if (repeated > 0 && e.mod === last) { repeated--; continue; }
              repeated = 0;
              ofLast = e.mod === last ? ofLast + 1 : 1;
              from = last = e.mod;
              now.events++;
              all.current.push(e);
            }
            if (all.current.length > 2 * kept) all.current = all.current.slice(-kept);
            arrived();
          }, (l) => { age.renew(); if (l.beat) miss(l.local || ""); });
        } catch (e: any) {
          if (a.signal.aborted) return;
          fail(e);
          if (e.code === "denied") return;
          if (e.code === "compacted") { now.lost = `events from revision ${from} on were compacted before they arrived`; from = 0; }
        }
        connect(false);
        await new Promise((r) => setTimeout(r, 1000));
      }
    })();
    let before = 0, at = performance.now();
    const timer = setInterval(() => {
      const t = performance.now();
      now.rate = ((now.events + now.skipped - before) * 1000) / (t - at);
      before = now.events + now.skipped;
      at = t;
      arrived();
    }, 1000);
    return () => { a.abort(); clearInterval(timer); clearTimeout(soon); cancelAnimationFrame(frame); };
  }, []);
  const source = paused ? shown : all.current;
  const list = (filter ? source.filter((e) => plain(fromBase64(e.key)).includes(filter) || (e.text || "").includes(filter)) : source).slice(-drawn).reverse();
  const s = seen.current;
  return (
    <>
      <h1>Live tail of {prefix.length ? <Key value={prefix} /> : "all keys"}</h1>
      <p class="row"><a href={link("watches")}>all watchers</a> <a href={tailOf(prefix, filter)}>link to this view</a> <Copy label="Copy as etcdctl" text={etcdctl("watch", ["--prefix"], prefix)} /></p>
      <Aging age={age} error={error}>
      {leaderless && !age.silent ? <p class="warn" role="status"><Text value={leaderless} />: nothing can be written, so that nothing happens here. The <a href={link("overview")}>overview</a> names the members that do not answer.</p> : null}
      <div class="row">
        <button aria-pressed={paused} onClick={() => { freeze(all.current.slice()); pause(!paused); }}>{paused ? "Continue" : "Pause"}</button>
        <label>Filter <input id="search" value={filter} placeholder="key or value" onInput={(e) => type(e.currentTarget.value)} /></label>
        <span id="tail-counts">{number(s.rate)} events/s, {number(s.events)} in all, revision {s.revision}{open ? "" : " (connecting)"}{paused ? " (paused: events are still counted)" : ""}</span>
        {s.skipped ? <strong class="warn" role="status">{number(s.skipped)} skipped: they came faster than this browser has read them</strong> : null}
        {s.lost ? <strong class="warn" role="status">{s.lost}</strong> : null}
      </div>
      <div class="scroll tail cards" tabIndex={0} role="region" aria-label="Events">
        <table>
          <caption>The newest {number(list.length)} of {number(source.length)} events that are kept here{filter ? ", with the filter" : ""}</caption>
          <thead><tr><th scope="col" class="time">Received</th><th scope="col" class="num">Revision</th><th scope="col" class="what">Change</th><th scope="col">Key</th><th scope="col" class="num">Size</th><th scope="col">Value</th></tr></thead>
          <tbody>{list.map((e) => <Row key={e.mod + e.key} e={e} />)}</tbody>
        </table>
      </div>
      {list.length === 0 ? <p class="dim">No event yet: changes appear here as they are written.</p> : null}
      </Aging>
    </>
  );
}

// Row is drawn once: an event does not change.
class Row extends Component<{ e: Event }> {
  shouldComponentUpdate() { return false; }
  render() {
    const e = this.props.e, k = fromBase64(e.key);
    return <tr><td data-label="Received">{time(e.to)}</td><td data-label="Revision" class="num">{e.mod}</td><td data-label="Change">{e.deleted ? "delete" : e.version === 1 ? "create" : "put"}</td><td data-label="Key">{e.cut ? <><Key value={k} /><span class="dim">…, a long key</span></> : <a href={link("keys", { k })}><Key value={k} /></a>}</td>
      <td data-label="Size" class="num">{e.deleted ? "" : size(e.size)}</td><td data-label="Value" class="excerpt">{e.text ? <Text value={e.text.slice(0, 120)} /> : null}</td></tr>;
  }
}
