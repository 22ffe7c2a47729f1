import { useState } from "preact/hooks";
import { post } from "./api";
import { asText, Bytes, fromAddress, fromBase64, fromText, plain, toBase64, visible } from "./bytes";
import { Busy, Confirm, Dialog, ErrorBox, go, Key, link, number, Route, Text, useLoad } from "./ui";
import { Session } from "./session";

type Permission = { key: string; end?: string; read: boolean; write: boolean };
type Access = { enabled: boolean; users: { name: string; roles: string[] }[]; roles: { name: string; permissions: Permission[] }[]; cut?: boolean };

const compare = (a: Bytes, b: Bytes) => {
  for (let i = 0; i < Math.min(a.length, b.length); i++) if (a[i] !== b[i]) return a[i] - b[i];
  return a.length - b.length;
};

// covers reports whether a permission includes a key.
function covers(p: Permission, key: Bytes): boolean {
  const from = fromBase64(p.key), end = fromBase64(p.end);
  if (end.length === 0) return compare(from, key) === 0;
  const open = end.length === 1 && end[0] === 0;
  return compare(from, key) <= 0 && (open || compare(key, end) < 0);
}

export function RangeText({ p }: { p: Permission }) {
  const from = fromBase64(p.key), end = fromBase64(p.end);
  if (end.length === 0) return <Key value={from} />;
  if (end.length === 1 && end[0] === 0) return from.length === 0 || (from.length === 1 && from[0] === 0) ? <span>all keys</span> : <span>from <Key value={from} /> on</span>;
  const next = from.slice();
  if (next.length && ++next[next.length - 1] && compare(next, end) === 0) return <span><Key value={from} />*</span>;
  return <span><Key value={from} /> – <Key value={end} /></span>;
}

const right = (p: Permission) => (p.read && p.write ? "read, write" : p.read ? "read" : p.write ? "write" : "nothing (a permission of an unknown type)");

export function AccessView({ session, route }: { session: Session; route: Route }) {
  const { data, error, reload } = useLoad<Access>("access", {});
  const [dialog, open] = useState<any>(null);
  if (error) return <><h1>Users and roles</h1><ErrorBox error={error} /><YourRanges session={session} /></>;
  if (!data) return <><h1>Users and roles</h1><Busy what="Reading users and roles…" /></>;
  const change = (body: any) => async () => { await post("access", body); reload(); };
  return (
    <>
      <h1>Users and roles</h1>
      {data.enabled ? null : <p class="warn">Authentication is disabled: everybody who reaches this member may do everything. Enable it with <code>vigilctl auth enable</code>, after a user root exists.</p>}
      {data.cut ? <p class="dim">Only the first users and roles are listed.</p> : null}
      <WhoMay data={data} who={route.params.get("who")} />
      <h2>Users</h2>
      <p class="row"><button onClick={() => open({ form: "user" })}>Add a user</button></p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Users and their roles">
        <table>
          <caption>{number(data.users.length)} users × {number(data.roles.length)} roles</caption>
          <thead><tr><th scope="col">User</th>{data.roles.map((r) => <th scope="col" key={r.name}><Text value={r.name} /></th>)}<th scope="col">Actions</th></tr></thead>
          <tbody>{data.users.map((u) => (
            <tr key={u.name}>
              <th scope="row"><Text value={u.name} /></th>
              {data.roles.map((r) => {
                const has = u.roles.includes(r.name);
                return <td key={r.name}><button class="plain" aria-label={`${has ? "revoke" : "grant"} role ${visible(r.name)} ${has ? "from" : "to"} ${visible(u.name)}`}
                  title={has ? "granted" : "not granted"} onClick={() => open({ confirm: `${has ? "Revoke" : "Grant"} a role`, what: has ? `${visible(u.name)} loses all permissions of the role ${visible(r.name)} at once; watches that need them are canceled.` : `${visible(u.name)} gets all permissions of the role ${visible(r.name)}.`,
                    action: has ? "Revoke" : "Grant", run: change({ do: has ? "user-revoke" : "user-grant", user: u.name, role: r.name }) })}>{has ? "✓" : "·"}</button></td>;
              })}
              <td class="nowrap"><button onClick={() => open({ form: "password", user: u.name })}>Password…</button> <button onClick={() => open({ confirm: "Delete a user", what: `${visible(u.name)} can no longer log in, and its tokens are invalid at once.`, action: "Delete the user", run: change({ do: "user-delete", user: u.name }) })}>Delete…</button></td>
            </tr>
          ))}</tbody>
        </table>
      </div>
      <h2>Roles</h2>
      <p class="row"><button onClick={() => open({ form: "role" })}>Add a role</button></p>
      <div class="scroll" tabIndex={0} role="region" aria-label="Roles and their ranges">
        <table>
          <caption>Roles × ranges of keys</caption>
          <thead><tr><th scope="col">Role</th><th scope="col">Range</th><th scope="col">Permission</th><th scope="col">Users</th><th scope="col">Actions</th></tr></thead>
          <tbody>{data.roles.flatMap((r) => {
            const users = data.users.filter((u) => u.roles.includes(r.name)).map((u) => u.name).join(", ");
            const actions = <><button onClick={() => open({ form: "permission", role: r.name })}>Grant…</button> <button onClick={() => open({ confirm: "Delete a role", what: `All users of the role ${visible(r.name)} lose its permissions.`, action: "Delete the role", run: change({ do: "role-delete", role: r.name }) })}>Delete…</button></>;
            const rows = r.permissions.map((p, i) => (
              <tr key={r.name + i}>
                <th scope="row"><Text value={r.name} /></th><td><RangeText p={p} /></td><td>{right(p)}</td><td><Text value={users} /></td>
                <td class="nowrap">{i === 0 ? actions : null} <button onClick={() => open({ confirm: "Revoke a permission", what: `Users of the role ${visible(r.name)} may no longer ${right(p)} ${plain(fromBase64(p.key).subarray(0, 100))}.`, action: "Revoke", run: change({ do: "role-revoke", role: r.name, key: p.key, end: p.end || "" }) })}>Revoke…</button></td>
              </tr>
            ));
            return rows.length ? rows : [<tr key={r.name}><th scope="row"><Text value={r.name} /></th><td>{r.name === "root" ? "all keys, and all administration" : <span class="dim">none</span>}</td><td>{r.name === "root" ? "read, write" : ""}</td><td><Text value={users} /></td><td>{r.name === "root" ? null : actions}</td></tr>];
          })}</tbody>
        </table>
      </div>
      {dialog?.confirm ? <Confirm title={dialog.confirm} action={dialog.action} run={dialog.run} close={() => open(null)}><p><Text value={dialog.what} most={1000} /></p></Confirm> : null}
      {dialog?.form ? <Form kind={dialog.form} user={dialog.user} role={dialog.role} close={() => open(null)} done={reload} /> : null}
    </>
  );
}

function YourRanges({ session }: { session: Session }) {
  return <><h2>Your permissions</h2><ul>{(session.ranges || []).map((p, i) => <li key={i}><RangeText p={p} />: {right(p)}</li>)}</ul></>;
}

// WhoMay answers who may read or write a key.
function WhoMay({ data, who }: { data: Access; who: string | null }) {
  const key = fromAddress(who || ""), text = plain(key);
  const [typed, type] = useState(asText(key) ?? "");
  const rows = text ? data.users.map((u) => {
    const roles = data.roles.filter((r) => u.roles.includes(r.name));
    const root = u.roles.includes("root");
    const by = roles.filter((r) => r.name === "root" || r.permissions.some((p) => covers(p, key)));
    return { name: u.name, read: root || by.some((r) => r.permissions.some((p) => p.read && covers(p, key))), write: root || by.some((r) => r.permissions.some((p) => p.write && covers(p, key))), by: by.map((r) => r.name) };
  }).filter((u) => u.read || u.write) : [];
  return (
    <section aria-label="Who may read a key">
      <h2>Who may read this key?</h2>
      <form class="row bar" onSubmit={(e) => { e.preventDefault(); go(link("access", { who: fromText(typed) })); }}>
        <label>Key <input id="search" value={typed} onInput={(e) => type(e.currentTarget.value)} /></label><button>Who may read it?</button>
      </form>
      {text ? (rows.length === 0 ? <p role="status">No user may read or write it.</p> : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Users that may"><table>
          <caption>Users that may read or write the key <Key value={key} /></caption>
          <thead><tr><th scope="col">User</th><th scope="col">Read</th><th scope="col">Write</th><th scope="col">By the role</th></tr></thead>
          <tbody>{rows.map((u) => <tr key={u.name}><th scope="row"><Text value={u.name} /></th><td>{u.read ? "yes" : "no"}</td><td>{u.write ? "yes" : "no"}</td><td><Text value={u.by.join(", ")} /></td></tr>)}</tbody>
        </table></div>
      )) : null}
      {data.enabled || !text ? null : <p class="dim">Authentication is disabled: everybody may, whatever the table says.</p>}
    </section>
  );
}

function Form({ kind, user, role, close, done }: { kind: string; user?: string; role?: string; close: () => void; done: () => void }) {
  const [f, set] = useState({ name: "", password: "", key: "", prefix: true, permission: "read" });
  const [error, fail] = useState<unknown>(null);
  const [busy, work] = useState(false);
  const title = { user: "Add a user", password: `Password of ${visible(user || "")}`, role: "Add a role", permission: `Grant a permission to ${visible(role || "")}` }[kind]!;
  const submit = async (e: Event) => {
    e.preventDefault();
    const body = {
      user: { do: "user-add", user: f.name, password: f.password, noPassword: f.password === "" }, password: { do: "user-password", user, password: f.password },
      role: { do: "role-add", role: f.name }, permission: { do: "role-grant", role, key: toBase64(fromText(f.key)), prefix: f.prefix, permission: f.permission },
    }[kind];
    work(true);
    fail(null);
    try {
      await post("access", body);
      done();
      close();
    } catch (x) {
      fail(x);
      work(false);
    }
  };
  return (
    <Dialog title={title} close={close}>
      <form onSubmit={submit}>
        {kind === "user" || kind === "role" ? <label>Name <input required value={f.name} onInput={(e) => set({ ...f, name: e.currentTarget.value })} /></label> : null}
        {kind === "user" || kind === "password" ? <label>Password <input type="password" autocomplete="new-password" required={kind === "password"} value={f.password} onInput={(e) => set({ ...f, password: e.currentTarget.value })} /></label> : null}
        {kind === "user" ? <p class="dim">Without a password the user can identify itself by a client certificate only.</p> : null}
        {kind === "permission" ? (
          <>
            <label>Key or prefix <input required value={f.key} onInput={(e) => set({ ...f, key: e.currentTarget.value })} /></label>
            <label><input type="checkbox" checked={f.prefix} onChange={(e) => set({ ...f, prefix: e.currentTarget.checked })} /> all keys with this prefix</label>
            <label>Permission <select value={f.permission} onChange={(e) => set({ ...f, permission: e.currentTarget.value })}><option>read</option><option>write</option><option>readwrite</option></select></label>
          </>
        ) : null}
        <ErrorBox error={error} />
        <p class="row"><button class="primary" disabled={busy}>{busy ? "saving…" : "Save"}</button><button type="button" onClick={close}>Cancel</button></p>
      </form>
    </Dialog>
  );
}
