import { useEffect, useRef, useState } from "preact/hooks";
import { lines } from "./api";
import { Busy, count, duration, ErrorBox, link, number, size, Text, time } from "./ui";

type Point = { at: number; rates?: Record<string, number>; times?: Record<string, number>; size: number; revision: number; lag: number };
export type Member = {
  id: string; name: string; peer_urls: string[]; client_urls: string[]; learner?: boolean; self?: boolean; role: string; state?: State; lag: number; error?: string; points?: Point[];
};
type State = { version: string; term: number; revision: number; compact_revision: number; keys: number; size: number; in_use: number; quota: number; watchers: number; memory: number };
type Finding = { severity: string; check: string; member?: string; what: string; next: string; page: string };
type Diagnosis = { healthy: boolean; findings: Finding[]; passed: string[]; not_checked: { check?: string; member?: string; why: string }[] };
export type Live = { at: number; members: Member[]; alarms: { member: string; name: string }[]; diagnosis: Diagnosis; since: number };

const maxAge = 15 * 60 * 1000;

// useLive follows the state of all members. A lost stream is opened again.
export function useLive(): { live: Live | null; points: Map<string, Point[]>; error: unknown } {
  const [live, set] = useState<Live | null>(null);
  const [error, fail] = useState<unknown>(null);
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
            fail(null);
            set(l);
          });
        } catch (e) {
          if (a.signal.aborted) return;
          fail(e);
        }
        await new Promise((r) => setTimeout(r, 1500));
      }
    })();
    return () => a.abort();
  }, []);
  return { live, points: points.current, error };
}

export function Overview() {
  const { live, points, error } = useLive();
  if (!live) return <><h1>Overview</h1><ErrorBox error={error} /><Busy what="Measuring the members, which takes a moment…" /></>;
  const { healthy, findings, passed, not_checked: gaps } = live.diagnosis;
  const bad = findings.filter((f) => f.severity !== "note").length;
  return (
    <>
      <h1>Overview</h1>
      <ErrorBox error={error} />
      <p class={healthy ? "verdict good" : "verdict bad"} role="status">
        {healthy ? "Nothing is wrong" : `${bad} ${bad === 1 ? "problem" : "problems"} found`}: {live.members.filter((m) => m.state).length} of {live.members.length} members answer
      </p>
      {findings.length > 0 ? (
        <ul class="findings" aria-label="Findings">
          {findings.map((f, i) => (
            <li key={i} class={f.severity}>
              <strong>{f.severity}</strong> {f.member ? <><Text value={f.member} />: </> : null}<Text value={f.what} />.
              <div class="dim">Next: <Text value={f.next} /></div>
              <div class="dim">Page: <code>{f.page}</code></div>
            </li>
          ))}
        </ul>
      ) : null}
      <details class="dim">
        <summary>{count(passed.length, "check")} found nothing; {gaps.length ? count(gaps.length, "thing") + " could not be looked at" : "everything was looked at"}</summary>
        <ul>
          {gaps.map((g, i) => <li key={i}>not checked: <Text value={[g.member, g.check || "everything"].filter(Boolean).join(", ")} />: <Text value={g.why} /></li>)}
          {passed.length ? <li>found nothing: {passed.join(", ")}</li> : null}
        </ul>
      </details>
      <MemberTable live={live} />
      <p class="dim">Charts begin when they are first opened, and keep 15 minutes. Measured since {live.since ? time(live.since) : "now"}.</p>
      <div class="charts">
        {charts.map((c) => <Chart key={c.title} {...c} members={live.members} points={points} />)}
      </div>
    </>
  );
}

function MemberTable({ live }: { live: Live }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Members">
      <table>
        <caption>Members</caption>
        <thead><tr><th scope="col">Member</th><th scope="col">Role</th><th scope="col">Version</th><th scope="col" class="num">Lag</th><th scope="col" class="num">Revision</th><th scope="col" class="num">Keys</th>
          <th scope="col" class="num">Database</th><th scope="col">In use of the quota</th><th scope="col" class="num">Watchers</th><th scope="col" class="num">Memory</th></tr></thead>
        <tbody>
          {live.members.map((m, i) => {
            const s = m.state;
            const used = s && s.quota ? s.in_use / s.quota : 0;
            return (
              <tr key={m.id}>
                <th scope="row"><span class={"mark c" + (i % 6)} aria-hidden="true" /> <Text value={m.name || m.id} />{m.self ? " (this)" : ""}</th>
                <td class={m.role === "down" || m.role === "no leader" ? "bad" : ""}>{m.role}</td>
                {s ? <>
                  <td>{s.version}</td><td class="num">{m.lag < 0 ? "–" : number(m.lag)}</td><td class="num">{number(s.revision)}</td><td class="num">{number(s.keys)}</td>
                  <td class="num">{size(s.size)}</td>
                  <td><meter min={0} max={1} high={0.8} value={used} aria-label="used part of the quota" /> {size(s.in_use)}{s.quota ? " of " + size(s.quota) : ""}</td>
                  <td class="num"><a href={link("watches")}>{number(s.watchers)}</a></td><td class="num">{size(s.memory)}</td>
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
  { title: "fsync of the raft log, p99", of: took("fsync"), show: duration },
  { title: "Apply, p99", of: took("apply"), show: duration },
  { title: "Commit, p99", of: took("commit"), show: duration },
  { title: "Database size", of: (p) => p.size, show: size },
  { title: "Lag in entries", of: (p) => (p.lag < 0 ? undefined : p.lag), show: number },
];

const W = 300, H = 80;

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
    return (m.name || m.id) + " " + (v === undefined ? "not known" : show(v));
  });
  return (
    <figure class="chart">
      <figcaption>{title}</figcaption>
      <svg viewBox={`0 0 ${W} ${H}`} role="img" aria-label={`${title}: ${newest.join(", ")}; at most ${show(most)} in the last ${duration(span / 1000)}`}>
        {members.map((m, i) => {
          const list = (points.get(m.id) || []).filter((p) => of(p) !== undefined);
          // A line ends where nothing was measured.
          const line = list.map((p, j) => `${j && p.at - list[j - 1].at < 10000 ? "L" : "M"}${(W - ((now - p.at) / span) * W).toFixed(1)},${(H - 4 - ((of(p)! / (most || 1)) * (H - 16))).toFixed(1)}`).join(" ");
          return <path key={m.id} class={"line s" + (i % 6)} d={line} />;
        })}
        <text x="2" y="10">{show(most)}</text>
      </svg>
      <div class="now">{members.map((m, i) => <span key={m.id}><span class={"mark c" + (i % 6)} aria-hidden="true" /> <Text value={newest[i]} /></span>)}</div>
    </figure>
  );
}
