import { useEffect, useRef, useState } from "preact/hooks";
import { lines } from "./api";
import { visible } from "./bytes";
import { Age, Aging, ago, useAge } from "./live";
import { remember, self, Session } from "./session";
import { Busy, Confirm, count, docs, duration, ErrorBox, link, number, size, Text, time } from "./ui";

type Point = { at: number; rates?: Record<string, number>; times?: Record<string, number>; size: number; revision: number; lag: number };
// A member that does not answer has its last state, if it was seen, and when that was measured.
export type Member = {
  id: string; name: string; peer_urls: string[]; client_urls: string[]; learner?: boolean; self?: boolean; role: string; answers: boolean; at?: number; state?: State; lag: number; error?: string; points?: Point[];
};
type State = { version: string; term: number; revision: number; compact_revision: number; keys: number; size: number; in_use: number; quota: number; watchers: number; memory: number };
type Finding = { severity: string; check: string; member?: string; what: string; next: string; page: string };
type Diagnosis = { healthy: boolean; findings: Finding[]; passed: string[]; not_checked: { check?: string; member?: string; why: string }[] };
export type Live = { at: number; members: Member[]; alarms: { member: string; of: string; name: string }[]; pending?: string[]; diagnosis?: Diagnosis; since: number };

const maxAge = 15 * 60 * 1000;

// useLive follows the state of all members. A stream that is lost or silent is opened again.
export function useLive(): { live: Live | null; points: Map<string, Point[]>; error: unknown; age: Age } {
  const [live, set] = useState<Live | null>(null);
  const [error, fail] = useState<unknown>(null);
  const age = useAge();
  const points = useRef(new Map<string, Point[]>());
  useEffect(() => {
    const a = new AbortController();
    (async () => {
      while (!a.signal.aborted) {
        try {
          await lines("live", {}, a.signal, (l) => {
            if (l.first) points.current = new Map();
            for (const m of l.members as Member[]) {
              const list = (points.current.get(m.id) || []).concat((m.points || []).filter((p) => !(points.current.get(m.id) || []).some((q) => q.at === p.at)));
              points.current.set(m.id, list.filter((p) => p.at > l.at - maxAge));
            }
            remember(l.members);
            fail(null);
            set(l);
          }, age.renew);
        } catch (e) {
          if (a.signal.aborted) return;
          fail(e);
        }
        await new Promise((r) => setTimeout(r, 1500));
      }
    })();
    return () => a.abort();
  }, []);
  return { live, points: points.current, error, age };
}

export function Overview({ session }: { session: Session }) {
  const { live, points, error, age } = useLive();
  if (!live) return <><h1>Overview</h1><Aging age={age} error={error} empty><Busy what="Measuring the members, which takes a moment…" /></Aging></>;
  return (
    <>
      <h1>Overview</h1>
      <Aging age={age} error={error}>
        <Verdict live={live} age={age} />
        {live.diagnosis ? <Diagnosed {...live.diagnosis} /> : null}
        <MemberTable live={live} age={age} />
        {session.root && live.members.length > 1 ? <Compare live={live} silent={age.silent > 0} /> : null}
        <p class="dim">Charts begin when they are first opened, and keep 15 minutes. Measured since {live.since ? time(live.since) : "now"}.</p>
        <div class="charts">
          {charts.map((c) => <Chart key={c.title} {...c} members={live.members} points={points} />)}
        </div>
      </Aging>
    </>
  );
}

// lastSeen says when a member that does not answer was measured last.
export function lastSeen(m: Member, live: Live, age: Age): string {
  return m.at ? "last seen " + ago(live.at - m.at + age.silent) : "not seen since this view is open";
}

function Verdict({ live, age }: { live: Live; age: Age }) {
  const answering = live.members.filter((m) => m.answers).length;
  if (age.silent) return <p class="verdict"><span aria-hidden="true">?</span> Not known. At {time(age.heard)}, {answering} of {live.members.length} members answered <Text value={self()} most={60} /></p>;
  const answer = `${answering} of ${live.members.length} members answer`;
  if (!live.diagnosis) return <p class="verdict" role="status">{answer}, waiting for {live.pending!.map((n) => visible(n)).join(", ")}…</p>;
  const { healthy, findings } = live.diagnosis;
  const bad = findings.filter((f) => f.severity !== "note").length;
  return <p class={healthy ? "verdict good" : findings.some((f) => f.severity === "critical") ? "verdict bad" : "verdict warn"} role="status"><span aria-hidden="true">{healthy ? "✓" : "!"}</span> {healthy ? "Nothing is wrong" : count(bad, "problem")}: {answer}</p>;
}

function Findings({ list }: { list: Finding[] }) {
  if (list.length === 0) return null;
  return (
    <ul class="findings" aria-label="Findings">
      {list.map((f, i) => (
        <li key={i} class={f.severity}>
          <strong>{f.severity}</strong> {f.member ? <><Text value={f.member} most={60} />: </> : null}<Text value={f.what} most={1000} />
          <div class="dim">Next: <Text value={f.next} most={1000} /></div>
          {f.page ? <div class="dim">Page: <a href={docs(f.page)} target="_blank" rel="noreferrer">{f.page}</a></div> : null}
        </li>
      ))}
    </ul>
  );
}

type Gap = { check?: string; member?: string; why: string };
const Gaps = ({ list }: { list: Gap[] }) => <>{list.map((g, i) => <li key={i}>not checked: <Text value={[visible(g.member || ""), g.check || "everything"].filter(Boolean).join(", ")} />: <Text value={g.why} most={1000} /></li>)}</>;

function Diagnosed({ findings, passed, not_checked: gaps }: Diagnosis) {
  return (
    <>
      <Findings list={findings} />
      <details class="dim">
        <summary>{count(passed.length, "check")} found nothing; {gaps.length ? count(gaps.length, "thing") + " could not be looked at" : "everything was looked at"}</summary>
        <ul>
          <Gaps list={gaps} />
          {passed.length ? <li>found nothing: {passed.join(", ")}</li> : null}
        </ul>
      </details>
    </>
  );
}

type Compared = { id: string; name: string; hash?: number; compact?: number; error?: string };
type Comparison = { at: number; revision: number; members: Compared[]; result?: { findings: Finding[]; not_checked: Gap[] } };

// Compare compares the data of the members when the reader asks for it, and keeps the result on the page.
function Compare({ live, silent }: { live: Live; silent: boolean }) {
  const [asked, ask] = useState(false);
  const [data, set] = useState<Comparison | null>(null);
  const [error, fail] = useState<unknown>(null);
  const [busy, work] = useState(false);
  const stop = useRef(new AbortController());
  useEffect(() => () => stop.current.abort(), []);
  const run = async () => {
    let now: Comparison = { at: Date.now(), revision: 0, members: [] };
    fail(null);
    set(null);
    work(true);
    try {
      await lines("compare", {}, stop.current.signal, (l) => {
        if (l.members) now = { ...now, revision: l.revision, members: l.members };
        if (l.member) now = { ...now, members: now.members.map((m) => (m.id === l.member.id ? l.member : m)) };
        if (l.result) now = { ...now, result: l.result };
        set(now);
      });
    } catch (e) {
      if (stop.current.signal.aborted) return;
      fail(e);
    }
    work(false);
  };
  const bytes = live.members.reduce((n, m) => n + (m.state?.in_use || 0), 0);
  const same = data?.result && data.result.findings.length === 0 && data.result.not_checked.length === 0;
  return (
    <section aria-label="Comparison of the data">
      <p class="row">
        <button disabled={busy || silent} onClick={() => ask(true)}>{busy ? "comparing…" : "Compare the data of the members…"}</button>
        {busy ? <span role="status">{data ? `${data.members.filter((m) => m.hash !== undefined).length} of ${data.members.length} members have read their data` : "asking the members…"}</span> : null}
      </p>
      <ErrorBox error={error} />
      {data ? (
        <>
          {data.result ? <p class={same ? "good" : data.result.findings.length ? "bad" : "warn"} role="status">{same ? "The members hold the same data" : data.result.findings.length ? "The data differ" : "Not all members could be compared"} at revision {data.revision}, compared at {time(data.at)}.</p> : null}
          {data.result ? <><Findings list={data.result.findings} />{data.result.not_checked.length ? <ul class="dim"><Gaps list={data.result.not_checked} /></ul> : null}</> : null}
          <div class="scroll" tabIndex={0} role="region" aria-label="Hashes">
            <table>
              <caption>Hash of the history up to revision {data.revision}</caption>
              <thead><tr><th scope="col">Member</th><th scope="col">Hash</th><th scope="col" class="num">Compacted at</th></tr></thead>
              <tbody>{data.members.map((m) => <tr key={m.id}><th scope="row"><Text value={m.name} most={60} /></th>
                {m.hash !== undefined ? <><td class="mono">{m.hash.toString(16).padStart(8, "0")}</td><td class="num">{m.compact && m.compact > 0 ? m.compact : "never"}</td></> : <td colSpan={2}>{m.error ? <Text value={m.error} /> : data.result ? "not read" : "reading its data…"}</td>}</tr>)}</tbody>
            </table>
          </div>
        </>
      ) : null}
      {asked ? (
        <Confirm title="Compare the data of the members" action="Compare" close={() => ask(false)} run={async () => { run(); }}>
          <p>Each member reads its whole store once, {size(bytes)} in all, and computes a hash of it at one revision. Members keep serving; their processors and disks are busier meanwhile. Nothing is changed.</p>
        </Confirm>
      ) : null}
    </section>
  );
}

function MemberTable({ live, age }: { live: Live; age: Age }) {
  return (
    <div class="scroll cards" tabIndex={0} role="region" aria-label="Members">
      <table>
        <caption>Members</caption>
        <thead><tr><th scope="col">Member</th><th scope="col">Role</th><th scope="col">Version</th><th scope="col" class="num" title="entries of the raft log that it has still to apply">Lag</th><th scope="col" class="num">Revision</th><th scope="col" class="num">Keys</th>
          <th scope="col" class="num">Database</th><th scope="col">In use of the quota</th><th scope="col" class="num">Watchers</th><th scope="col" class="num">Memory</th></tr></thead>
        <tbody>
          {live.members.map((m, i) => {
            const s = m.state;
            const used = s && s.quota ? s.in_use / s.quota : 0;
            return (
              <tr key={m.id} class={m.answers ? undefined : "old"}>
                <th scope="row"><span class={"mark c" + (i % 6)} aria-hidden="true" /> <Text value={m.name || m.id} most={60} />{m.self ? " (this)" : ""}</th>
                <td data-label="Role"><span class={m.answers && m.role !== "no leader" ? "" : "bad"}>{m.role}</span>{m.answers || !m.error ? null : <div class="dim">{lastSeen(m, live, age)}</div>}</td>
                {s ? <>
                  <td data-label="Version">{s.version}</td><td data-label="Lag" class="num">{m.lag < 0 ? "–" : number(m.lag)}</td><td data-label="Revision" class="num">{number(s.revision)}</td><td data-label="Keys" class="num">{number(s.keys)}</td>
                  <td data-label="Database" class="num">{size(s.size)}</td>
                  <td data-label="In use"><span class="nowrap"><meter min={0} max={1} high={0.8} value={used} aria-label="used part of the quota" /> {size(s.in_use)}{s.quota ? " of " + size(s.quota) : ""}</span></td>
                  <td data-label="Watchers" class="num"><a href={link("watches")}>{number(s.watchers)}</a></td><td data-label="Memory" class="num">{size(s.memory)}</td>
                </> : <td colSpan={8}><Text value={m.error || ""} /></td>}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

type ChartKind = { title: string; of: (p: Point) => number | undefined; show: (n: number) => string };
const rate = (name: string) => (p: Point) => p.rates?.[name];
const took = (name: string) => (p: Point) => p.times?.[name];
const perSecond = (n: number) => number(n) + "/s";
const charts: ChartKind[] = [
  { title: "Puts", of: rate("puts"), show: perSecond },
  { title: "Reads", of: rate("reads"), show: perSecond },
  { title: "Transactions", of: rate("transactions"), show: perSecond },
  { title: "Watch events", of: rate("events"), show: perSecond },
  { title: "Raft log to disk (fsync), 99th percentile", of: took("fsync"), show: duration },
  { title: "Apply, 99th percentile", of: took("apply"), show: duration },
  { title: "Commit, 99th percentile", of: took("commit"), show: duration },
  { title: "Database size", of: (p) => p.size, show: size },
  { title: "Lag in entries", of: (p) => (p.lag < 0 ? undefined : p.lag), show: number },
];

const W = 300, H = 96, top = 16, bottom = 80;

function Chart({ title, of, show, members, points }: ChartKind & { members: Member[]; points: Map<string, Point[]> }) {
  const now = Date.now();
  let first = now, most = 0;
  for (const m of members) for (const p of points.get(m.id) || []) {
    first = Math.min(first, p.at);
    most = Math.max(most, of(p) ?? 0);
  }
  const span = Math.min(maxAge, Math.max(60000, now - first));
  const newest = members.map((m) => {
    const list = points.get(m.id) || [];
    const v = list.length ? of(list[list.length - 1]) : undefined;
    return visible(m.name || m.id, 24) + " " + (m.answers ? (v === undefined ? "not known" : show(v)) : m.role);
  });
  return (
    <figure class="chart">
      <figcaption>{title}</figcaption>
      <svg viewBox={`0 0 ${W} ${H}`} role="img" aria-label={`${title}: ${newest.join(", ")}; at most ${show(most)} in the last ${duration(span / 1000)}`}>
        <path class="grid" d={[top, (top + bottom) / 2, bottom].map((y) => `M0,${y}H${W}`).join("")} />
        {members.map((m, i) => {
          const list = (points.get(m.id) || []).filter((p) => of(p) !== undefined);
          // A line ends where nothing was measured; a point alone is a dot.
          const line = list.map((p, j) => `${j && p.at - list[j - 1].at < 10000 ? "L" : "M"}${(W - 2 - ((now - p.at) / span) * (W - 4)).toFixed(1)},${(bottom - (of(p)! / (most || 1)) * (bottom - top)).toFixed(1)}`).join(" ");
          return <path key={m.id} class={"line s" + (i % 6)} d={line && line + "h0"} />;
        })}
        <text x="0" y={top - 5}>{show(most)}</text>
        <text x="0" y={H - 4}>{duration(span / 1000)} ago</text><text x={W} y={H - 4} text-anchor="end">now</text>
      </svg>
      <div class="now">{members.map((m, i) => <span key={m.id}><span class={"mark c" + (i % 6)} aria-hidden="true" /> {newest[i]}</span>)}</div>
    </figure>
  );
}
