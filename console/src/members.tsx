import { useEffect, useState } from "preact/hooks";
import { post, save } from "./api";
import { typeable, visible } from "./bytes";
import { Busy, Confirm, count, Dialog, ErrorBox, number, revisionOf, size, Text } from "./ui";
import { Aging } from "./live";
import { lastSeen, Member, useLive } from "./overview";
import { consoleAt, consoleOf, isWeb } from "./session";

// Members has the actions on members. Each says before what it will do.
export function Members() {
  const { live, error, age } = useLive();
  const [dialog, open] = useState<any>(null);
  const [saving, note] = useState("");
  const [failed, fail] = useState<unknown>(null);
  if (!live) return <><h1>Members</h1><Aging age={age} error={error} empty><Busy what="Measuring the members, which takes a moment…" /></Aging></>;
  const self = live.members.find((m) => m.self);
  const voters = live.members.filter((m) => !m.learner), alive = voters.filter((m) => m.answers), silent = age.silent > 0;
  const name = (m: Member) => visible(m.name || m.id);
  // A member with a name that cannot be typed is confirmed by its ID.
  const word = (m: Member) => (typeable(m.name) ? m.name : m.id);
  const leads = self?.role === "leader";
  const leader = live.members.find((m) => m.role === "leader" && m.answers);
  const snapshot = async () => {
    note("The snapshot is being read…");
    fail(null);
    try {
      await save("snapshot", {}, "snapshot.db");
    } catch (e) {
      fail(e);
    }
    note("");
  };
  const removal = (m: Member) => {
    const after = alive.filter((x) => x !== m).length, need = Math.floor((voters.length - (m.learner ? 0 : 1)) / 2) + 1;
    return <>
      <p>{name(m)} leaves the cluster for good, stops, and cannot return with its data directory.</p>
      {m.learner ? <p>It does not vote: the quorum stays the same.</p> : <p>{voters.length - 1} voting members remain, of which {after} answer; {need} must, for writes. {after < need ? <strong>The cluster would lose its quorum.</strong> : null}</p>}
    </>;
  };
  return (
    <>
      <h1>Members</h1>
      <Aging age={age} error={error || failed}>
      <p class="row">
        <button class="primary" disabled={silent} onClick={() => open({ add: true })}>Add a member…</button>
        <button onClick={() => open({ snapshot: true, title: "Download a snapshot", action: "Download", body: <p>{self ? name(self) : "This member"} sends all keys, leases, users and roles as of now, about {size(self?.state?.in_use || 0)}, as a file for <code>vigilctl snapshot restore</code>. It contains every value and the hashes of passwords: keep it as safe as the store. The member keeps serving.</p>, run: async () => { snapshot(); } })} disabled={silent || !!saving}>Download a snapshot…</button>
        <button disabled={silent} onClick={() => open({ compact: self?.state?.revision })}>Compact…</button>
        <button disabled={silent} onClick={() => open({ title: "Defragment this member", action: "Defragment", body: <p>{self ? name(self) : "This member"} reclaims space now instead of in the background. It keeps serving; its disk is busier meanwhile.</p>, run: () => post("member", { do: "defragment" }) })}>Defragment this member…</button>
        <span role="status">{saving}</span>
      </p>
      <div class="scroll cards" tabIndex={0} role="region" aria-label="Members">
        <table>
          <caption>Members; {silent ? "how many answer is not known" : `${alive.length} of ${voters.length} voting members answer`}</caption>
          <thead><tr><th scope="col">Member</th><th scope="col">ID</th><th scope="col">Role</th><th scope="col" class="num">Lag</th><th scope="col" class="num">Database</th><th scope="col">Addresses</th><th scope="col">Actions</th></tr></thead>
          <tbody>{live.members.map((m) => (
            <tr key={m.id} class={m.answers ? undefined : "old"}>
              <th scope="row"><Text value={m.name || "not started yet"} most={60} />{m.self ? " (this)" : ""}</th><td data-label="ID" class="mono">{m.id}</td>
              <td data-label="Role"><span class={m.answers ? "" : "bad"}>{m.role}</span>{m.answers || !m.error ? null : <div class="dim">{lastSeen(m, live, age)}</div>}</td>
              <td data-label="Lag" class="num">{m.lag < 0 ? "–" : number(m.lag)}</td><td data-label="Database" class="num">{m.state ? size(m.state.size) : "–"}</td>
              <td data-label="Addresses">{(m.client_urls || []).map((u) => <div key={u}>{isWeb(u) && !m.self ? <a href={consoleAt(u)} rel="noreferrer"><Text value={u} /></a> : <Text value={u} />}</div>)}</td>
              <td data-label="Actions"><div class="row">
                {m.learner && m.answers ? <button disabled={silent} onClick={() => open({ title: `Promote ${name(m)}`, action: "Promote", body: <p>It becomes a voting member, when it has nearly caught up; the quorum grows from {Math.floor(voters.length / 2) + 1} to {Math.floor((voters.length + 1) / 2) + 1}.</p>, run: () => post("member", { do: "promote", id: m.id }) })} aria-label={`promote ${name(m)}`}>Promote…</button> : null}
                {!m.learner && m.answers && m.role !== "leader" && leader ? <button disabled={silent} onClick={() => open({ title: `Make ${name(m)} the leader`, action: "Move the leader", off: !leads, body: leads ? <p>{name(self!)} hands over to {name(m)}. Writes wait for a moment, usually less than a heartbeat.</p> : <p>Only the leader can hand over: open the console of {name(leader)}{consoleOf(leader) ? <>, <a href={consoleOf(leader)!} rel="noreferrer">{visible(consoleOf(leader)!)}</a></> : null}.</p>, run: () => post("member", { do: "move-leader", id: m.id }) })} aria-label={`lead with ${name(m)}`}>Lead…</button> : null}
                <button disabled={silent} onClick={() => open({ title: `Remove ${name(m)}`, action: "Remove the member", word: word(m), body: removal(m), run: () => post("member", { do: "remove", id: m.id }) })} aria-label={`remove ${name(m)}`}>Remove…</button>
              </div></td>
            </tr>
          ))}</tbody>
        </table>
      </div>
      {live.alarms.length ? <><h2>Alarms</h2><ul>{live.alarms.map((a) => <li key={a.member + a.name}>{a.name} of <Text value={a.of} /> <button disabled={silent} onClick={() => open({ title: `Disarm ${a.name}`, action: "Disarm", body: <p>The alarm ends, whatever raised it. It is raised again if its cause is still there.</p>, run: () => post("member", { do: "disarm", id: a.member, alarm: a.name }) })}>Disarm…</button></li>)}</ul></> : null}
      </Aging>
      {dialog?.run ? <Confirm title={dialog.title} action={dialog.action} word={dialog.word} off={dialog.off} run={dialog.run} close={() => open(null)}>{dialog.body}</Confirm> : null}
      {dialog?.add ? <Add close={() => open(null)} voters={voters.length} /> : null}
      {dialog && "compact" in dialog ? <Compact newest={dialog.compact || 0} oldest={Math.max(0, self?.state?.compact_revision || 0)} close={() => open(null)} /> : null}
    </>
  );
}


function Add({ close, voters }: { close: () => void; voters: number }) {
  const [urls, type] = useState("");
  const [learner, vote] = useState(true);
  const [result, set] = useState<{ id: string; cluster: string[] | null } | null>(null);
  const [busy, work] = useState(false);
  const [error, fail] = useState<unknown>(null);
  const list = urls.split(/[\s,]+/).filter(Boolean);
  const submit = async (e: Event) => {
    e.preventDefault();
    fail(null);
    work(true);
    try {
      set(await post("member", { do: "add", urls: list, learner }));
    } catch (x) {
      fail(x);
    }
    work(false);
  };
  const start = result ? `vigil --name NAME --initial-cluster-state existing --initial-advertise-peer-urls ${list.join(",")} --listen-peer-urls ${list.join(",")} --initial-cluster ${[...(result.cluster || []), ...list.map((u) => "NAME=" + u)].join(",")}` : "";
  return (
    <Dialog title="Add a member" close={close}>
      <form onSubmit={submit}>
        <label>Peer URLs <input required placeholder="http://10.0.0.4:2380" value={urls} onInput={(e) => type(e.currentTarget.value)} /></label>
        <label><input type="checkbox" checked={learner} onChange={(e) => vote(e.currentTarget.checked)} /> as a learner, which does not vote until it is promoted</label>
        <p>{learner ? "The quorum stays the same." : `The quorum grows to ${Math.floor((voters + 1) / 2) + 1} of ${voters + 1} at once, although the member has no data yet.`} The cluster knows it from then on; it is still to be started.</p>
        <ErrorBox error={error} />
        {result ? <><p role="status">Added with the ID {result.id}. Start it on its machine, with a name of its own and an empty data directory:</p><pre tabIndex={0} aria-label="command"><Text value={start} lines /></pre></> : null}
        <p class="row"><button class="primary" disabled={busy || !!result}>{busy ? "adding…" : "Add"}</button><button type="button" onClick={close}>Close</button></p>
      </form>
    </Dialog>
  );
}

// Compact ends the history before a revision or a time. The reader chooses it: nothing is proposed, and the end of all history is called that.
function Compact({ newest, oldest, close }: { newest: number; oldest: number; close: () => void }) {
  const [text, type] = useState("");
  const [found, find] = useState<{ text: string; rev: number; error?: any }>({ text: "", rev: 0 });
  useEffect(() => {
    const a = new AbortController();
    if (text) revisionOf(text, a.signal).then((r) => find({ text, rev: Number(r.revision) }), (error) => a.signal.aborted || find({ text, rev: 0, error }));
    return () => a.abort();
  }, [text]);
  // What was found for an earlier text is not what the reader sees.
  const { rev, error } = found.text === text ? found : { rev: 0, error: null };
  return (
    <Confirm title="Compact" action={rev ? `Compact to ${rev}` : "Compact"} off={rev < 1} close={close} run={() => post("member", { do: "compact", revision: rev })}>
      <label>Keep the history since <input placeholder={`1h, 10:42, or a revision between ${number(oldest)} and ${number(newest)}`} value={text} onInput={(e) => type(e.currentTarget.value)} /></label>
      {error?.code === "typing" ? <p class="dim">{visible(error.next)}</p> : <ErrorBox error={error} />}
      {rev < 1 ? null : rev >= newest ? <p><strong>This ends all history:</strong> no value that was replaced or deleted until now can be read afterwards.</p> : <p>{count(Math.max(0, rev - oldest), "revision")} of history end, {number(newest - rev)} stay.</p>}
      <p>Values that were replaced or deleted before that can no longer be read. The keys of today stay. Watchers that are further behind are canceled. The space is reclaimed in the background.</p>
    </Confirm>
  );
}
