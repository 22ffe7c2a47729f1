import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { get, post } from "./api";
import { AccessView } from "./access";
import { History } from "./history";
import { Keys } from "./keys";
import { Leases } from "./leases";
import { LocalNote } from "./live";
import { Members } from "./members";
import { Overview } from "./overview";
import { connect, fromField, fromText, quoted, visible } from "./bytes";
import { Session } from "./session";
import { Busy, Dialog, ErrorBox, go, link, parseTime, point, readRoute, Text } from "./ui";
import { Watches } from "./watches";

const views = [["overview", "Overview"], ["keys", "Keys"], ["history", "History"], ["watches", "Watches"], ["leases", "Leases and locks"], ["access", "Users and roles"], ["members", "Members"]];

function App() {
  const [session, set] = useState<Session | null>(null);
  const [error, fail] = useState<unknown>(null);
  const [route, follow] = useState(readRoute());
  const [palette, show] = useState(false);
  const [expired, expire] = useState(false);
  const main = useRef<HTMLElement>(null);
  const load = () => get("session").then((s: Session) => {
    const at = s.endpoints || location.origin;
    connect([`--endpoints=${quoted(fromText(at))}`, at.startsWith("https:") && "--cacert=ca.pem", !!s.certificate && "--cert=client.pem --key=client-key.pem", !!s.user && !s.certificate && `--user=${quoted(fromText(s.user))}`]);
    set({ ...s, ranges: s.ranges || [] });
    fail(null);
    expire(!!s.expired);
  }, fail);
  useEffect(() => {
    load();
    const hash = () => follow(readRoute());
    const login = () => { expire(true); load(); };
    const key = (e: KeyboardEvent) => {
      const typing = /^(INPUT|TEXTAREA|SELECT)$/.test((e.target as HTMLElement).tagName);
      if ((e.ctrlKey || e.metaKey) && e.key === "k") {
        e.preventDefault();
        show(true);
      } else if (e.key === "/" && !typing && !document.querySelector("dialog[open]")) {
        e.preventDefault();
        const field = document.getElementById("search");
        if (field) field.focus();
        else go(link("keys"));
      } else if (e.key === "?" && !typing && !document.querySelector("dialog[open]")) {
        show(true);
      }
    };
    addEventListener("hashchange", hash);
    addEventListener("vigil-login", login);
    addEventListener("keydown", key);
    return () => { removeEventListener("hashchange", hash); removeEventListener("vigil-login", login); removeEventListener("keydown", key); };
  }, []);
  const known = views.find((v) => v[0] === route.view);
  useEffect(() => { document.title = `${known?.[1] || "Vigil"} – ${visible(session?.name || "Vigil")}`; }, [route.view, session?.name]);
  if (error && !session) return <main><h1>Vigil</h1><ErrorBox error={error} /><button onClick={load}>Try again</button></main>;
  if (!session) return <main><h1>Vigil</h1><Busy what="Connecting to the member…" /></main>;
  if (session.auth && !session.user) return <Login session={session} expired={expired} done={load} />;
  const logout = async () => { await post("logout", {}); load(); };
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); main.current!.focus(); }}>Skip to the content</a>
      <header>
        <a class="brand" href={link("overview")}><Mark /> Vigil</a>
        <nav aria-label="Views">{views.map(([name, title]) => <a key={name} href={link(name)} aria-current={route.view === name ? "page" : undefined}>{title}</a>)}</nav>
        <div class="who">
          <span class="where"><Text value={session.name} most={40} /> <small title="cluster">{session.cluster}</small></span>
          {session.auth ? <><span><Text value={session.user} most={40} /></span> {session.certificate ? <span class="dim">by certificate</span> : <button onClick={logout}>Log out</button>}</> : <span class="dim" title="authentication is disabled">no users</span>}
          <button onClick={() => show(true)} title="Ctrl-K">Commands</button>
        </div>
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        <LocalNote />
        {route.view === "overview" ? <Overview session={session} /> : route.view === "keys" ? <Keys route={route} session={session} /> : route.view === "history" ? <History route={route} />
          : route.view === "watches" ? <Watches route={route} /> : route.view === "leases" ? <Leases route={route} /> : route.view === "access" ? <AccessView session={session} route={route} />
          : route.view === "members" ? <Members /> : <><h1>No such view</h1><p>The address <Text value={location.hash} /> names no view. <a href={link("overview")}>Overview</a></p></>}
      </main>
      {palette ? <Palette close={() => show(false)} logout={session.auth && !session.certificate ? logout : null} /> : null}
    </>
  );
}

// Mark is an open eye.
const Mark = () => <svg class="logo" viewBox="0 0 24 24" aria-hidden="true"><path d="M1.5 12C5 6.2 8.5 4.5 12 4.5S19 6.2 22.5 12C19 17.8 15.5 19.5 12 19.5S5 17.8 1.5 12Z" /><circle cx="12" cy="12" r="4" /></svg>;

function Login({ session, expired, done }: { session: Session; expired: boolean; done: () => void }) {
  const [name, type] = useState("");
  const [password, set] = useState("");
  const [error, fail] = useState<unknown>(null);
  const [busy, work] = useState(false);
  const submit = async (e: Event) => {
    e.preventDefault();
    work(true);
    try {
      await post("login", { name, password });
      done();
    } catch (x) {
      fail(x);
      set("");
    }
    work(false);
  };
  return (
    <main class="login">
      <h1 class="brand"><Mark /> Vigil</h1>
      <p class="dim">Member <Text value={session.name} most={60} />, cluster {session.cluster}</p>
      {expired ? <p class="warn" role="alert">The session has expired: log in again.</p> : null}
      {session.secure ? null : <p class="warn">This connection is not encrypted: others on the network can read the password. Use https.</p>}
      <form onSubmit={submit}>
        <label>User <input required autocomplete="username" value={name} onInput={(e) => type(e.currentTarget.value)} /></label>
        <label>Password <input type="password" autocomplete="current-password" value={password} onInput={(e) => set(e.currentTarget.value)} /></label>
        <ErrorBox error={error} />
        <button class="primary" disabled={busy}>{busy ? "checking…" : "Log in"}</button>
      </form>
    </main>
  );
}

// Palette runs a command that is found by typing.
function Palette({ close, logout }: { close: () => void; logout: (() => void) | null }) {
  const [text, type] = useState("");
  const [at, move] = useState(0);
  const commands: { title: string; run: () => void }[] = views.map(([name, title]) => ({ title: "Go to " + title, run: () => go(link(name)) }));
  if (text) {
    const k = fromField(text);
    commands.push({ title: `Open the key ${text}`, run: () => go(link("keys", { k })) }, { title: `Search keys with the prefix ${text}`, run: () => go(link("keys", { mode: "prefix", q: k })) },
      { title: `Search keys that contain ${text}`, run: () => go(link("keys", { mode: "pattern", q: fromText(text) })) }, { title: `History of the key ${text}`, run: () => go(link("history", { k })) },
      { title: `Live tail of the prefix ${text}`, run: () => go(link("watches", { tail: k })) },
      { title: `Who may read the key ${text}?`, run: () => go(link("access", { who: k })) });
    if (/^[0-9]+$/.test(text)) commands.push({ title: `Keys as of revision ${text}`, run: () => go(link("keys", { rev: text })) }, { title: `What changed from revision ${text} on`, run: () => go(link("history", { from: text })) });
    else if (parseTime(text) !== null) commands.push({ title: `Keys as of ${text}`, run: () => go(link("keys", { at: point(text) })) }, { title: `What changed since ${text}`, run: () => go(link("history", { from: point(text) })) });
  }
  if (logout) commands.push({ title: "Log out", run: logout });
  const words = text.toLowerCase().split(/\s+/);
  const found = commands.filter((c) => words.every((w) => c.title.toLowerCase().includes(w)));
  const chosen = Math.min(at, found.length - 1);
  const key = (e: KeyboardEvent) => {
    if (e.key === "ArrowDown") move(Math.min(chosen + 1, found.length - 1));
    else if (e.key === "ArrowUp") move(Math.max(chosen - 1, 0));
    else if (e.key === "Enter" && found[chosen]) { close(); found[chosen].run(); }
    else return;
    e.preventDefault();
  };
  return (
    <Dialog title="Commands" close={close}>
      <input role="combobox" aria-label="command" aria-expanded="true" aria-controls="commands" aria-activedescendant={found.length ? "command-" + chosen : undefined} autofocus value={text} placeholder="a view, a key, a revision, a time" onKeyDown={key} onInput={(e) => { type(e.currentTarget.value); move(0); }} />
      <ul role="listbox" id="commands" aria-label="commands" class="commands">
        {found.map((c, i) => <li key={c.title} id={"command-" + i} role="option" aria-selected={i === chosen} onClick={() => { close(); c.run(); }}><Text value={c.title} /></li>)}
      </ul>
      <p class="dim">Enter runs, arrows choose, Escape closes. Keys: / searches, Ctrl-K or ? opens this list.</p>
      <p><button type="button" onClick={close}>Close</button></p>
    </Dialog>
  );
}

render(<App />, document.getElementById("app")!);
