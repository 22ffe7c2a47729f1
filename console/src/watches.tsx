import { useEffect, useRef, useState } from "preact/hooks";
import { get, lines } from "./api";
import { Bytes, fromAddress, fromBase64, plain } from "./bytes";
import { Busy, duration, ErrorBox, go, Key, link, number, Route, size, Text, time } from "./ui";

export function Watches({ route }: { route: Route }) {
  const tail = route.params.get("tail");
  return tail === null ? <Table params={route.params} /> : <Tail key={tail} prefix={fromAddress(tail)} />;
}

const columns = [["client", "Client"], ["user", "User"], ["key", "Range"], ["state", "State"], ["lag", "Lag"], ["queued", "Queued"], ["events", "Events"], ["created", "Age"]];

function Table({ params }: { params: URLSearchParams }) {
  const sort = params.get("sort") || "lag", filter = params.get("filter") || "";
  const [data, set] = useState<any>(null);
  const [error, fail] = useState<unknown>(null);
  const [paused, pause] = useState(false);
  const [text, type] = useState(filter);
  useEffect(() => {
    const a = new AbortController();
    let timer = 0;
    const read = () => get("watchers", { sort, filter }, a.signal).then((d) => { set(d); fail(null); }, (e) => a.signal.aborted || fail(e))
      .finally(() => { if (!a.signal.aborted && !paused) timer = window.setTimeout(read, 1000); });
    read();
    return () => { a.abort(); clearTimeout(timer); };
  }, [sort, filter, paused]);
  return (
    <>
      <h1>Watches</h1>
      <form class="row" onSubmit={(e) => { e.preventDefault(); go(link("watches", { sort, filter: text })); }}>
        <label>Filter <input id="search" value={text} placeholder="client, user, state or key" onInput={(e) => type(e.currentTarget.value)} /></label><button>Filter</button>
        <button type="button" aria-pressed={paused} onClick={() => pause(!paused)}>{paused ? "Continue" : "Pause"}</button>
      </form>
      <TailForm />
      <ErrorBox error={error} />
      {!data ? (error ? null : <Busy what="Reading the watchers…" />) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Watchers">
          <table>
            <caption>{number(data.matching)} of {number(data.total)} watchers on {number(data.streams)} streams of this member{data.matching > data.watchers.length ? `; the first ${data.watchers.length} are listed` : ""}. Revision {data.revision}, matched up to {data.distributed}.</caption>
            <thead><tr>{columns.map(([name, title]) => <th key={name} scope="col" aria-sort={sort === name ? "descending" : undefined}><a href={link("watches", { sort: name, filter })}>{title}</a></th>)}<th scope="col">Tail</th></tr></thead>
            <tbody>{data.watchers.map((w: any) => {
              const k = fromBase64(w.key), end = fromBase64(w.end);
              return (
                <tr key={w.stream + "/" + w.id}>
                  <td><Text value={w.client} /></td><td><Text value={w.user || ""} /></td><td><Key value={k} />{w.end ? <> – <Key value={end} /></> : null}{w.options ? <span class="dim"> {w.options.join(" ")}</span> : null}</td>
                  <td class={w.state === "stalled" || w.state === "behind" ? "bad" : ""}>{w.state}</td><td class="num">{number(w.lag)}</td><td class="num">{size(w.queued)}</td>
                  <td class="num">{number(w.events)}</td><td class="num">{duration(Math.max(0, (Date.now() - Date.parse(w.created)) / 1000))}</td><td><a href={link("watches", { tail: k })} aria-label={`live tail of ${plain(k)}`}>tail</a></td>
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
    <form class="row" onSubmit={(e) => { e.preventDefault(); location.hash = "#/watches?tail=" + encodeURIComponent(text); }}>
      <label>Live tail of the prefix <input value={text} onInput={(e) => type(e.currentTarget.value)} /></label><button>Tail</button>
    </form>
  );
}

type Event = { key: string; mod: number; deleted?: boolean; version: number; size: number; text?: string; to: number };
const kept = 1000, drawn = 200;

// Tail shows changes as they happen. Events are kept apart from what is drawn, which is at most four times a second.
function Tail({ prefix }: { prefix: Bytes }) {
  const all = useRef<Event[]>([]);
  const seen = useRef({ events: 0, dropped: 0, revision: 0, rate: 0 });
  const [, draw] = useState(0);
  const [paused, pause] = useState(false);
  const [shown, freeze] = useState<Event[]>([]);
  const [filter, type] = useState("");
  const [error, fail] = useState<unknown>(null);
  const [open, connect] = useState(false);
  useEffect(() => {
    const a = new AbortController();
    let rev = 0;
    (async () => {
      while (!a.signal.aborted) {
        try {
          await lines("tail", { prefix, rev: rev || undefined }, a.signal, (l) => {
            if (l.created) { connect(true); fail(null); }
            seen.current.revision = l.revision;
            for (const e of l.events || []) {
              seen.current.events++;
              rev = e.mod + 1;
              all.current.push(e);
            }
            if (all.current.length > 2 * kept) {
              seen.current.dropped += all.current.length - kept;
              all.current = all.current.slice(-kept);
            }
          });
        } catch (e: any) {
          if (a.signal.aborted) return;
          fail(e);
          if (e.code === "denied") return;
          if (e.code === "compacted") rev = 0;
        }
        connect(false);
        await new Promise((r) => setTimeout(r, 1000));
      }
    })();
    let before = 0, at = performance.now();
    const timer = setInterval(() => {
      const now = performance.now();
      if (now - at >= 1000) {
        seen.current.rate = ((seen.current.events - before) * 1000) / (now - at);
        before = seen.current.events;
        at = now;
      }
      draw((n) => n + 1);
    }, 250);
    return () => { a.abort(); clearInterval(timer); };
  }, []);
  const source = paused ? shown : all.current;
  const list = (filter ? source.filter((e) => plain(fromBase64(e.key)).includes(filter) || (e.text || "").includes(filter)) : source).slice(-drawn).reverse();
  return (
    <>
      <h1>Live tail of <Key value={prefix} /></h1>
      <p><a href={link("watches")}>all watchers</a></p>
      <ErrorBox error={error} />
      <div class="row">
        <button aria-pressed={paused} onClick={() => { freeze(all.current.slice()); pause(!paused); }}>{paused ? "Continue" : "Pause"}</button>
        <label>Filter <input id="search" value={filter} placeholder="key or value" onInput={(e) => type(e.currentTarget.value)} /></label>
        <span>{number(seen.current.rate)} events/s, {number(seen.current.events)} in all, revision {seen.current.revision}{open ? "" : " (connecting)"}{paused ? " (paused: events are still counted)" : ""}</span>
      </div>
      <div class="scroll tail" tabIndex={0} role="region" aria-label="Events">
        <table>
          <caption>The newest {drawn} of {number(all.current.length)} kept events</caption>
          <thead><tr><th scope="col">Received</th><th scope="col" class="num">Revision</th><th scope="col">Change</th><th scope="col">Key</th><th scope="col" class="num">Size</th><th scope="col">Value</th></tr></thead>
          <tbody>{list.map((e) => {
            const k = fromBase64(e.key);
            return <tr key={e.mod + e.key}><td>{time(e.to)}</td><td class="num">{e.mod}</td><td>{e.deleted ? "delete" : e.version === 1 ? "create" : "put"}</td><td><a href={link("keys", { k })}><Key value={k} /></a></td>
              <td class="num">{e.deleted ? "" : size(e.size)}</td><td class="excerpt">{e.text ? <Text value={e.text.slice(0, 120)} /> : null}</td></tr>;
          })}</tbody>
        </table>
      </div>
      {list.length === 0 ? <p class="dim">No event yet: changes appear here as they are written.</p> : null}
    </>
  );
}
