import { useState } from "preact/hooks";
import { post } from "./api";
import { fromBase64 } from "./bytes";
import { Busy, Confirm, count, duration, ErrorBox, Key, link, number, Route, Text, useLoad, When } from "./ui";

export function Leases({ route }: { route: Route }) {
  const after = route.params.get("after") || "";
  const { data, error, busy, reload } = useLoad<any>("leases", { after });
  const locks = useLoad<any>("locks", {});
  const [revoke, ask] = useState<any>(null);
  return (
    <>
      <h1>Leases and locks</h1>
      <p class="row"><button disabled={busy || locks.busy} onClick={() => { reload(); locks.reload(); }}>{data && (busy || locks.busy) ? "reading…" : "Read again"}</button></p>
      <h2>Locks and elections</h2>
      <ErrorBox error={locks.error} />
      {!locks.data ? (locks.error ? null : <Busy what="Looking for locks among the keys of leases…" />) : locks.data.locks.length === 0 ? <p class="dim">No key of a lease is that of a lock or an election.</p> : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Locks">
          <table>
            <caption>{count(locks.data.locks.length, "lock")}{locks.data.visited < locks.data.leases ? `, of the first ${locks.data.visited} of ${locks.data.leases} leases` : ""}{locks.data.cut ? "; there are more" : ""}</caption>
            <thead><tr><th scope="col">Name</th><th scope="col">Held by the lease</th><th scope="col" class="num">Since revision</th><th scope="col">Since</th><th scope="col">Value</th><th scope="col">Waiting, the next first</th></tr></thead>
            <tbody>{locks.data.locks.map((l: any) => (
              <tr key={l.name}>
                <td><a href={link("keys", { prefix: fromBase64(l.name) })}><Key value={fromBase64(l.name)} /></a></td>
                <td><a href={link("keys", { k: fromBase64(l.holder.key) })}>{l.holder.lease || "none"}</a></td><td class="num"><a href={link("history", { from: l.holder.create, to: l.holder.create })}>{l.holder.create}</a></td><td><When v={l.holder} /></td><td><Text value={l.holder.text || ""} /></td>
                <td>{l.waiting.length === 0 ? <span class="dim">none</span> : <ol>{l.waiting.map((w: any) => <li key={w.key}>{w.lease || <Key value={fromBase64(w.key)} />} since <When v={w} /> <Text value={w.text || ""} /></li>)}</ol>}{l.more ? `and ${number(l.more)} more` : ""}</td>
              </tr>
            ))}</tbody>
          </table>
        </div>
      )}
      <h2>Leases</h2>
      <ErrorBox error={error} />
      {!data ? (error ? null : <Busy what="Reading leases…" />) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Leases">
          <table>
            <caption>{count(data.total, "lease")}</caption>
            <thead><tr><th scope="col">Lease</th><th scope="col" class="num">Remaining</th><th scope="col" class="num">Of</th><th scope="col">Keys</th><th scope="col">Action</th></tr></thead>
            <tbody>{data.leases.map((l: any) => (
              <tr key={l.id}>
                <th scope="row">{l.id}</th><td class="num">{l.ttl < 0 ? "ended" : duration(l.ttl)}</td><td class="num">{duration(l.granted)}</td>
                <td>{l.error ? <span class="dim">{l.error}</span> : l.key_count === 0 ? <span class="dim">none</span> : <ul class="inline">{l.keys.map((k: string) => <li key={k}><a href={link("keys", { k: fromBase64(k) })}><Key value={fromBase64(k)} /></a></li>)}{l.key_count > l.keys.length ? <li>and {number(l.key_count - l.keys.length)} more</li> : null}</ul>}</td>
                <td><button onClick={() => ask(l)} aria-label={`revoke lease ${l.id}`}>Revoke…</button></td>
              </tr>
            ))}</tbody>
          </table>
        </div>
      )}
      {after || data?.after ? <p class="row">{after ? <a href={link("leases")}>first leases</a> : null} {data?.after ? <a href={link("leases", { after: data.after })}>next leases</a> : null}</p> : null}
      {revoke ? (
        <Confirm title={`Revoke lease ${revoke.id}`} action={`Revoke, and delete ${count(revoke.key_count, "key")}`} close={() => ask(null)} run={async () => { await post("revoke", { id: revoke.id }); reload(); locks.reload(); }}>
          <p>The lease ends at once, and its {count(revoke.key_count, "key")} are deleted. Its client loses what it holds by them: locks, elections, registrations.</p>
        </Confirm>
      ) : null}
    </>
  );
}
