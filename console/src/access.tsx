import { useState } from "preact/hooks";
import { post } from "./api";
import { Bytes, compare, fromAddress, fromBase64, fromField, plain, toBase64, toField, visible } from "./bytes";
import { Busy, Confirm, count, Dialog, ErrorBox, go, Key, link, Range, Route, Table, Text, useLoad } from "./ui";
import { Session } from "./session";

type Permission = { key: string; end?: string; read: boolean; write: boolean };
type Access = { enabled: boolean; users: { name: string; roles: string[] }[]; roles: { name: string; permissions: Permission[] }[]; cut?: boolean };

// covers reports whether a permission includes a key.
function covers(p: Permission, key: Bytes): boolean {
  const from = fromBase64(p.key), end = fromBase64(p.end);
  if (end.length === 0) return compare(from, key) === 0;
  const open = end.length === 1 && end[0] === 0;
  return compare(from, key) <= 0 && (open || compare(key, end) < 0);
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
      <Table label="Users and their roles" caption={`${count(data.users.length, "user")}, ${count(data.roles.length, "role")}`} columns={[{ title: "User", row: true }, ...data.roles.map((r) => r.name), { title: "Actions", class: "nowrap" }]}
        rows={data.users.map((u) => [u.name, <Text value={u.name} />, ...data.roles.map((r) => {
          const has = u.roles.includes(r.name);
          return <button class="plain" aria-label={`${has ? "revoke" : "grant"} role ${visible(r.name)} ${has ? "from" : "to"} ${visible(u.name)}`}
            title={has ? "granted" : "not granted"} onClick={() => open({ confirm: `${has ? "Revoke" : "Grant"} a role`, what: has ? `${visible(u.name)} loses all permissions of the role ${visible(r.name)} at once; watches that need them are canceled.` : `${visible(u.name)} gets all permissions of the role ${visible(r.name)}.`,
              action: has ? "Revoke" : "Grant", run: change({ do: has ? "user-revoke" : "user-grant", user: u.name, role: r.name }) })}>{has ? "✓" : "·"}</button>;
        }), <><button onClick={() => open({ form: "password", user: u.name })}>Password…</button> <button onClick={() => open({ confirm: "Delete a user", what: `${visible(u.name)} can no longer log in, and its tokens are invalid at once.`, action: "Delete the user", run: change({ do: "user-delete", user: u.name }) })}>Delete…</button></>])} />
      <h2>Roles</h2>
      <p class="row"><button onClick={() => open({ form: "role" })}>Add a role</button></p>
      <Table label="Roles and their ranges" caption="What the users of a role may do" columns={[{ title: "Role", row: true }, "Range", "Permission", "Users", { title: "Actions", class: "nowrap" }]}
        rows={data.roles.flatMap((r) => {
          const users = <Text value={data.users.filter((u) => u.roles.includes(r.name)).map((u) => u.name).join(", ")} />, name = <Text value={r.name} />;
          if (r.name === "root") return [[r.name, name, "all keys, and all administration", "read, write", users, null] as any];
          const actions = <><button onClick={() => open({ form: "permission", role: r.name })}>Grant…</button> <button onClick={() => open({ confirm: "Delete a role", what: `All users of the role ${visible(r.name)} lose its permissions.`, action: "Delete the role", run: change({ do: "role-delete", role: r.name }) })}>Delete…</button></>;
          const rows = r.permissions.map((p, i) => [r.name + i, name, <Range from={fromBase64(p.key)} end={fromBase64(p.end)} />, right(p), users,
            <>{i === 0 ? actions : null} <button onClick={() => open({ confirm: "Revoke a permission", what: `Users of the role ${visible(r.name)} may no longer ${right(p)} ${plain(fromBase64(p.key).subarray(0, 100))}.`, action: "Revoke", run: change({ do: "role-revoke", role: r.name, key: p.key, end: p.end || "" }) })}>Revoke…</button></>]);
          return rows.length ? rows : [[r.name, name, <span class="dim">none</span>, "", users, actions]];
        })} />
      {dialog?.confirm ? <Confirm title={dialog.confirm} action={dialog.action} run={dialog.run} close={() => open(null)}><p><Text value={dialog.what} most={1000} /></p></Confirm> : null}
      {dialog?.form ? <Form kind={dialog.form} user={dialog.user} role={dialog.role} close={() => open(null)} done={reload} /> : null}
    </>
  );
}

function YourRanges({ session }: { session: Session }) {
  return <><h2>Your permissions</h2><ul>{(session.ranges || []).map((p, i) => <li key={i}><Range from={fromBase64(p.key)} end={fromBase64(p.end)} />: {right(p)}</li>)}</ul></>;
}

// WhoMay answers who may read or write a key.
function WhoMay({ data, who }: { data: Access; who: string | null }) {
  const key = fromAddress(who || ""), text = plain(key);
  const [typed, type] = useState(toField(key));
  const rows = text ? data.users.map((u) => {
    const roles = data.roles.filter((r) => u.roles.includes(r.name));
    const root = u.roles.includes("root");
    const by = roles.filter((r) => r.name === "root" || r.permissions.some((p) => covers(p, key)));
    return { name: u.name, read: root || by.some((r) => r.permissions.some((p) => p.read && covers(p, key))), write: root || by.some((r) => r.permissions.some((p) => p.write && covers(p, key))), by: by.map((r) => r.name) };
  }).filter((u) => u.read || u.write) : [];
  return (
    <section aria-label="Who may read a key">
      <h2>Who may read this key?</h2>
      <form class="row bar" onSubmit={(e) => { e.preventDefault(); go(link("access", { who: fromField(typed) })); }}>
        <label>Key <input id="search" value={typed} onInput={(e) => type(e.currentTarget.value)} /></label><button>Who may read it?</button>
      </form>
      {text ? (rows.length === 0 ? <p role="status">No user may read or write it.</p> : (
        <Table label="Users that may" caption={<>Users that may read or write the key <Key value={key} /></>} columns={[{ title: "User", row: true }, "Read", "Write", "By the role"]}
          rows={rows.map((u) => [u.name, <Text value={u.name} />, u.read ? "yes" : "no", u.write ? "yes" : "no", <Text value={u.by.join(", ")} />])} />
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
      role: { do: "role-add", role: f.name }, permission: { do: "role-grant", role, key: toBase64(fromField(f.key)), prefix: f.prefix, permission: f.permission },
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
