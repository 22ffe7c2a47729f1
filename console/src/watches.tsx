import { Component } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { get, lines } from "./api";
import { Bytes, etcdctl, fromAddress, fromBase64, plain, visible } from "./bytes";
import { Busy, Copy, count, duration, ErrorBox, go, Key, link, number, Route, size, Text, time } from "./ui";

export function Watches({ route }: { route: Route }) {
  const tail = route.params.get("tail");
  return tail === null ? <Table params={route.params} /> : <Tail key={tail} prefix={fromAddress(tail)} search={route.params.get("filter") || ""} />;
}

const columns = [["member", "Member"], ["client", "Client"], ["user", "User"], ["key", "Range"], ["state", "State"], ["lag", "Lag"], ["queued", "Queued"], ["events", "Events"], ["created", "Age"]];

function Table({ params }: { params: URLSearchParams }) {
  const sort = params.get("sort") || "lag", filter = params.get("filter") || "", member = params.get("member") || "";
  const [data, set] = useState<any>(null);
  const [error, fail] = useState<unknown>(null);
  const [paused, pause] = useState(false);
  const [text, type] = useState(filter);
  useEffect(() => {
    const a = new AbortController();
    let timer = 0;
    const read = () => get("watchers", { sort, filter, member }, a.signal).then((d) => { set(d); fail(null); }, (e) => a.signal.aborted || fail(e))
      .finally(() => { if (!a.signal.aborted && !paused) timer = window.setTimeout(read, 1000); });
    read();
    return () => { a.abort(); clearTimeout(timer); };
  }, [sort, filter, member, paused]);
  return (
    <>
      <h1>Watches</h1>
      <form class="row bar" onSubmit={(e) => { e.preventDefault(); go(link("watches", { sort, filter: text, member })); }}>
        <label>Filter <input id="search" value={text} placeholder="client, user, state or key" onInput={(e) => type(e.currentTarget.value)} /></label><button>Filter</button>
        <label>Member <select value={member} onChange={(e) => go(link("watches", { sort, filter, member: e.currentTarget.value }))}>
          <option value="">all members</option>{[...new Set([...(data?.members || []).map((m: any) => m.name), member].filter(Boolean))].map((n: any) => <option key={n} value={n}>{visible(n)}</option>)}
        </select></label>
        <button type="button" aria-pressed={paused} onClick={() => pause(!paused)}>{paused ? "Continue" : "Pause"}</button>
      </form>
      <TailForm />
      <ErrorBox error={error} />
      {data?.members.filter((m: any) => m.error).map((m: any) => <p key={m.name} class="warn" role="status">The watchers of <Text value={m.name} /> are not known: <Text value={m.error} />. Its state is in the <a href={link("overview")}>overview</a>.</p>)}
      {!data ? (error ? null : <Busy what="Reading the watchers…" />) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Watchers">
          <table>
            <caption>{number(data.matching)} of {count(data.total, "watcher")} on {count(data.streams, "stream")}{data.matching > data.watchers.length ? `; the first ${data.watchers.length} are listed` : ""}. {data.members.filter((m: any) => !m.error).map((m: any, i: number) => <span key={m.name}>{i ? "; " : ""}<Text value={m.name} />: {count(m.watchers, "watcher")}, revision {m.revision}, distributed up to {m.distributed}</span>)}</caption>
            <thead><tr>{columns.map(([name, title]) => <th key={name} scope="col" aria-sort={sort === name ? "descending" : undefined}><a href={link("watches", { sort: name, filter, member })}>{title}</a></th>)}<th scope="col">Tail</th></tr></thead>
            <tbody>{data.watchers.map((w: any) => {
              const k = fromBase64(w.key), end = fromBase64(w.end);
              return (
                <tr key={w.member + "/" + w.stream + "/" + w.id}>
                  <td><Text value={w.member} /></td><td><Text value={w.client} /></td><td><Text value={w.user || ""} /></td><td><Key value={k} />{w.end ? <> – <Key value={end} /></> : null}{w.cut ? <span class="dim">…</span> : null}{w.options ? <span class="dim"> {w.options.join(" ")}</span> : null}</td>
                  <td class={w.state === "stalled" || w.state === "behind" ? "bad" : ""}>{w.state}</td><td class="num">{number(w.lag)}</td><td class="num">{size(w.queued)}</td>
                  <td class="num">{number(w.events)}</td><td class="num">{duration(Math.max(0, (Date.now() - Date.parse(w.created)) / 1000))}</td><td>{w.cut ? <span class="dim">long key</span> : <a href={link("watches", { tail: k })} aria-label={`live tail of ${plain(k.subarray(0, 100))}`}>tail</a>}</td>
                </tr>
              );
            })}</tbody>
          </table>
        </div>
      )}
    </>
  );
}

function TailForm() {
  const [text, type] = useState("");
  return (
    <form class="row bar" onSubmit={(e) => { e.preventDefault(); location.hash = "#/watches?tail=" + encodeURIComponent(text); }}>
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
          });
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
      <h1>Live tail of <Key value={prefix} /></h1>
      <p class="row"><a href={link("watches")}>all watchers</a> <a href={link("watches", { tail: prefix, filter })}>link to this view</a> <Copy label="Copy as etcdctl" text={etcdctl("watch", ["--prefix"], prefix)} /></p>
      <ErrorBox error={error} />
      <div class="row">
        <button aria-pressed={paused} onClick={() => { freeze(all.current.slice()); pause(!paused); }}>{paused ? "Continue" : "Pause"}</button>
        <label>Filter <input id="search" value={filter} placeholder="key or value" onInput={(e) => type(e.currentTarget.value)} /></label>
        <span id="tail-counts">{number(s.rate)} events/s, {number(s.events)} in all, revision {s.revision}{open ? "" : " (connecting)"}{paused ? " (paused: events are still counted)" : ""}</span>
        {s.skipped ? <strong class="warn" role="status">{number(s.skipped)} skipped: they came faster than this browser has read them</strong> : null}
        {s.lost ? <strong class="warn" role="status">{s.lost}</strong> : null}
      </div>
      <div class="scroll tail" tabIndex={0} role="region" aria-label="Events">
        <table>
          <caption>The newest {number(list.length)} of {number(source.length)} events that are kept here{filter ? ", with the filter" : ""}</caption>
          <thead><tr><th scope="col" class="time">Received</th><th scope="col" class="num">Revision</th><th scope="col" class="what">Change</th><th scope="col">Key</th><th scope="col" class="num">Size</th><th scope="col">Value</th></tr></thead>
          <tbody>{list.map((e) => <Row key={e.mod + e.key} e={e} />)}</tbody>
        </table>
      </div>
      {list.length === 0 ? <p class="dim">No event yet: changes appear here as they are written.</p> : null}
    </>
  );
}

// Row is drawn once: an event does not change.
class Row extends Component<{ e: Event }> {
  shouldComponentUpdate() { return false; }
  render() {
    const e = this.props.e, k = fromBase64(e.key);
    return <tr><td>{time(e.to)}</td><td class="num">{e.mod}</td><td>{e.deleted ? "delete" : e.version === 1 ? "create" : "put"}</td><td>{e.cut ? <><Key value={k} /><span class="dim">…, a long key</span></> : <a href={link("keys", { k })}><Key value={k} /></a>}</td>
      <td class="num">{e.deleted ? "" : size(e.size)}</td><td class="excerpt">{e.text ? <Text value={e.text.slice(0, 120)} /> : null}</td></tr>;
  }
}
