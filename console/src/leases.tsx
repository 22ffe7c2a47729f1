import { useState } from "preact/hooks";
import { post } from "./api";
import { fromBase64 } from "./bytes";
import { Busy, Confirm, count, duration, ErrorBox, Key, link, num, number, Route, Table, Text, useLoad, When } from "./ui";

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
        <Table label="Locks" caption={count(locks.data.locks.length, "lock") + (locks.data.visited < locks.data.leases ? `, of the first ${locks.data.visited} of ${locks.data.leases} leases` : "") + (locks.data.cut ? "; there are more" : "")}
          columns={["Name", "Held by lease", num("Since revision"), "Since", { title: "Value", class: "excerpt" }, "Waiting"]}
          rows={locks.data.locks.map((l: any) => {
            const k = fromBase64(l.holder.key);
            return [l.name, <a href={link("keys", { prefix: fromBase64(l.name) })}><Key value={fromBase64(l.name)} /></a>, <a href={link("keys", { k })}>{l.holder.lease || "none"}</a>,
              <a href={link("history", { from: l.holder.create, to: l.holder.create })}>{l.holder.create}</a>, <When v={l.holder} />, l.holder.text ? <Text value={l.holder.text} /> : null,
              <>{l.waiting.length === 0 ? <span class="dim">none</span> : <ol class="inline">{l.waiting.map((w: any) => <li key={w.key}>{w.lease || <Key value={fromBase64(w.key)} />} since <When v={w} /> <Text value={w.text || ""} /></li>)}</ol>}{l.more ? `and ${number(l.more)} more` : ""}</>];
          })} />
      )}
      <h2>Leases</h2>
      <ErrorBox error={error} />
      {!data ? (error ? null : <Busy what="Reading leases…" />) : (
        <Table label="Leases" caption={count(data.total, "lease")} columns={[{ title: "Lease", row: true }, num("Time left"), num("Time to live"), "Keys", "Actions"]}
          rows={data.leases.map((l: any) => [l.id, l.id, l.ttl < 0 ? "ended" : duration(l.ttl), duration(l.granted),
            l.error ? <span class="dim">{l.error}</span> : l.key_count === 0 ? <span class="dim">none</span> : <ul class="inline">{l.keys.map((k: string) => <li key={k}><a href={link("keys", { k: fromBase64(k) })}><Key value={fromBase64(k)} /></a></li>)}{l.key_count > l.keys.length ? <li>and {number(l.key_count - l.keys.length)} more</li> : null}</ul>,
            <button onClick={() => ask(l)} aria-label={`revoke lease ${l.id}`}>Revoke…</button>])} />
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
