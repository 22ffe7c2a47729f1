import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { download, Failure, get, lines, post } from "./api";
import { asText, Bytes, compare, editable, Editable, empty, etcdctl, fromAddress, fromBase64, fromField, fromText, plain, same, toBase64, toField } from "./bytes";
import { Busy, Column, Confirm, Copy, count, date, Dialog, ErrorBox, go, Key, link, moment, number, parseTime, point, Range, revisionOf, Route, size, Table, Text, useLoad, When } from "./ui";
import { Session } from "./session";
import { tailOf } from "./watches";

// usePast returns the revision at which keys are shown: that of the address, or the one of the time in the address, which is not known
// at once.
function usePast(p: URLSearchParams): { rev: string; at: string; pending: boolean; error: unknown } {
  const at = p.get("at") || "";
  const [found, set] = useState<{ at: string; rev: string; error: unknown }>({ at: "", rev: "", error: null });
  useEffect(() => {
    if (!at) return;
    const a = new AbortController();
    revisionOf(at, a.signal).then((r) => set({ at, rev: String(r.revision), error: null }), (error) => a.signal.aborted || set({ at, rev: "", error }));
    return () => a.abort();
  }, [at]);
  const rev = p.get("rev") || "";
  if (!at) return { rev: /^0*$/.test(rev) ? "" : rev, at, pending: false, error: null }; // the API reads 0 as the newest
  return { rev: found.rev, at, pending: found.at !== at, error: found.at === at ? found.error : null };
}

// Keys shows the tree or a search, and next to it one key.
export function Keys({ route, session }: { route: Route; session: Session }) {
  const p = route.params;
  const prefix = fromAddress(p.get("prefix") || "");
  const sep = p.get("sep") ?? "/";
  const past = usePast(p), rev = past.rev;
  const key = p.has("k") ? fromAddress(p.get("k")!) : null;
  const mode = p.get("mode") || "";
  const [dialog, open] = useState<Asked | null>(null);
  const close = () => open(null);
  const [round, again] = useState(0);
  const when = { rev: past.at ? null : rev, at: past.at };
  const at = (more: Record<string, any>) => link("keys", { prefix, sep: sep === "/" ? null : sep || "none", ...when, mode, q: p.get("q"), end: p.get("end"), sort: p.get("sort"), desc: p.get("desc"), cols: p.get("cols"), form: p.get("form"), k: key, ...more });
  const roots = session.root || session.ranges.length === 0 ? null : session.ranges.filter((r) => r.read);
  return (
    <>
      <h1>Keys</h1>
      <div class="bars-row">
        <Search key={mode + p.get("q") + p.get("end")} params={p} when={when} />
        <AsOf past={past} to={(w) => at({ rev: null, at: null, ...w })} />
        {past.at || rev ? null : <p class="row"><button onClick={() => open({ form: "new", prefix })}>New key</button><button onClick={() => open({ form: "import", prefix })}>Import…</button></p>}
      </div>
      {past.error ? <ErrorBox error={past.error} /> : past.pending ? <Busy what={`Looking for the revision of ${past.at}…`} /> : (
        <div class={key ? "split" : ""}>
          <section aria-label="List of keys">
            {mode ? <Results key={JSON.stringify([mode, p.get("q"), p.get("end"), p.get("prefix"), p.get("sort"), p.get("desc"), rev])} params={p} rev={rev} at={at} open={open} round={round} /> : (
              <>
                <p class="crumbs row">
                  <span><a href={at({ prefix: null, k: null })}>all keys</a>{prefix.length ? <> › <Key value={prefix} /></> : null}</span>
                  <Actions prefix={prefix} rev={rev} open={open} />
                  <label class="dim">separator <input class="tiny" value={sep === "none" ? "" : sep} onChange={(e) => go(at({ sep: e.currentTarget.value || "none" }))} /></label>
                </p>
                {roots && prefix.length === 0 ? (
                  <>
                    <p class="dim">You may read these ranges:</p>
                    <ul class="tree">{roots.map((r, i) => {
                      const k = fromBase64(r.key), end = fromBase64(r.end);
                      return <li key={i}><a href={r.end ? link("keys", { mode: "range", q: k, end, ...when }) : at({ k })}><Range from={k} end={end} /></a></li>;
                    })}</ul>
                  </>
                ) : <Level key={JSON.stringify([toBase64(prefix), sep, rev, round])} prefix={prefix} sep={sep === "none" ? "" : sep} rev={rev} at={at} open={open} selected={key} />}
              </>
            )}
          </section>
          {key ? <Detail key={toBase64(key) + rev} value={key} rev={rev} form={p.get("form") || ""} at={at} changed={() => again((n) => n + 1)} /> : null}
        </div>
      )}
      {dialog?.form === "new" ? <Edit title="New key" value={null} prefix={dialog.prefix} close={close} done={(k) => { again((n) => n + 1); go(at({ k })); }} /> : null}
      {dialog?.form === "delete" ? <DeletePrefix prefix={dialog.prefix} close={close} done={() => again((n) => n + 1)} /> : null}
      {dialog?.form === "export" ? <Export prefix={dialog.prefix} rev={rev} close={close} /> : null}
      {dialog?.form === "import" ? <Import close={close} done={() => again((n) => n + 1)} /> : null}
    </>
  );
}

// Asked is a form that the reader has asked for, and the prefix of its keys.
type Asked = { form: string; prefix: Bytes };

// Actions are what can be done with all keys of a prefix.
function Actions({ prefix, rev, open }: { prefix: Bytes; rev: string | number; open: (a: Asked) => void }) {
  return (
    <span class="row actions" role="group" aria-label={`Actions on ${prefix.length ? plain(prefix.subarray(0, 100)) : "all keys"}`}>
      <a href={tailOf(prefix)}>Live tail</a> <a href={link("history", { prefix })}>History</a>
      <button onClick={() => open({ form: "export", prefix })}>Export…</button>
      {rev ? null : <button onClick={() => open({ form: "delete", prefix })}>Delete…</button>}
    </span>
  );
}

// AsOf chooses the revision, or the time, at which everything is shown.
function AsOf({ past, to }: { past: { rev: string; at: string; pending: boolean; error: unknown }; to: (when: { rev?: string; at?: string }) => string }) {
  const { rev, at } = past, now = at || rev;
  const [value, set] = useState(now);
  // At once: an effect after the picture could replace what was typed since then.
  useLayoutEffect(() => set(at && parseTime(at) !== null ? date(parseTime(at)!) : now), [now]);
  const submit = (e: Event) => {
    e.preventDefault();
    const p = point(value);
    go(to(/^\d*$/.test(p) ? { rev: p } : { at: p }));
  };
  const ms = at ? parseTime(at) : null;
  return (
    <form class={now ? "row asof past" : "row asof"} onSubmit={submit}>
      <label>As of <input aria-label="as of a revision or time" placeholder="now: a revision, 10:42, 5m" value={value} onInput={(e) => set(e.currentTarget.value)} /></label>
      <button>Show</button>
      {now ? <span>{ms !== null && !past.error && !past.pending ? <>as of {moment(ms)}, revision {rev} </> : rev ? <>as of revision <Text value={rev} /> </> : null}<a href={to({})}>back to the newest</a></span> : null}
    </form>
  );
}

function Search({ params, when }: { params: URLSearchParams; when: { rev: string | null; at: string } }) {
  const [mode, choose] = useState(params.get("mode") || "prefix");
  const first = fromAddress(params.get("q") || "");
  const [q, type] = useState((mode === "pattern" ? asText(first) : null) ?? toField(first));
  const [end, to] = useState(toField(fromAddress(params.get("end") || "")));
  const submit = (e: Event) => {
    e.preventDefault();
    go(q || mode === "range" ? link("keys", { mode, q: mode === "pattern" ? fromText(q) : fromField(q), end: mode === "range" ? fromField(end) : null, ...when, prefix: params.get("prefix") }) : link("keys", when));
  };
  return (
    <form class="row grow" role="search" onSubmit={submit}>
      <select aria-label="kind of search" value={mode} onChange={(e) => choose(e.currentTarget.value)}>
        <option value="prefix">prefix</option><option value="range">range</option><option value="pattern">pattern or part</option>
      </select>
      <input id="search" class="grow" aria-label={mode === "range" ? "first key" : "search keys"} placeholder={mode === "pattern" ? "*/app-?/** or a part of the key" : "key"} value={q} onInput={(e) => type(e.currentTarget.value)} />
      {mode === "range" ? <input aria-label="end of the range" placeholder="end (not included)" value={end} onInput={(e) => to(e.currentTarget.value)} /> : null}
      <button>Search</button>
      {params.get("mode") ? <a href={link("keys", when)}>back to the tree</a> : null}
    </form>
  );
}

type Entry = { key?: string; mod: number; create: number; version: number; lease?: string; prefix?: string; count?: number };

type LevelProps = { prefix: Bytes; sep: string; rev: string | number; at: (m: any) => string; open: (a: Asked) => void; selected: Bytes | null };

// Level is one level of the tree. Lower levels are read when they are opened, and those of the selected key are.
function Level({ prefix, sep, rev, at, open, selected }: LevelProps) {
  const [entries, set] = useState<Entry[] | null>(null);
  const [more, rest] = useState<any>(null);
  const [error, fail] = useState<unknown>(null);
  const [opened, toggle] = useState<Record<string, boolean>>({});
  const [menu, show] = useState("");
  const load = (after: string | undefined, revision: string | number, before: Entry[]) =>
    get("tree", { prefix, separator: sep, after: after && fromBase64(after), rev: revision }).then((p) => { set([...before, ...p.entries]); rest(p); }, fail);
  useEffect(() => { load(undefined, rev, []); }, []);
  const inside = selected && selected.length > prefix.length && same(selected.subarray(0, prefix.length), prefix) ? entryOf(selected, prefix.length, fromText(sep)) : null;
  const folder = inside?.prefix, current = inside?.key;
  useEffect(() => {
    if (folder) toggle((o) => ({ ...o, [folder]: true }));
  }, [folder]);
  useEffect(() => {
    if (current && entries) reveal(document.querySelector(".tree a[aria-current]"));
  }, [current, entries]);
  if (error) return <ErrorBox error={error} />;
  if (!entries) return <Busy what="Reading keys…" />;
  if (entries.length === 0) return <p class="dim">No keys{prefix.length ? " with this prefix" : ""} {rev ? `at revision ${rev}` : ""}</p>;
  const line = (e: Entry) => {
    if (!e.prefix) {
      const k = fromBase64(e.key);
      return <li key={"k" + e.key}><a href={at({ k })} aria-current={e.key === current ? "true" : undefined}><Key value={k.length > prefix.length ? k.subarray(prefix.length) : k} /></a></li>;
    }
    const p = fromBase64(e.prefix), isOpen = !!opened[e.prefix], name = plain(p.subarray(0, 100));
    return (
      <li key={"p" + e.prefix}>
        <button class="fold" aria-expanded={isOpen} onClick={() => toggle({ ...opened, [e.prefix!]: !isOpen })}><Key value={p.subarray(prefix.length)} /></button>
        {e.count ? <a class="dim" href={at({ prefix: p, k: null })} aria-label={`${count(e.count, "key")}: only ${name}`}>{count(e.count, "key")}</a> : null}
        <button class="plain" aria-expanded={menu === e.prefix} aria-label={`actions on ${name}`} onClick={() => show(menu === e.prefix ? "" : e.prefix!)}>⋯</button>
        {menu === e.prefix ? <Actions prefix={p} rev={rev} open={open} /> : null}
        {isOpen ? <Level prefix={p} sep={sep} rev={rev || more.revision} at={at} open={open} selected={selected} /> : null}
      </li>
    );
  };
  // The selected key may be in a later part of a long level.
  const far = inside && more?.after && !entries.some((e) => e.key === inside.key && e.prefix === inside.prefix) && compare(selected!, fromBase64(more.after)) >= 0;
  return (
    <ul class="tree">
      {entries.filter((e) => e.prefix).map(line)}
      {entries.filter((e) => !e.prefix).map(line)}
      {more?.after ? <li><button onClick={() => load(more.after, more.revision, entries)}>more… ({count(more.total, "key")} below)</button></li> : null}
      {far ? line(inside) : null}
    </ul>
  );
}

// entryOf returns the line of a level that a key is in.
function entryOf(key: Bytes, from: number, sep: Bytes): Entry {
  for (let i = from; sep.length && i + sep.length <= key.length; i++) {
    if (same(key.subarray(i, i + sep.length), sep)) return { mod: 0, create: 0, version: 0, prefix: toBase64(key.subarray(0, i + sep.length)) };
  }
  return { mod: 0, create: 0, version: 0, key: toBase64(key) };
}

// reveal scrolls a list to a line of it that is out of sight.
function reveal(line: Element | null) {
  const list = line?.closest("section");
  if (!line || !list) return;
  const y = line.getBoundingClientRect().top - list.getBoundingClientRect().top;
  if (y < 0 || y > list.clientHeight - 20) list.scrollTop += y - list.clientHeight / 2;
}

// The columns of results: name, title, and whether the member can sort by it.
const columns: [string, string, boolean][] = [["mod", "Modified at", true], ["create", "Created at", true], ["version", "Version", true], ["lease", "Lease", false], ["size", "Size", false], ["text", "Value", false]];
const numbers = ["mod", "create", "version", "size"];
const usual = "mod,create,version,lease";

function Results({ params, rev, at, open, round }: { params: URLSearchParams; rev: string; at: (m: any) => string; open: (a: Asked) => void; round: number }) {
  const mode = params.get("mode"), q = fromAddress(params.get("q") || ""), end = fromAddress(params.get("end") || "");
  const query = mode === "pattern" ? { key: fromAddress(params.get("prefix") || ""), pattern: asText(q) || "" } : mode === "range" ? { key: q, end: end.length ? end : fromBase64("AA==") } : { key: q };
  const cols = (params.get("cols") ?? usual).split(","), by = params.get("sort") || "key", down = params.get("desc") === "1";
  const [after, page] = useState<{ after?: Bytes; rev?: number; seen: number; visited: number }>({ seen: 0, visited: 0 });
  const values = cols.includes("size") || cols.includes("text");
  const { data, error, busy } = useLoad<any>("search", { ...query, rev: after.rev ?? rev, after: after.after, sort: by, descend: down ? 1 : null, values: values ? 1 : null, round });
  const shown = columns.filter(([n]) => cols.includes(n));
  const select = (
    <fieldset class="row"><legend>Columns</legend>{columns.map(([n, title]) => (
      <label key={n}><input type="checkbox" checked={cols.includes(n)} onChange={(e) => go(at({ cols: columns.map((c) => c[0]).filter((c) => (c === n ? e.currentTarget.checked : cols.includes(c))).join(",") || "none" }))} /> {title}</label>
    ))}</fieldset>
  );
  if (error) return <>{select}<ErrorBox error={error} /></>;
  if (!data) return <>{select}<Busy what="Searching…" /></>;
  const list: Entry[] = [...data.entries];
  if (!data.sorted && (by !== "key" || down)) list.sort((a: any, b: any) => (by === "key" ? (a.key < b.key ? -1 : 1) : a[by] - b[by]) * (down ? -1 : 1));
  const head = (name: string, title: string, sortable = true): Column => ({
    title, class: numbers.includes(name) ? "num" : name === "text" ? "excerpt" : "", sort: by !== name ? undefined : down ? "descending" : "ascending",
    href: sortable ? at({ sort: name, desc: by === name ? (down ? null : 1) : name === "key" ? null : 1 }) : undefined,
  });
  const cell = (e: any, name: string) => name === "text" ? (e.text ? <Text value={e.text} /> : e.size > 0 ? <span class="dim">binary</span> : null)
    : name === "lease" ? (e.lease ? <a href={link("leases", { after: e.lease })}>{e.lease}</a> : null)
    : name === "size" ? (e.size >= 0 ? size(e.size) : "not read") : e[name];
  const n = after.seen + list.length, visited = after.visited + (data.visited || 0), total = count(data.total, "key");
  const found = mode !== "pattern" ? (list.length < data.total ? `${number(after.seen + 1)} to ${number(n)} of ${total}` : total)
    : data.after ? `${number(list.length)} of at least ${count(n, "key")} that match; ${number(visited)} of ${total} were searched` : `${count(n, "key")} ${n === 1 ? "matches" : "match"}, of ${number(data.total)} that were searched`;
  const order: Record<string, string> = { key: "KEY", mod: "MODIFY", create: "CREATE", version: "VERSION" };
  const unbounded = end.length === 0 || (end.length === 1 && end[0] === 0);
  const flags = [mode === "range" ? unbounded && "--from-key" : "--prefix", rev && `--rev=${rev}`, !cols.includes("text") && "--keys-only", list.length < data.total && `--limit=${n}`, (by !== "key" || down) && `--sort-by=${order[by]} --order=${down ? "DESCEND" : "ASCEND"}`];
  const command = etcdctl("get", flags, ...(mode === "range" && !unbounded ? [q.length ? q : new Uint8Array(1), end] : [mode === "range" || mode === "prefix" ? q : query.key]));
  return (
    <>
      {select}
      <Table label="Results" caption={found + (by === "key" && !down ? "" : data.sorted ? (list.length < data.total ? "; the first in this order" : "") : "; sorted within this page") + (busy ? "; reading again…" : "")}
        columns={[head("key", "Key"), ...shown.map(([name, title, s]) => head(name, title, s))]}
        rows={list.map((e) => [e.key!, <a href={at({ k: fromBase64(e.key) })}><Key value={fromBase64(e.key)} /></a>, ...shown.map(([name]) => cell(e, name))])} />
      <p class="row">
        {after.after ? <button onClick={() => page({ seen: 0, visited: 0 })}>From the start</button> : null}
        {data.after ? <button onClick={() => page({ after: fromBase64(data.after), rev: data.revision, seen: n, visited })}>Next keys</button> : null}
        {mode === "pattern" ? null : <Copy label="Copy as etcdctl" text={command} />}
        {mode === "prefix" ? <Actions prefix={q} rev={rev} open={open} /> : null}
      </p>
    </>
  );
}

// Detail shows one key with its value.
function Detail({ value: key, rev, form, at, changed }: { value: Bytes; rev: string; form: string; at: (m: any) => string; changed: () => void }) {
  const { data, error, reload } = useLoad<any>("key", { key, rev });
  const [dialog, open] = useState("");
  const body = () => {
    if (error) return <ErrorBox error={error} />;
    if (!data) return <Busy what="Reading the key…" />;
    if (!data.key) return <><p>This key does not exist at revision {data.revision}.</p><p><a href={link("history", { k: key })}>Look for older values</a></p></>;
    const k = data.key, views = k.views as { name: string; text: string; cut?: boolean }[];
    const shown = views.find((v) => v.name === form) || views[0];
    return (
      <>
        <dl class="facts">
          <div><dt>Modified at revision</dt><dd><a href={at({ rev: k.mod, at: null })}>{k.mod}</a></dd></div><div><dt>Created at revision</dt><dd>{k.create}</dd></div><div><dt>Version</dt><dd>{k.version}</dd></div>
          <div><dt>Size</dt><dd>{size(k.size)}</dd></div><div><dt>Lease</dt><dd>{k.lease ? <a href={link("leases", { after: k.lease })}>{k.lease}</a> : "none"}</dd></div>
          <div><dt>When</dt><dd><When v={data.when} /></dd></div>
        </dl>
        <p class="row">
          <a href={link("history", { k: key })}>History</a> <a href={link("watches", { tail: key })}>Live tail</a>
          {rev ? null : <><button onClick={() => open("edit")}>Edit</button><button onClick={() => open("delete")}>Delete…</button></>}
          <Copy label="Copy as etcdctl" text={etcdctl("get", [rev && `--rev=${rev}`], key)} />
        </p>
        <div class="row" role="group" aria-label="Form of the value">{views.map((v) => <button key={v.name} aria-pressed={v === shown} onClick={() => go(at({ form: v.name }))}>{v.name}</button>)}</div>
        {shown.cut || k.cut ? <p class="dim">Only the beginning is shown.</p> : null}
        <pre class="value" tabIndex={0} aria-label="Value">{shown.text === "" ? <span class="dim">(empty)</span> : <Text value={shown.text} lines />}</pre>
        {dialog === "edit" ? <Edit title="Edit" value={k} keyBytes={key} close={() => open("")} done={() => { reload(); changed(); }} /> : null}
        {dialog === "delete" ? (
          <Confirm title="Delete one key" action="Delete 1 key" close={() => open("")} run={async () => { await post("delete", { key: toBase64(key), mod: k.mod }); reload(); changed(); }}>
            <p>This deletes <Key value={key} />, unless it was changed after revision {k.mod}. Older values stay in the history until a compaction.</p>
          </Confirm>
        ) : null}
      </>
    );
  };
  return <section aria-label="Key" class="detail"><div class="head"><h2 tabIndex={key.length > 300 ? 0 : undefined}><Key value={key} whole /></h2><a href={at({ k: null })}>close</a></div>{body()}</section>;
}

// notes say how a value is shown in a field that would change it otherwise.
const notes = {
  "": null,
  windows: <>Lines end with CRLF, new ones too.</>,
  escapes: <>This value has bytes that a text field would change or hide. They are escapes here: <code>\xff</code> is a byte, <code>{"\\u{d}"}</code> a character.</>,
};

// Edit writes a key, if it has not changed since it was read. What is not edited keeps its bytes.
function Edit({ title, value, keyBytes, prefix, close, done }: { title: string; value: any; keyBytes?: Bytes; prefix?: Bytes; close: () => void; done: (key: Bytes) => void }) {
  const [base, rebase] = useState<any>(value);
  const [name, rename] = useState(toField(prefix || empty));
  const [field, show] = useState<Editable | null>(value ? null : editable(empty));
  const [text, type] = useState("");
  const [error, fail] = useState<any>(null);
  const [busy, work] = useState(false);
  const [keep, keepLease] = useState(true);
  useEffect(() => {
    if (!value) return;
    get("key", { key: keyBytes!, whole: 1 }).then((r) => {
      if (!r.key) return fail(new Failure("request", "the key does not exist any more", "close this, and make a new key"));
      if (r.key.cut) return fail(new Failure("large", `this value has ${size(r.key.size)}, too much for one request`, "use a client with a higher limit"));
      const e = editable(fromBase64(r.key.value));
      show(e);
      type(e.text);
      rebase(r.key);
    }, fail);
  }, []);
  const submit = async (e: Event) => {
    e.preventDefault();
    work(true);
    fail(null);
    const key = keyBytes || fromField(name);
    try {
      await post("put", { key: toBase64(key), value: toBase64(field!.bytes(text)), mod: base ? base.mod : 0, lease: (keep && base?.lease) || "" });
      done(key);
      close();
    } catch (x) {
      fail(x);
      work(false);
    }
  };
  const conflict = error?.code === "conflict", other = conflict ? error.current : null;
  return (
    <Dialog title={title} close={close}>
      <form onSubmit={submit}>
        {keyBytes ? <p><Key value={keyBytes} /></p> : <label>Key <input required value={name} onInput={(e) => rename(e.currentTarget.value)} /></label>}
        {field ? <label>Value <textarea rows={12} spellcheck={false} value={text} onInput={(e) => type(e.currentTarget.value)} /></label> : error ? null : <Busy what="Reading the value…" />}
        {field && notes[field.form] ? <p class="dim">{notes[field.form]}</p> : null}
        {base?.lease ? <label><input type="checkbox" checked={keep} onChange={(e) => keepLease(e.currentTarget.checked)} /> keep the lease {base.lease}</label> : null}
        <p class="dim">{base ? `Written only if the key is still the one of revision ${base.mod}.` : "Written only if the key does not exist yet."}</p>
        <ErrorBox error={error} />
        {other ? (
          <div>
            <p>The value of revision {other.mod} is:</p>
            <pre class="value" tabIndex={0} aria-label="Current value"><Text value={other.views[0].text} lines /></pre>
            <button type="button" onClick={() => { rebase(other); fail(null); }}>I have seen it: replace it with mine</button>
          </div>
        ) : null}
        {conflict && !other ? <p><button type="button" onClick={() => { rebase(null); fail(null); }}>I have seen it: make the key again with my value</button></p> : null}
        <p class="row"><button class="primary" disabled={busy || !field || conflict}>{busy ? "writing…" : "Write"}</button><button type="button" onClick={close}>Cancel</button></p>
      </form>
    </Dialog>
  );
}

// DeletePrefix counts first, and deletes only if no key of the range was written since.
function DeletePrefix({ prefix, close, done }: { prefix: Bytes; close: () => void; done: () => void }) {
  const { data: found, error } = useLoad<any>("count", { key: prefix, prefix: 1 });
  if (!found) return <Dialog title="Delete all keys with a prefix" close={close}><ErrorBox error={error} />{error ? null : <Busy what="Counting the keys…" />}<button onClick={close}>Cancel</button></Dialog>;
  return (
    <Confirm title="Delete all keys with a prefix" action={`Delete ${count(found.count, "key")}`} word={String(found.count)} close={close}
      run={async () => { await post("delete", { key: toBase64(prefix), prefix: true, since: found.revision }); done(); }}>
      <p><strong>{count(found.count, "key")}</strong> {prefix.length ? <>begin with <Key value={prefix} /></> : "are the whole store"}, at revision {found.revision}. All are deleted in one revision, unless one of them is written before.</p>
    </Confirm>
  );
}

const exportBytes = 8 << 20;

function Export({ prefix, rev, close }: { prefix: Bytes; rev: string; close: () => void }) {
  const [n, set] = useState(-1);
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);
  const [error, fail] = useState<unknown>(null);
  const run = async (e: Event) => {
    e.preventDefault();
    // The browser keeps blobs outside the memory of the page, on disk if they are large.
    const blobs: Blob[] = [];
    let parts: string[] = [], bytes = 0, read = 0;
    const pack = () => { blobs.push(new Blob(parts)); parts = []; bytes = 0; };
    set(0);
    try {
      await lines("export", { prefix, rev }, stop.current.signal, (l) => {
        const line = JSON.stringify(l) + "\n";
        parts.push(line);
        if ((bytes += line.length) > exportBytes) pack();
        if (++read % 500 === 0) set(read);
      });
      pack();
      download(new Blob(blobs, { type: "application/x-ndjson" }), "keys.jsonl");
      close();
    } catch (x) {
      if (stop.current.signal.aborted) return;
      fail(x);
      set(-1);
    }
  };
  return (
    <Dialog title="Export as lines of JSON" close={close}>
      <form onSubmit={run}>
        <p>All keys {prefix.length ? <>with the prefix <Key value={prefix} /></> : "of the store"}, with values, at {rev ? "revision " + rev : "the newest revision"}.</p>
        <ErrorBox error={error} />
        {n >= 0 ? <Busy what={count(n, "key") + " read…"} /> : null}
        <p class="row"><button class="primary" disabled={n >= 0}>Export</button><button type="button" onClick={close}>Cancel</button></p>
      </form>
    </Dialog>
  );
}

// Bounds of an import: of a request, whose lines are written one after the other, and of a line.
const importBytes = 256 << 10, importLines = 200, longestLine = 64 << 20;

function Import({ close, done }: { close: () => void; done: () => void }) {
  const [file, choose] = useState<File | null>(null);
  const [replace, overwrite] = useState(false);
  const [result, set] = useState<any>(null);
  const [error, fail] = useState<unknown>(null);
  const closed = useRef(false);
  useEffect(() => () => { closed.current = true; }, []);
  const run = async (e: Event) => {
    e.preventDefault();
    fail(null);
    const total = { written: 0, existing: 0, ignored: 0, busy: true };
    set({ ...total });
    const add = (r: any) => { total.written += r.written; total.existing += r.existing; total.ignored += r.ignored; set({ ...total }); };
    let sent = 0; // lines
    const send = async (all: string[]) => {
      for (let i = 0; i < all.length && !closed.current; ) {
        const chunk: string[] = [];
        for (let size = 0; i < all.length && chunk.length < importLines && (size === 0 || size + all[i].length < importBytes); i++) {
          chunk.push(all[i]);
          size += all[i].length + 1;
        }
        add(await post("import", { lines: chunk.join("\n"), replace, before: sent }));
        sent += chunk.length;
      }
    };
    let reader: ReadableStreamDefaultReader<string> | undefined;
    try {
      reader = file!.stream().pipeThrough(new TextDecoderStream("utf-8", { fatal: true })).getReader();
      let rest = "";
      while (!closed.current) {
        const part = await reader.read();
        if (part.done) break;
        const cut = part.value.lastIndexOf("\n");
        if (cut >= 0) {
          await send((rest + part.value.slice(0, cut)).split("\n"));
          rest = "";
        }
        rest += part.value.slice(cut + 1);
        if (rest.length > longestLine) throw new Failure("large", `a line has more than ${number(longestLine)} characters`, "import one key in each line");
      }
      if (rest.trim()) await send([rest]);
    } catch (x: any) {
      if (x.imported) add(x.imported);
      fail(x instanceof TypeError ? new Failure("request", "the file is not UTF-8", "write keys and values that are no text as an object with base64") : x);
    }
    reader?.cancel().catch(() => {});
    set({ ...total, busy: false });
    done();
  };
  return (
    <Dialog title="Import lines of JSON" close={close}>
      <form onSubmit={run}>
        <p>Each line is a key, as an export or <code>vigilctl dump</code> writes it: <code>{'{"key":"a","value":"b"}'}</code>. Leases are not restored.</p>
        <label>File <input type="file" required onChange={(e) => choose(e.currentTarget.files?.[0] || null)} /></label>
        <label><input type="checkbox" checked={replace} onChange={(e) => overwrite(e.currentTarget.checked)} /> replace keys that exist</label>
        <ErrorBox error={error} />
        {result?.busy ? <Busy what="Writing keys…" /> : null}
        {result ? <p role="status">{count(result.written, "key")} written, {number(result.existing)} existed already, {count(result.ignored, "line")} without a key.</p> : null}
        <p class="row"><button class="primary" disabled={!file || result?.busy}>Import</button><button type="button" onClick={close}>{result?.busy ? "Stop" : "Close"}</button></p>
      </form>
    </Dialog>
  );
}
